"""The engine on real onnxruntime builds of a small graph: what passes, what is denied, and what a run leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import verify.gating
from tests.small import BUILD, FLOAT, TOML, candidate, linear, save
from verify.core import Measurement, Missing, NotComparable, Outcome, RunSpec, Tier, UsageError, Where
from verify.gating import Rejected, check, examine, gate
from verify.judge import judge
from verify.policy import Policy
from verify.schemas import read
from verify.store import Store
from verify.stored import from_document

SCORED = """
[accuracy]
score = "agreement"
margin = 0.05
cases = "build.py:scored"
"""
SAMPLES = """
def scored():
    for i in range(200):
        yield Case(f"s{i}", {"x": np.random.default_rng(1000 + i).normal(size=(1, 4)).astype(np.float32)})
"""


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def good(folder, toml=TOML, build=BUILD):
    return candidate(folder, toml.replace("[variant", SCORED + "[variant"), build + SAMPLES)


def scaled_weights(path: Path, factor: float) -> None:
    """Multiply the weight w of a graph."""
    model = onnx.load(str(path))
    (w,) = (t for t in model.graph.initializer if t.name == "w")
    w.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(w) * np.float32(factor), "w"))
    onnx.save(model, str(path))


def elsewhere(folder: Path, factor: float) -> str:
    """A candidate's source that is another file than its graph: the same weights times `factor`."""
    linear(folder / "source.onnx")
    scaled_weights(folder / "source.onnx", factor)
    return BUILD.replace('"m.onnx"', '"source.onnx"')


def test_an_honest_build_on_its_own_hardware_passes_every_tier(tmp_path, store):
    verdict = gate(good(tmp_path, build=elsewhere(tmp_path, 1.0)), store=store)
    assert verdict.passed, verdict
    assert {t: v.outcome for t, v in verdict.tiers.items()} == dict.fromkeys(Tier, Outcome.PASSED)
    assert {leg.name for tier in verdict.tiers.values() for leg in tier.legs} == {
        "source~graph",
        "graph~device",
        "source~device",
    }
    assert verdict.blame == () and verdict.not_proven == ()


def test_a_gain_of_one_part_in_a_thousand_is_refused_with_its_size(tmp_path, store):
    with pytest.raises(Rejected) as refused:
        gate(good(tmp_path, build=elsewhere(tmp_path, 1.001)), store=store)
    verdict = refused.value.verdict
    assert verdict.outcome is Outcome.FAILED
    assert verdict.tiers[Tier.GRAPH].outcome is Outcome.FAILED
    assert any(f.checker == "parity" and f.metric == "relative_l2" for f in verdict.findings)
    assert "source~graph" in str(refused.value)


def test_too_few_scored_samples_are_inconclusive_and_say_how_many_are_needed(tmp_path, store):
    verdict = check(candidate(tmp_path), store=store)  # its three cases are all that is scored
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.tiers[Tier.END_TO_END].outcome is Outcome.INCONCLUSIVE
    assert "n needed: about" in str(verdict)


def test_gate_refuses_what_is_not_proven_as_it_refuses_what_failed(tmp_path, store):
    with pytest.raises(Rejected) as refused:
        gate(candidate(tmp_path), store=store)
    assert refused.value.verdict.outcome is Outcome.INCONCLUSIVE


def test_a_runner_that_finds_no_hardware_is_never_a_pass(tmp_path, store):
    toml = TOML.replace("[variant.fused]", '[variant.mine]\nrun = "r.py:open"')
    runner = "import contextlib\nfrom verify import Missing\n@contextlib.contextmanager\ndef open(*a):\n"
    (tmp_path / "r.py").write_text(runner + "    raise Missing('no camera')\n    yield\n")
    verdict = check(good(tmp_path, toml, elsewhere(tmp_path, 1.0)), store=store)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.not_proven == ("device (no camera)", "end_to_end (no camera)")


def test_an_output_that_is_nan_only_on_the_device_fails(tmp_path, store):
    # the fused run overflows nowhere else: a runner of one's own stands for the device
    toml = TOML.replace("[variant.fused]", '[variant.mine]\nrun = "r.py:open"')
    (tmp_path / "r.py").write_text(
        "import contextlib, numpy as np, onnxruntime as ort, pathlib\n"
        "class S:\n"
        "    def __init__(self): self.s = ort.InferenceSession(str(pathlib.Path(__file__).parent / 'm.onnx'))\n"
        "    def run(self, feeds):\n"
        "        y = self.s.run(None, dict(feeds))[0]; y[0, 1] = np.nan; return {'y': y}\n"
        "@contextlib.contextmanager\ndef open(*a): yield S()\n"
    )
    verdict = check(good(tmp_path, toml), store=store)
    assert verdict.outcome is Outcome.FAILED
    assert {f.checker for f in verdict.findings if f.severity == "fail"} >= {"finite", "layers"}


def test_a_second_run_takes_the_build_from_the_cache_and_says_the_same(tmp_path, store):
    held = good(tmp_path)
    first, second = check(held, store=store), check(held, store=store)
    assert not first.environment["cache"] and second.environment["cache"]
    assert [f.id for f in first.findings] == [f.id for f in second.findings]
    assert [(m.where, m.metric, m.value) for m in first.measurements] == [
        (m.where, m.metric, m.value) for m in second.measurements
    ]


@pytest.mark.parametrize("what", ["weights", "cases", "margin", "artefact", "settings"])
def test_what_the_outcome_depends_on_voids_the_cache(tmp_path, store, what):
    check(good(tmp_path), store=store)
    if what == "weights":
        scaled_weights(tmp_path / "m.onnx", 2.0)
        again = good(tmp_path)
    elif what == "cases":
        again = good(tmp_path, build=BUILD.replace("default_rng(i)", "default_rng(i + 7)"))
    elif what == "margin":
        again = candidate(
            tmp_path, TOML.replace("[variant", SCORED.replace("0.05", "0.04") + "[variant"), BUILD + SAMPLES
        )
    elif what == "settings":  # of the builder, which no file of user code shows
        again = good(tmp_path, TOML + 'onnxruntime = { optimization = "basic" }\n')
    else:  # a file in the cache that is not the one that was built
        for built in {p.stat().st_ino: p for p in (tmp_path / "store" / "cache").rglob("*.onnx")}.values():
            built.write_bytes(built.read_bytes() + b"\0")
        again = good(tmp_path)
    assert not check(again, store=store).environment["cache"]


def test_the_run_folder_holds_the_evidence_and_judges_again_alike(tmp_path, store):
    verdict = check(good(tmp_path), store=store, run=tmp_path / "run")
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert {"run.json", "verdict.json", "graph.onnx", "log.jsonl", "recordings"} <= names
    run = from_document(read(tmp_path / "run" / "run.json", "run"))
    again = judge(run, Policy())
    assert again.outcome is verdict.outcome and again.findings == verdict.findings
    steps = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert all(step["seconds"] >= 0 and step["step"] for step in steps)


def test_a_stricter_policy_denies_the_stored_run_without_running_anything(tmp_path, store):
    verdict = check(good(tmp_path, build=elsewhere(tmp_path, 1.00001)), store=store, run=tmp_path / "run")
    assert verdict.passed, verdict
    (tmp_path / "p.toml").write_text("[limit.parity]\nrelative_l2 = 1e-7\n")
    again = judge(from_document(read(tmp_path / "run" / "run.json", "run")), Policy.load(tmp_path / "p.toml"))
    assert again.outcome is Outcome.FAILED


def test_nothing_but_cache_locks_and_runs_stays_behind(tmp_path, store):
    check(good(tmp_path), store=store)
    assert list((tmp_path / "store" / "tmp").iterdir()) == []


class Crashing:
    name, tier = "crashing", Tier.GRAPH

    def plan(self, candidate):
        return frozenset({RunSpec("source")})

    def check(self, trial):
        raise ZeroDivisionError("of mine")


class Unlimited(Crashing):
    name = "unlimited"

    def check(self, trial):
        for leg in trial.legs(Tier.GRAPH):
            yield Measurement(Where("y", "", leg.name), "made_up", 0.0)


class Gone(Crashing):
    name = "gone"

    def check(self, trial):
        raise Missing("no thermometer")


class NoLeg(Crashing):
    name = "noleg"

    def check(self, trial):
        yield Measurement(Where("y"), "made_up", 0.0)


class Elsewhere(Crashing):
    """Breaks off at a place that is no leg, after a number that is fine."""

    name = "elsewhere"

    def check(self, trial):
        for leg in trial.legs(Tier.GRAPH):
            yield Measurement(Where("y", "", leg.name), "fine", 0.0)
        raise NotComparable("of another kind", "output y")


class Leaving(Crashing):
    name = "leaving"

    def check(self, trial):
        raise SystemExit(0)


@pytest.mark.parametrize(
    ("checker", "text"),
    [
        (NoLeg, "made_up"),
        (Elsewhere, "elsewhere did not run: output y: of another kind"),
        (Leaving, "leaving did not run: SystemExit(0)"),
        (Crashing, "crashing did not run: ZeroDivisionError('of mine')"),
        (Unlimited, "made_up"),
        (Gone, "gone did not run: no thermometer"),
    ],
)
def test_a_required_checker_that_crashes_or_has_no_limit_denies(tmp_path, store, monkeypatch, checker, text):
    usual = verify.gating.load
    monkeypatch.setattr(
        verify.gating, "load", lambda group, name: checker if name == checker.name else usual(group, name)
    )
    policy = Policy(require=(*Policy().require, checker.name), limits={("elsewhere", "fine"): {"*": 1.0}})
    verdict = check(good(tmp_path), policy, store=store)
    assert verdict.outcome is not Outcome.PASSED
    assert text in str(verdict)


def test_a_checker_that_does_not_exist_is_refused_before_anything_runs(tmp_path, store):
    with pytest.raises(UsageError, match="unknown checker 'paritee'.*parity"):
        examine(good(tmp_path), Policy(require=("paritee",)), store=store)
    assert not (tmp_path / "store" / "cache").exists()


def test_indices_of_ties_pass_and_wrong_ones_fail(tmp_path, store):
    # A07: a runner that orders ties the other way passes, one that points at a smaller value does not
    nodes = [helper.make_node("TopK", ["x", "k"], ["v", "y"], name="topk")]
    outputs = [("v", FLOAT, [1, 2]), ("y", onnx.TensorProto.INT64, [1, 2])]
    save(tmp_path / "m.onnx", nodes, outputs=outputs, weights={"k": np.array([2])})
    build = BUILD.replace("np.random.default_rng(i).normal(size=(1, 4)).astype(np.float32)", "x(i)") + (
        "\ndef x(i): return np.array([[1, 3, 3, i / 8]], np.float32)\n"
    )
    samples = SAMPLES.replace("np.random.default_rng(1000 + i).normal(size=(1, 4)).astype(np.float32)", "x(i % 16)")
    toml = TOML.replace("[variant.fused]", '[variant.mine]\nrun = "r.py:open"')
    outcomes = {}
    for order in ("2, 1", "2, 0"):
        (tmp_path / "r.py").write_text(
            "import contextlib, numpy as np\n"
            f"class S:\n    def run(self, feeds):\n        i = np.array([[{order}]]); "
            "return {'v': np.take_along_axis(feeds['x'], i, 1), 'y': i}\n"
            "@contextlib.contextmanager\ndef open(*a): yield S()\n"
        )
        verdict = check(candidate(tmp_path, toml, build + samples), store=store)
        outcomes[order] = [f.id for f in verdict.findings if f.checker == "indices" and f.severity == "fail"]
    assert outcomes["2, 1"] == []
    assert outcomes["2, 0"]


def test_a_file_built_elsewhere_is_what_runs_and_what_the_verdict_names(tmp_path, store):
    held = good(tmp_path, TOML + 'artifact = "built.onnx"\n')
    with pytest.raises(UsageError, match="built.onnx: no such file"):
        check(held, store=store)
    linear(tmp_path / "built.onnx")
    verdict = check(held, store=store)
    assert verdict.passed, verdict
    roles = {a["name"]: a["role"] for a in verdict.candidate["artifacts"]}
    assert roles == {"m.onnx": "graph", "built.onnx": "device"}
    assert any("built elsewhere" in note for note in verdict.notes)
    scaled_weights(tmp_path / "built.onnx", 1.01)
    assert check(held, store=store).outcome is Outcome.FAILED
