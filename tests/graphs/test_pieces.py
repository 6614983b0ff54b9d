"""A graph run piece by piece gives what it gives as a whole, and keeps no more than it needs."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from verify.core import UsageError
from verify.graphs import pieces
from verify.graphs.pieces import stream

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def saved(path, nodes, inputs, outputs, weights=(), **options):
    ports = [[helper.make_tensor_value_info(n, t, s) for n, t, s in some] for some in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *ports, [onnx.numpy_helper.from_array(v, k) for k, v in weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path), **options)
    return path


def scalar_text(name, value):
    return helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(np.array(value)))


def branch(name, *nodes):
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(nodes[-1].output[0], FLOAT, None)])


@pytest.fixture
def mixed(tmp_path):
    """Weights, constants, a sequence that crosses nodes, and branches that read from outside."""
    node = helper.make_node
    nodes = [
        scalar_text("axis", np.int64(0)),
        node("MatMul", ["x", "w"], ["a"]),
        node("Add", ["a", "b"], ["c"]),
        node("SplitToSequence", ["c"], ["parts"], axis=0),
        node("Relu", ["c"], ["d"]),
        node("SequenceAt", ["parts", "axis"], ["first"]),
        node("ReduceMax", ["d"], ["top"], keepdims=0),
        node("Cast", ["top"], ["flag"], to=TensorProto.BOOL),
        node("If", ["flag"], ["e"], then_branch=branch("t", node("Mul", ["d", "a"], ["m"])),
             else_branch=branch("f", node("Identity", ["b"], ["n"]))),
        node("Add", ["e", "first"], ["y"]),
    ]  # fmt: skip
    rng = np.random.default_rng(0)
    weights = [(n, rng.standard_normal(s).astype(np.float32)) for n, s in (("w", (4, 4)), ("b", (4,)))]
    return saved(tmp_path / "m.onnx", nodes, [("x", FLOAT, [3, 4])], [("y", FLOAT, None)], weights)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("level", ["off", "all"])
def test_as_the_whole(mixed, monkeypatch, size, level):
    monkeypatch.setattr(pieces, "NODES", size)
    x = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    found = {name: value for group in stream(mixed, {"x": x}, level) for name, value in group.items()}
    assert list(found) == ["a", "c", "d", "first", "top", "flag", "e", "y"]
    (y,) = onnxruntime.InferenceSession(str(mixed)).run(None, {"x": x})
    np.testing.assert_allclose(found["y"], y, rtol=1e-6)


def test_weights_in_a_file_of_their_own(tmp_path):
    rng = np.random.default_rng(0)
    w = rng.standard_normal((64, 64)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    ports = [("x", FLOAT, [1, 64])], [("y", FLOAT, [1, 64])]
    path = saved(tmp_path / "m.onnx", nodes, *ports, [("w", w)], save_as_external_data=True, size_threshold=0)
    x = rng.standard_normal((1, 64)).astype(np.float32)
    (group,) = stream(path, {"x": x})
    np.testing.assert_allclose(group["y"], x @ w, rtol=1e-4, atol=1e-4)


def test_what_is_held_does_not_grow_with_the_graph(tmp_path):
    count = 10 * pieces.NODES
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(count)]
    path = saved(tmp_path / "m.onnx", nodes, [("t0", FLOAT, [9])], [(f"t{count}", FLOAT, [9])])
    seen, most = [], 0
    for group in stream(path, {"t0": np.ones(9, np.float32)}):
        seen += [weakref.ref(value) for value in group.values()]
        gc.collect()
        most = max(most, sum(held() is not None for held in seen))
    assert len(seen) == count and most <= 2 * pieces.NODES


def test_what_is_no_graph(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"none")
    with pytest.raises(UsageError, match="not a readable ONNX file"):
        next(stream(tmp_path / "m.onnx", {}))
