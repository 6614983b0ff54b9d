from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.small import FLOAT, TOML, artifact, candidate, linear, normal, save
from verify.backends.cpu import CpuBackend
from verify.backends.graph import GraphBackend
from verify.core import NotComparable, UsageError

X = {"x": normal(9, 1, 4)}


def opened(folder, instrument=False):
    return GraphBackend(instrument).open(candidate(folder), artifact(folder / "m.onnx"))


def test_inner_tensors_come_with_unchanged_outputs(tmp_path):
    linear(tmp_path / "m.onnx")
    with opened(tmp_path) as plain, opened(tmp_path, True) as session:
        outputs, inner = session.run_all(X)
        assert list(outputs) == ["y"] and np.array_equal(outputs["y"], plain.run(X)["y"])
        assert list(inner) == ["m", "h"] and np.array_equal(np.maximum(inner["h"], 0), outputs["y"])
        assert list(session.run(X)) == ["y"]


def test_weights_beside_the_model_are_found_wherever_it_is_instrumented(tmp_path):
    linear(tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    before = sorted(path.name for path in tmp_path.iterdir())
    with opened(tmp_path, True) as session:
        _, inner = session.run_all(X)
    assert np.allclose(inner["m"], X["x"] @ normal(0, 4, 3))
    assert {path.name for path in tmp_path.iterdir()} - set(before) <= {"candidate.toml", "build.py"}


@pytest.mark.parametrize("size", [0, 10])
def test_weights_that_are_missing_or_cut_short_are_refused(tmp_path, size):
    linear(tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    if size:
        (tmp_path / "weights.bin").write_bytes((tmp_path / "weights.bin").read_bytes()[:size])
    else:
        (tmp_path / "weights.bin").unlink()
    from verify.graphs.signature import signature

    with pytest.raises(UsageError, match=r"weights\.bin is " + ("truncated" if size else "missing")):
        signature(tmp_path / "m.onnx")


def test_sequences_among_the_inner_tensors_are_left_out(tmp_path):
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
        helper.make_node("ConcatFromSequence", ["s"], ["c"], axis=0),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    save(tmp_path / "m.onnx", nodes)
    with opened(tmp_path, True) as session:
        outputs, inner = session.run_all(X)
    assert list(inner) == ["c"] and outputs["y"].shape == (2, 4)


def test_sequences_among_the_outputs_are_not_covered(tmp_path):
    nodes = [helper.make_node("SequenceConstruct", ["x"], ["s"]), helper.make_node("Relu", ["x"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes)
    model = onnx.load(str(path))
    model.graph.output.append(helper.make_tensor_sequence_value_info("s", FLOAT, None))
    onnx.save(model, str(path))
    with opened(tmp_path) as session:
        assert list(session.run(X)) == ["y"]


def test_integers_inside_keep_their_types(tmp_path):
    nodes = [
        helper.make_node("TopK", ["x", "k"], ["v", "i"]),
        helper.make_node("Cast", ["i"], ["y"], to=FLOAT),
    ]
    save(tmp_path / "m.onnx", nodes, weights={"k": np.array([2])})
    with opened(tmp_path, True) as session:
        _, inner = session.run_all(X)
    assert inner["i"].dtype == np.int64 and inner["v"].dtype == np.float32


@pytest.mark.parametrize("instrument", [False, True])
def test_nothing_is_optimised(tmp_path, instrument):
    """A zero Pad before a MaxPool is folded away by the optimiser, which is wrong for negative inputs."""
    nodes = [
        helper.make_node("Pad", ["x", "p"], ["q"]),
        helper.make_node("MaxPool", ["q"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    save(tmp_path / "m.onnx", nodes, [("x", FLOAT, [1, 1, 2, 2])], weights={"p": np.array([0, 0, 1, 1, 0, 0, 1, 1])})
    with opened(tmp_path, instrument) as session:
        assert session.run({"x": -np.ones((1, 1, 2, 2), np.float32)})["y"].max() == 0


def test_what_cannot_be_loaded_is_refused_in_one_line(tmp_path):
    save(tmp_path / "m.onnx", [helper.make_node("Swallow", ["x"], ["y"])])
    with pytest.raises(UsageError, match="Swallow") as caught, opened(tmp_path):
        pass
    assert "\n" not in str(caught.value)


def test_a_graph_that_fails_on_inputs_that_fit_is_not_comparable(tmp_path):
    save(tmp_path / "m.onnx", [helper.make_node("Reshape", ["x", "s"], ["y"])], [("x", FLOAT, ["n", 4])],
         weights={"s": np.array([2, 2])})  # fmt: skip
    with opened(tmp_path) as session:
        assert session.run(X)["y"].shape == (2, 2)
        with pytest.raises(NotComparable, match="Reshape"):
            session.run({"x": np.ones((2, 4), np.float32)})


@pytest.mark.parametrize("feeds", [{"x": np.ones((1, 4))}, {"x": np.ones((1, 5), np.float32)}, {"z": X["x"]}, {}])
def test_inputs_that_do_not_fit_are_a_usage_error(tmp_path, feeds):
    linear(tmp_path / "m.onnx")
    with opened(tmp_path) as session, pytest.raises(UsageError):
        session.run(feeds)


@pytest.mark.parametrize("table", ['optimization = "most"', "threads = -1", "thread = 1"])
def test_unknown_settings_of_the_cpu_are_refused(tmp_path, table):
    linear(tmp_path / "m.onnx")
    held = candidate(tmp_path, TOML + f"[variant.fused.onnxruntime]\n{table}")
    with (
        pytest.raises(UsageError, match=r"\[variant\.fused\.onnxruntime\]"),
        CpuBackend().open(held, artifact(tmp_path / "m.onnx")),
    ):
        pass


def test_the_file_itself_is_not_touched(tmp_path):
    linear(tmp_path / "m.onnx")
    before = (tmp_path / "m.onnx").read_bytes()
    with opened(tmp_path, True):
        pass
    assert (tmp_path / "m.onnx").read_bytes() == before
    onnx.checker.check_model(str(tmp_path / "m.onnx"))
