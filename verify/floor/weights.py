"""Weights and other constants as a build holds them: rounded onto its grid, in the model that the draws run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verify.core import Array
from verify.floor.grids import BF16, FLOATS, Floating, Grid, Integer, integer

LINEAR = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose"})


def per_channel(weight: Array, axis: int) -> Array:
    """int8, asymmetric per index of `axis`, as rknn-toolkit2 2.5.0 does it (measured): float32, same shape."""
    wide, rest = weight.astype(np.float64), tuple(i for i in range(weight.ndim) if i != axis % weight.ndim)
    low = np.minimum(wide.min(rest, keepdims=True), 0)
    high = np.maximum(wide.max(rest, keepdims=True), 0)
    step = (high - low) / 255
    step[step == 0] = 1
    zero = np.round(-128 - low / step)
    return np.asarray((np.clip(np.round(wide / step) + zero, -128, 127) - zero) * step, np.float32)


def onto(values: Array, grid: Grid) -> Array:
    """Rounded to the nearest of a grid, float32; beyond an integer grid's ends saturated, beyond a float's infinite."""
    if isinstance(grid, Integer):
        codes = np.clip(np.round(values.astype(np.float64) / grid.scale), grid.low, grid.high)
        return np.asarray(codes * grid.scale, np.float32)
    if grid == BF16:
        bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


def channel_axis(node: Any, weight: Array) -> int:
    """The axis of a linear node's weight along which its output channels lie."""
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose":
        return 1
    if node.op_type == "Gemm" and any(a.name == "transB" and a.i for a in node.attribute):
        return 0
    return weight.ndim - 1


def as_built(
    graph: Any, precision: str, scales: Mapping[str, Mapping[str, Any]], points: Mapping[str, Grid]
) -> None:
    """Replace the constants of `graph` (a GraphProto) by what the build makes of them, use by use.

    Floats of fp16 and bf16 builds are rounded. In integer builds: weights of linear nodes per channel, their biases to
    step of the input times step of the weight, what has a scale of its own to that; the rest stays as it is.
    """
    from onnx import numpy_helper

    held = constants(graph)
    made: dict[tuple[str, str], str] = {}

    def use(node: Any, index: int, value: Array, how: str) -> None:
        name = node.input[index]
        if (name, how) not in made:
            made[name, how] = f"{name}/as_built{len(made)}"
            graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), made[name, how]))
        node.input[index] = made[name, how]

    for node in graph.node:
        for index, name in enumerate(node.input):
            value = held.get(name)
            if value is None or value.dtype != np.float32 or not value.size:
                continue
            if precision in FLOATS:
                use(node, index, onto(value, FLOATS[precision]), precision)
            elif node.op_type in LINEAR and index == 1 and value.ndim > 1:
                axis = channel_axis(node, value)
                use(node, index, per_channel(value, axis), f"channel{axis}")
            elif (grid := integer(scales.get(name))) is not None:
                use(node, index, onto(value, grid), "own")


def constants(graph: Any) -> dict[str, Array]:
    """Initialisers and Constant nodes with a tensor value, by name."""
    from onnx import numpy_helper

    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            found[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return found


__all__ = ["Floating", "as_built", "channel_axis", "constants", "onto", "per_channel"]
