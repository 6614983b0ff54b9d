"""Small ONNX models, each of which shows one thing that the toolkit does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Value = tuple[str, int, Sequence[Any]]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def save(
    path: Path, nodes: Sequence[Any], inputs: list[Value], outputs: list[Value], weights: Mapping[str, Any]
) -> Path:
    """Write and check a model; inputs and outputs are (name, element type, shape)."""
    graph = helper.make_graph(
        list(nodes),
        "model",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return path


def normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def conv(path: Path, shape: Sequence[Any] = (1, 3, 3, 3)) -> Path:
    """Two convolutions. The input (1, 3, 3, 3) fits any layout, so only its values show a wrong one."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["/net/c.0"], name="/net/conv.0", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["/net/c.0"], ["r"], name="relu"),
        helper.make_node("Conv", ["r", "v"], ["y"], name="last", pads=[1, 1, 1, 1]),
    ]
    weights = {"w": normal(1, 8, 3, 3, 3) * 0.3, "b": normal(2, 8), "v": normal(3, 4, 8, 3, 3) * 0.2}
    return save(path, nodes, [("x", FLOAT, shape)], [("y", FLOAT, (shape[0], 4, *shape[2:]))], weights)


def tokens(path: Path) -> Path:
    """int64 (1, 8) and float (1, 8) in; a float tensor, a 0-d mean and an int64 ArgMax out."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], name="gather"),
        helper.make_node("Unsqueeze", ["mask", "last"], ["m"], name="unsqueeze"),
        helper.make_node("Mul", ["e", "m"], ["em"], name="mask"),
        helper.make_node("MatMul", ["em", "w"], ["mm"], name="matmul"),
        helper.make_node("Relu", ["mm"], ["r"], name="relu"),
        helper.make_node("ReduceMean", ["r"], ["mean"], axes=[0, 1, 2], keepdims=0, name="mean"),
        helper.make_node("ArgMax", ["r"], ["best"], axis=-1, keepdims=0, name="argmax"),
    ]
    inputs = [("ids", INT64, (1, 8)), ("mask", FLOAT, (1, 8))]
    outputs = [("r", FLOAT, (1, 8, 16)), ("mean", FLOAT, ()), ("best", INT64, (1, 8))]
    weights = {"table": normal(4, 50, 32), "w": normal(5, 32, 16), "last": np.array([-1], np.int64)}
    return save(path, nodes, inputs, outputs, weights)


def dropped(path: Path) -> Path:
    """A LayerNorm, written out, of which an inner tensor is an output too: one of the two comes back."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mu"], axes=[-1], name="mu"),
        helper.make_node("Sub", ["x", "mu"], ["d"], name="sub"),
        helper.make_node("Pow", ["d", "two"], ["d2"], name="pow"),
        helper.make_node("ReduceMean", ["d2"], ["var"], axes=[-1], name="var"),
        helper.make_node("Add", ["var", "eps"], ["ve"], name="eps"),
        helper.make_node("Sqrt", ["ve"], ["sd"], name="sqrt"),
        helper.make_node("Div", ["d", "sd"], ["n"], name="div"),
        helper.make_node("Mul", ["n", "g"], ["ng"], name="gain"),
        helper.make_node("Add", ["ng", "b"], ["y"], name="bias"),
    ]
    weights = {
        "two": np.float32(2),
        "eps": np.float32(1e-5),
        "g": normal(6, 32),
        "b": normal(7, 32),
    }
    outputs = [("y", FLOAT, (1, 8, 32)), ("n", FLOAT, (1, 8, 32))]
    return save(path, nodes, [("x", FLOAT, (1, 8, 32))], outputs, weights)


def cubic(path: Path) -> Path:
    """Resize with cubic interpolation: the toolkit dies of signal 11."""
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], name="resize", mode="cubic")
    weights = {"scales": np.array([1, 1, 2, 2], np.float32)}
    return save(path, [node], [("x", FLOAT, (1, 3, 8, 8))], [("y", FLOAT, (1, 3, 16, 16))], weights)


def endless(path: Path) -> Path:
    """A Sigmoid that feeds Mul(x, s) and one more consumer: build() never returns."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["c"], ["s"], name="sigmoid"),
        helper.make_node("Mul", ["c", "s"], ["y"], name="mul"),
        helper.make_node("Add", ["s", "one"], ["z"], name="more"),
    ]
    weights = {"w": normal(8, 8, 3, 3, 3), "one": np.float32(1)}
    outputs = [("y", FLOAT, (1, 8, 8, 8)), ("z", FLOAT, (1, 8, 8, 8))]
    return save(path, nodes, [("x", FLOAT, (1, 3, 8, 8))], outputs, weights)


def masked(path: Path) -> Path:
    """Attention whose last 4 of 16 keys are masked with -1e4, which eats the int8 range of what Softmax gets."""
    nodes = [
        helper.make_node("MatMul", ["x", w], [name], name=f"/{name}") for w, name in zip("abc", "qkv", strict=True)
    ]
    nodes += [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2], name="/kt"),
        helper.make_node("MatMul", ["q", "kt"], ["s"], name="/s"),
        helper.make_node("Add", ["s", "mask"], ["m"], name="/m"),
        helper.make_node("Softmax", ["m"], ["p"], axis=-1, name="/p"),
        helper.make_node("MatMul", ["p", "v"], ["o"], name="/o"),
        helper.make_node("MatMul", ["o", "d"], ["y"], name="/y"),
    ]
    weights: dict[str, Any] = {name: normal(i, 32, 32) * 0.3 for i, name in enumerate("abcd")}
    weights["mask"] = np.where(np.arange(16) < 12, 0, -1e4).astype(np.float32).reshape(1, 1, 1, 16)
    return save(path, nodes, [("x", FLOAT, (1, 2, 16, 32))], [("y", FLOAT, (1, 2, 16, 32))], weights)
