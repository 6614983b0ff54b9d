"""A bundle runs and judges without the candidate's code, says what it lacks, and notices every change."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from verify import bundle
from verify.candidate import load
from verify.core import Outcome, UsageError
from verify.gating import check
from verify.pack import pack
from verify.reports.progress import quiet
from verify.store import Store

BUILD = """
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from verify.core import Case

W = np.random.default_rng(0).normal(size=(2, 3, 3, 3)).astype(np.float32)

def source():
    def run(feeds):
        x = feeds["x"].astype(np.float64)
        n, _, h, w = x.shape
        y = np.zeros((n, 2, h - 2, w - 2))
        for i in range(3):
            for j in range(3):
                y += np.einsum("nchw,oc->nohw", x[:, :, i : i + h - 2, j : j + w - 2], W[:, :, i, j])
        return {"y": y.astype(np.float32)}
    return run

def export(path):
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 6, 6])
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(W, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

def _case(i):
    x = np.random.default_rng(i).integers(0, 256, (1, 3, 8, 8))
    return Case(f"a/b {i}" if i == 1 else f"case{i}", {"x": x.astype(np.float32)})

def cases():
    return [_case(i) for i in range(2)]

def calibration():
    return [_case(100 + i) for i in range(4)]

def scored():
    for i in range(500):
        yield Case(f"case{i}", _case(1000 + i).inputs)

def labelled():
    for case in scored():
        yield Case(case.name, case.inputs, {"label": np.array(1)})

def score(expected, outputs):
    assert "label" in expected
    return 1.0
"""
TOML = """
model = "toy"
target = "cpu"
source = "build.py:source"
graph = "build.py:export"
cases = "build.py:cases"
[input.x]
layout = "nchw"
mean = [100.0, 110.0, 120.0]
std = [50.0, 51.5, 57.1]
color = "rgb"
[variant.fused]
[variant.int8]
precision = "w8a8"
calibration = "build.py:calibration"
onnxruntime = { per_channel = true }
[variant.mine]
run = "build.py:open"
[accuracy]
batch = 40
cases = "build.py:scored"
"""
OWN = TOML.replace("scored", "labelled") + 'score = "build.py:score"\nmargin = 0.1\n'


def _declared(tmp_path):
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "build.py").write_text(BUILD)
    (folder / "candidate.toml").write_text(TOML)
    return folder / "candidate.toml"


@pytest.fixture
def candidate_toml(tmp_path):
    return _declared(tmp_path)


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("once")
    return packed(_declared(folder), folder)[0]


@pytest.fixture
def out(once, tmp_path):
    """A copy of a bundle that nothing else is left of."""
    return shutil.copytree(once, tmp_path / "moved" / "toy.bundle")


def packed(toml, tmp_path, variant="fused"):
    out = tmp_path / "toy.bundle"
    text = pack(load(toml, variant), out, Store(tmp_path / "cache"), quiet())
    return out, text


def test_a_bundle_checks_without_the_candidates_code(candidate_toml, tmp_path) -> None:
    out, text = packed(candidate_toml, tmp_path)
    shutil.rmtree(candidate_toml.parent)
    assert "2 cases" in text and "verdict passed" in text and not list(out.rglob("*.py"))
    verdict = check(load(out / "candidate.toml"), store=Store(tmp_path / "elsewhere"), run=tmp_path / "run")
    assert verdict.outcome is Outcome.PASSED, verdict
    assert any("source model is not here" in note for note in verdict.notes)
    first = json.loads((out / "verdict.json").read_text())
    assert {m["value"] for m in first["measurements"] if m["metric"] == "relative_l2"} == {
        m.value for m in verdict.measurements if m.metric == "relative_l2"
    }  # same inputs, same mean and std, same artefact: the same numbers on the same machine


def test_an_integer_build_takes_its_calibration_along(candidate_toml, tmp_path) -> None:
    out, text = packed(candidate_toml, tmp_path, "int8")
    assert "4 calibration samples" in text
    held = load(out / "candidate.toml")
    assert held.variant.artifact == "quantised.onnx" and (out / "quantised.onnx").is_file()
    assert (
        held.variant.settings == {"onnxruntime": {"per_channel": True}}
        and held.inputs == load(candidate_toml, "int8").inputs
    )
    assert check(held, store=Store(tmp_path / "elsewhere"), run=tmp_path / "run").outcome is Outcome.PASSED


def test_a_score_in_code_stays_behind_and_that_is_said(candidate_toml, tmp_path) -> None:
    candidate_toml.write_text(OWN)
    out, text = packed(candidate_toml, tmp_path)
    count = len(list((out / "scored").iterdir()))
    assert 2 < count < 500 and f"{count} scored samples" in text  # as many as the margin needed
    assert "Not in it: the score build.py:score" in text
    held = load(out / "candidate.toml")
    assert held.accuracy.score == "agreement" and held.accuracy.cases == "scored/*.npz"
    assert not any(name.startswith("expected.") for name in np.load(out / "scored" / "case0.npz").files)
    verdict = check(held, store=Store(tmp_path / "elsewhere"), run=tmp_path / "run")
    assert verdict.outcome is Outcome.PASSED
    assert any(note.startswith("not in the bundle: the score build.py:score") for note in verdict.notes)


def test_an_artefact_of_ones_own_goes_along(candidate_toml, tmp_path) -> None:
    made, _ = packed(candidate_toml, tmp_path)
    shutil.copy(made / "fused.onnx", candidate_toml.parent / "mine.onnx")
    candidate_toml.write_text(TOML.replace("[variant.fused]", '[variant.fused]\nartifact = "mine.onnx"'))
    out = tmp_path / "own.bundle"
    pack(load(candidate_toml, "fused"), out, Store(tmp_path / "cache"), quiet())
    assert load(out / "candidate.toml").variant.artifact == "mine.onnx"
    assert (out / "mine.onnx").read_bytes() == (made / "fused.onnx").read_bytes()


def test_judge_and_check_by_command_elsewhere(out, once, tmp_path) -> None:
    command = [sys.executable, "-m", "verify.cli"]
    judged = subprocess.run([*command, "judge", str(out)], capture_output=True, text=True, timeout=120)
    assert judged.returncode == 0 and judged.stdout.startswith("PASSED  toy:fused@cpu"), judged.stderr
    assert str(once.parent) not in (out / "run.json").read_text() + (out / "verdict.json").read_text()
    code = textwrap.dedent(f"""
        import sys
        for name in ("torch", "rknn"):
            sys.modules[name] = None  # importing it raises
        from verify.cli import main
        sys.exit(main(["check", {str(out / "candidate.toml")!r}, "--cache", {str(tmp_path / "other")!r}]))
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith("PASSED  toy:fused@cpu"), done.stderr


def test_inputs_that_were_never_packed_are_one_line(out, tmp_path) -> None:
    extra = np.load(out / "cases" / "case0.npz")["x"] + 1
    np.savez(out / "cases" / "case7.npz", x=extra)
    with pytest.raises(UsageError, match=r"case7.npz: was not packed"):
        load(out / "candidate.toml")
    (out / bundle.MANIFEST).unlink()  # as somebody who insists would do
    with pytest.raises(UsageError, match="these inputs were never recorded"):
        check(load(out / "candidate.toml"), store=Store(tmp_path / "elsewhere"), run=tmp_path / "run")


@pytest.mark.parametrize("name", ["graph.onnx", "run.json", "cases/case0.npz", "candidate.toml"])
def test_every_change_is_noticed(out, name) -> None:
    whole = (out / name).read_bytes()
    (out / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(UsageError, match="was changed since it was packed"):
        bundle.load(out)
    (out / name).unlink()
    with pytest.raises(UsageError, match="is missing"):
        bundle.load(out)
    (out / name).symlink_to("/etc/hostname")
    with pytest.raises(UsageError, match="is a link"):
        bundle.load(out)


def test_what_cannot_be_packed_leaves_nothing(candidate_toml, tmp_path) -> None:
    (tmp_path / "toy.bundle").mkdir()
    with pytest.raises(UsageError, match="already exists"):
        packed(candidate_toml, tmp_path)
    (tmp_path / "toy.bundle").rmdir()
    with pytest.raises(UsageError, match="a runner of your own cannot be packed"):
        packed(candidate_toml, tmp_path, "mine")
    with pytest.raises(UsageError, match="cannot be written.*--out"):
        pack(load(candidate_toml, "fused"), tmp_path / "none" / "b", Store(tmp_path / "cache"), quiet())
    candidate_toml.with_name("build.py").write_text(BUILD.replace("return [_case", "return 3; [_case"))
    with pytest.raises(UsageError):
        packed(candidate_toml, tmp_path)
    assert {p.name for p in tmp_path.iterdir()} <= {"toy", "cache"}


def test_a_folder_that_is_no_bundle_is_left_alone(tmp_path) -> None:
    bundle.checked(tmp_path)
    (tmp_path / bundle.MANIFEST).write_text('{"schema": "npu-verify/bundle/1", "files": {}}')
    with pytest.raises(UsageError, match="lists no files"):
        bundle.checked(tmp_path)
