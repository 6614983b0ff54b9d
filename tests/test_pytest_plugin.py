"""The pytest plugin, on a model of one MatMul that this machine's CPU is the hardware of."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

CANDIDATE = """
model = "tiny"
target = "cpu"
source = "build.py:source"
graph = "model.onnx"
cases = "build.py:cases"

[variant.fused]
precision = "fp32"

[variant.doubled]
run = "build.py:doubled"

[variant.odd]
precision = "w8a8"

[variant.npu]
target = "rk3588"
precision = "fp16"
"""

BUILD = """
import contextlib
from pathlib import Path

import numpy as np
from verify import Case

W = np.load(Path(__file__).with_name("w.npy"))

def source():
    return lambda feeds: {"y": feeds["x"] @ W}

def cases():
    draw = np.random.default_rng(1)
    return [Case(f"case{i}", {"x": draw.standard_normal((1, 8), np.float32)}) for i in range(80)]

class Doubled:
    def run(self, feeds):
        return {"y": feeds["x"] @ W * 2}

@contextlib.contextmanager
def doubled():
    yield Doubled()
"""


@pytest.fixture
def project(pytester):
    """A project with the model `tiny` under fixtures/."""
    folder = pytester.path / "fixtures" / "tiny"
    folder.mkdir(parents=True)
    w = np.random.default_rng(0).standard_normal((8, 4), np.float32)
    np.save(folder / "w.npy", w)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, k)) for n, k in (("x", 8), ("y", 4)))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [numpy_helper.from_array(w, "w")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    save(model, str(folder / "model.onnx"))
    (folder / "candidate.toml").write_text(CANDIDATE)
    (folder / "build.py").write_text(BUILD)
    return pytester


def run(project, test: str, *options: str):
    project.makepyfile(test_it="import pytest\n" + test)
    # a process of its own: pytester forgets the modules that are first imported inside, and some cannot come twice
    return project.runpytest_subprocess("-p", "no:cacheprovider", *options, timeout=120)


def test_a_proven_candidate_passes_and_leaves_its_outcome_in_junit(project):
    held = run(
        project,
        """
def test_it(trial):
    t = trial("tiny", "fused")
    verdict = t.judge()
    assert verdict.passed, verdict
    out = t.outputs("device")
    assert len(out) == 80 and out["case0"]["y"].shape == (1, 4)
""",
        "--junitxml=j.xml",
    )
    held.assert_outcomes(passed=1)
    found = {p.get("name"): p.get("value") for p in ET.parse(project.path / "j.xml").iter("property")}
    assert found["verify.outcome"] == "passed" and found["verify.variant"] == "fused"
    assert {found[f"verify.tier.{tier}"] for tier in ("graph", "device", "end_to_end")} == {"passed"}


def test_the_whole_table_is_the_message_of_a_failed_assertion(project):
    held = run(
        project,
        """
def test_named(trial):
    verdict = trial("tiny", "doubled").judge()
    assert verdict.passed, verdict

def test_plain(trial):
    assert trial("tiny", "doubled").judge().passed
""",
    )
    held.assert_outcomes(failed=2)
    held.stdout.fnmatch_lines(["E*FAILED*tiny:doubled@cpu*", "E*graph~device*", "E*relative_l2 = 1*"] * 2)


def test_the_marker_restricts_a_verdict_to_its_tiers(project):
    held = run(
        project,
        """
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param("fused", marks=pytest.mark.tier(1)),
        pytest.param("fused", marks=pytest.mark.tier(1, 2)),
        pytest.param("doubled", marks=pytest.mark.tier(1)),
        pytest.param("doubled", marks=pytest.mark.tier(2)),
    ],
)
def test_it(trial, variant):
    verdict = trial("tiny", variant).judge()
    assert verdict.passed, verdict
""",
        "-v",
    )
    held.assert_outcomes(passed=3, failed=1)
    held.stdout.fnmatch_lines(["*test_it?doubled1? FAILED*"])


def test_a_tier_that_a_verdict_does_not_hold_is_not_passed():
    from verify import Outcome, Tier, Verdict
    from verify.pytest_plugin import only
    from verify.verdict import TierVerdict

    verdict = Verdict(Outcome.PASSED, {}, {Tier.GRAPH: TierVerdict(Outcome.PASSED)})
    assert only(verdict, frozenset({Tier.GRAPH})).passed
    assert only(verdict, frozenset({Tier.GRAPH, Tier.DEVICE})).outcome is Outcome.INCONCLUSIVE


def test_a_marked_test_fails_though_it_asserts_nothing(project):
    held = run(
        project,
        """
@pytest.mark.tier(1)
def test_judges_nothing(trial):
    trial("tiny", "fused")

@pytest.mark.tier(1)
def test_asks_for_no_trial():
    pass

@pytest.mark.tier(2)
def test_asserts_nothing(trial):
    trial("tiny", "doubled").judge()
""",
    )
    held.assert_outcomes(failed=3)
    held.stdout.fnmatch_lines(["*tiers graph, and nothing was judged*", "FAILED  tiny:doubled@cpu*"])


def test_a_tier_without_evidence_fails_it(project):
    """No board is no skip: a suite must not turn green because the hardware is away."""
    held = run(
        project,
        """
def judged(trial):
    verdict = trial("tiny", "npu").judge()
    assert verdict.passed, verdict

@pytest.mark.tier(1)
def test_graph(trial):
    judged(trial)

@pytest.mark.tier(2)
def test_device(trial):
    judged(trial)

def test_all(trial):
    judged(trial)

def test_truth(trial):
    assert trial("tiny", "npu").judge()
""",
    )
    held.assert_outcomes(passed=1, failed=3)
    held.stdout.fnmatch_lines(["*no board*"])


def test_running_a_test_again_cannot_turn_its_verdict_around(project):
    """What a rerun plugin would do: the second run meets the first verdict, though the runner is mended by then."""
    held = run(
        project,
        """
from pathlib import Path

@pytest.mark.parametrize("again", [0, 1])
def test_it(trial, again):
    verdict = trial("tiny", "doubled").judge()
    build = Path("fixtures/tiny/build.py")
    build.write_text(build.read_text().replace("W * 2", "W"))
    assert verdict.passed, verdict
""",
    )
    held.assert_outcomes(failed=2)


def test_unusable_input_is_one_line(project):
    held = run(
        project,
        """
def test_model(trial):
    trial("tinny", "fused")

def test_variant(trial):
    trial("fixtures/tiny/candidate.toml", "fusedd")

def test_setting(trial):
    trial("tiny", "odd").judge()
""",
    )
    held.assert_outcomes(failed=3)
    assert "Error" not in held.stdout.str() and "another exception" not in held.stdout.str()
    held.stdout.fnmatch_lines(["*no candidate for model 'tinny'; did you mean 'tiny'?*", "*unknown variant 'fusedd'*"])


def test_a_tier_that_is_none_stops_the_collection(project):
    held = run(project, "@pytest.mark.tier(4)\ndef test_it(): pass\n")
    assert held.ret == pytest.ExitCode.USAGE_ERROR
    held.stderr.fnmatch_lines(["*tier(4) is none: 1 graph, 2 device, 3 end to end"])


def test_two_workers_share_one_store(project):
    held = run(
        project,
        """
@pytest.mark.parametrize("n", range(4))
def test_it(trial, n):
    verdict = trial("tiny", "fused").judge()
    assert verdict.passed, verdict
""",
        "-n2",
    )
    held.assert_outcomes(passed=4)
    builds = project.path / ".npu-verify" / "cache" / "builds"
    assert len(list(builds.iterdir())) == 1


def test_candidates_may_lie_elsewhere(project):
    (project.path / "fixtures").rename(project.path / "models")
    project.makeini("[pytest]\nverify_candidates = models\n")
    run(project, "def test_it(trial):\n    assert trial('tiny', 'fused').judge().passed\n").assert_outcomes(passed=1)


def test_a_trial_that_is_not_asked_for_its_verdict_fails_the_test(project):
    done = run(
        project,
        """
def test_truth_of_the_trial(trial):
    assert trial("tiny", "doubled")

def test_method_not_called(trial):
    assert trial("tiny", "doubled").judge

@pytest.mark.tier(1)
def test_one_of_two(trial):
    trial("tiny", "doubled")
    trial("tiny", "fused").judge()

@pytest.mark.tier(1)
def test_outputs_of_one_of_two(trial):
    trial("tiny", "doubled").outputs("device")
    trial("tiny", "fused").judge()

def test_outputs_alone(trial):
    assert trial("tiny", "fused").outputs("device")
""",
    )
    done.assert_outcomes(passed=1, failed=4)
    done.stdout.fnmatch_lines(["*a trial is no verdict: assert trial(...).judge().passed*"])
    done.stdout.fnmatch_lines(["*tiny:doubled@cpu was never judged*"])
