from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.small import FLOAT, INT64, STRING, artifact, linear, normal, save
from verify.candidate import load, names
from verify.cases import load_calibration, load_cases, score_cases
from verify.core import UsageError
from verify.init import init


def embedding(path):
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"]),
        helper.make_node("Cast", ["mask"], ["m"], to=FLOAT),
        helper.make_node("Unsqueeze", ["m", "axis"], ["u"]),
        helper.make_node("Mul", ["e", "u"], ["p"]),
        helper.make_node("ReduceSum", ["p", "middle"], ["s"], keepdims=0),
        helper.make_node("ReduceSum", ["u", "middle"], ["n"], keepdims=0),
        helper.make_node("Div", ["s", "n"], ["y"]),
    ]
    inputs = [("ids", INT64, ["batch", "sequence"]), ("mask", INT64, ["batch", "sequence"])]
    weights = {"table": normal(0, 2, 3), "axis": np.array([-1]), "middle": np.array([1])}
    return save(path, nodes, inputs, weights=weights)


def convolution(path):
    nodes = [helper.make_node("Conv", ["im.0", "w"], ["c"]), helper.make_node("GlobalAveragePool", ["c"], ["y"])]
    return save(path, nodes, [("im.0", FLOAT, ["n", 3, "h", "w_"])], weights={"w": normal(0, 2, 3, 3, 3)})


def positions(path):
    nodes = [helper.make_node("TopK", ["x", "k"], ["v", "i"])]
    return save(path, nodes, outputs=[("v", FLOAT, None), ("i", INT64, None)], weights={"k": np.array([2])})


def halves(path):
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    return save(path, nodes, [("x", TensorProto.FLOAT16, [2, 3])], [("y", TensorProto.FLOAT16, None)])


def masks(path):
    nodes = [helper.make_node("Where", ["c", "x", "z"], ["y"])]
    return save(path, nodes, [("c", TensorProto.BOOL, [1, 4]), ("x", FLOAT, [1, 4])], weights={"z": np.float32(0)})


MODELS = [linear, embedding, convolution, positions, halves, masks]


@pytest.mark.parametrize("model", MODELS)
def test_what_it_writes_passes_the_gate_on_the_cpu_at_once(tmp_path, model):
    model(tmp_path / "my model.onnx")
    text = init(tmp_path / "my model.onnx", None, "rk3588")
    out = tmp_path / "my model"
    assert "npu-verify check" in text and "real" in text
    command = [sys.executable, "-m", "verify.cli", "gate", str(out / "candidate.toml"), "--variant", "cpu-fused"]
    done = subprocess.run(
        [*command, "--cache", str(tmp_path / "c")], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tier 1 proves nothing" in done.stdout


@pytest.mark.parametrize("model", MODELS)
def test_every_variant_loads_with_cases_that_fit(tmp_path, model):
    path = model(tmp_path / "m.onnx")
    init(path, tmp_path / "out", "rk3588")
    assert names(tmp_path / "out") == ["cpu-fused", "fp16", "int8"]
    for name in names(tmp_path / "out"):
        held = load(tmp_path / "out", name)
        assert len(load_cases(held, artifact(path))) == 4
        calibration = load_calibration(held, artifact(path))
        assert len(calibration) == (4 if name == "int8" else 0)
        assert len(list(score_cases(held, path))) == 100


def test_open_axes_are_fixed_and_named(tmp_path):
    init(convolution(tmp_path / "m.onnx"), tmp_path / "out", "rk3588")
    text = (tmp_path / "out" / "candidate.toml").read_text()
    assert '[input."im.0"]' in text and "shape = [1, 3, 64, 64]" in text and "n, h, w_ got a small size" in text
    assert "output y float32" in text and "RANDOM" in text and "proves nothing" in text


def test_token_ids_stay_within_any_vocabulary(tmp_path):
    init(embedding(tmp_path / "m.onnx"), tmp_path / "out", "rk3588")
    for path in (tmp_path / "out" / "cases").glob("*.npz"):
        with np.load(path) as held:
            assert set(np.unique(held["ids"])) <= {0, 1} and held["ids"].shape == (1, 8)


def test_masks_that_would_divide_by_zero_are_filled_with_ones(tmp_path):
    nodes = [helper.make_node("Cast", ["m"], ["f"], to=FLOAT), helper.make_node("Log", ["f"], ["y"])]
    save(tmp_path / "m.onnx", nodes, [("m", INT64, [1, 4])])
    init(tmp_path / "m.onnx", tmp_path / "out", "rk3588")
    with np.load(tmp_path / "out" / "cases" / "random0.npz") as held:
        assert held["m"].tolist() == [[1, 1, 1, 1]]
    assert "np.ones(shape)" in (tmp_path / "out" / "random_samples.py").read_text()


def test_cases_are_the_same_each_time(tmp_path):
    linear(tmp_path / "m.onnx")
    for out in ("a", "b"):
        init(tmp_path / "m.onnx", tmp_path / out, "cpu")
    assert (tmp_path / "a/cases/random0.npz").read_bytes() == (tmp_path / "b/cases/random0.npz").read_bytes()
    with np.load(tmp_path / "a/cases/random0.npz") as one, np.load(tmp_path / "a/calibration/random0.npz") as other:
        assert not np.array_equal(one["x"], other["x"])


def test_outputs_of_rounding_noise_are_called_that(tmp_path):
    nodes = [helper.make_node("Mul", ["x", "k"], ["a"]), helper.make_node("Sin", ["a"], ["y"])]
    save(tmp_path / "m.onnx", nodes, weights={"k": np.float32(1e5)})
    assert "rounding noise: write real cases first" in init(tmp_path / "m.onnx", tmp_path / "out", "rk3588")
    assert "rounding noise" in (tmp_path / "out" / "candidate.toml").read_text()


def test_a_model_that_does_not_run_on_random_inputs_is_written_all_the_same(tmp_path):
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    save(tmp_path / "m.onnx", nodes, [("x", FLOAT, ["n"])], weights={"s": np.array([7, 11])})
    assert "did not run" in init(tmp_path / "m.onnx", tmp_path / "out", "rk3588")
    assert names(tmp_path / "out") == ["cpu-fused", "fp16", "int8"]


def test_text_and_scalar_inputs_do_not_stop_it(tmp_path):
    nodes = [helper.make_node("Identity", ["s"], ["y"]), helper.make_node("Relu", ["x"], ["z"])]
    inputs = [("s", STRING, ["n"]), ("x", FLOAT, [])]
    save(tmp_path / "m.onnx", nodes, inputs, [("y", STRING, None), ("z", FLOAT, None)])
    init(tmp_path / "m.onnx", tmp_path / "out", "cpu")
    held = load(tmp_path / "out", "cpu-fused")
    assert load_cases(held, artifact(tmp_path / "m.onnx"))[0].inputs["s"].dtype.kind == "U"


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path, monkeypatch):
    linear(tmp_path / "m.onnx")
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="already exists"):
        init(tmp_path / "m.onnx", tmp_path / "out", "rk3588")
    monkeypatch.setattr("verify.init.write_npz", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        init(tmp_path / "m.onnx", tmp_path / "other", "rk3588")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "out"]


def test_targets_get_the_precisions_that_they_have(tmp_path):
    linear(tmp_path / "m.onnx")
    for target, wanted in {"cpu": ["cpu-fused", "int8"], "rv1106": ["cpu-fused", "int8"]}.items():
        init(tmp_path / "m.onnx", tmp_path / target, target)
        assert names(tmp_path / target) == wanted
    with pytest.raises(UsageError, match="did you mean 'rk3588'"):
        init(tmp_path / "m.onnx", tmp_path / "x", "rk3598")


@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_what_is_no_model_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(UsageError):
        init(tmp_path / "m.onnx", tmp_path / "out", "rk3588")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ['q"uote', "new\nline", "\x01\x7f", "\U0001f600 é", "a.b/c:0", "back\\slash", "file"])
def test_inputs_and_outputs_of_any_name_give_a_candidate_that_gates(tmp_path, name):
    from verify.gating import gate
    from verify.store import Store

    save(
        tmp_path / "m.onnx",
        [helper.make_node("Relu", [name], [name + "'"])],
        [(name, FLOAT, [1, 4])],
        [(name + "'", FLOAT, None)],
    )
    init(tmp_path / "m.onnx", tmp_path / "out", "rk3588")
    verdict = gate(load(tmp_path / "out" / "candidate.toml", "cpu-fused"), store=Store(tmp_path / "store"))
    assert verdict.passed and str(verdict)
