"""Weights and other constants as a build holds them: rounded onto its grid, in the model that the draws run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verify.core import Array
from verify.floor.grids import BF16, FLOATS, Grid, Integer, integer

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
    if isinstance(grid, Integer):  # in float32, which decides ties as the toolkit does (inputs of 8 builds, 2.5.0)
        codes = np.clip(np.rint(values.astype(np.float32) / np.float32(grid.scale)), grid.low, grid.high)
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


def as_built(graph: Any, precision: str, scales: Mapping[str, Mapping[str, Any]], points: Mapping[str, Grid]) -> None:
    """Replace the constants of `graph` (a GraphProto) by what the build makes of them, use by use.

    Weights of linear nodes are rounded as they are after what scales the result was folded into them: fp16 and bf16 to
    the format, in integer builds int8 per channel. Biases stay wide (their step is that of the input times that of the
    weight, or float32). Other constants are rounded to the format, or to the grid that the build states for them.
    """
    from onnx import numpy_helper

    held = constants(graph)
    made: dict[tuple[str, str], str] = {}
    folded, biases = _folded(graph, held, points)

    def use(node: Any, index: int, value: Array, how: str) -> None:
        name = node.input[index]
        if (name, how) not in made:
            made[name, how] = f"{name}/as_built{len(made)}"
            graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), made[name, how]))
        node.input[index] = made[name, how]

    for node in graph.node:
        for index, name in enumerate(node.input):
            value = held.get(name)
            if value is None or value.dtype != np.float32 or not value.size or name in biases:
                continue
            if node.op_type in LINEAR:
                if index != 1 or value.ndim < 2:
                    continue
                axis, gain = channel_axis(node, value), folded.get(node.output[0])
                along = np.ones(1, np.float32) if gain is None else gain[1]
                along = along.reshape([-1 if i == axis % value.ndim else 1 for i in range(value.ndim)])
                grid, whole = FLOATS.get(precision), value * along
                rounded = onto(whole, grid) if grid else per_channel(whole, axis)
                rounded = np.divide(rounded, along, out=np.zeros_like(rounded), where=along != 0)
                use(node, index, rounded, f"{axis} {gain[0] if gain else ''}")
            elif precision in FLOATS:
                use(node, index, onto(value, FLOATS[precision]), precision)
            elif (own := integer(scales.get(name))) is not None:
                rounded = onto(value, own)
                if np.abs(rounded - value).max() <= own.scale:  # else the compiler folded something into it first
                    use(node, index, rounded, "own")


def _folded(
    graph: Any, held: Mapping[str, Array], points: Mapping[str, Grid]
) -> tuple[dict[str, tuple[str, Array]], set[str]]:
    """By a linear node's output: what scales it before it is rounded, with a name, float32 of one or one a channel.

    Also the names of constants that are folded, or added before the result is rounded.
    """
    users: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    last = {item.name for item in graph.output}
    gains: dict[str, tuple[str, Array]] = {}
    taken: set[str] = set()
    for node in graph.node:
        if node.op_type not in LINEAR:
            continue
        tensor, names = node.output[0], []
        gain = np.ones(1, np.float32)
        while tensor not in points and tensor not in last and len(users.get(tensor, ())) == 1:
            after = users[tensor][0]
            constant = [name for name in after.input if name in held and held[name].dtype == np.float32]
            if after.op_type == "BatchNormalization" and len(constant) == 4:
                epsilon = next((a.f for a in after.attribute if a.name == "epsilon"), 1e-5)
                gain = gain * held[after.input[1]] / np.sqrt(held[after.input[4]] + epsilon)
            elif after.op_type in ("Mul", "Div", "Add", "Sub") and len(constant) == 1:
                value = held[constant[0]]
                if after.op_type in ("Mul", "Div"):
                    channel = 1 if node.op_type.startswith("Conv") else -1
                    if value.size > 1 and not _per_channel(value, channel, node.op_type):
                        break
                    if after.op_type == "Div" and (after.input[1] != constant[0] or not value.all()):
                        break
                    gain = gain * value.ravel() if after.op_type == "Mul" else gain / value.ravel()
            else:
                break
            names += constant
            tensor = after.output[0]
        if names:
            gains[node.output[0]] = "*".join(names), gain.astype(np.float32)
            taken.update(names)
    return gains, taken


def _per_channel(value: Array, channel: int, op: str) -> bool:
    """Whether a constant has one number a channel: (C, 1, 1) or (1, C, 1, 1) behind a Conv, (C,) or (1, C) else."""
    rank = 4 if op.startswith("Conv") else max(value.ndim, 1)
    shape = (1,) * (rank - value.ndim) + value.shape
    return int(np.prod(shape)) == shape[channel]


def constants(graph: Any) -> dict[str, Array]:
    """Initialisers and Constant nodes with a tensor value, by name."""
    from onnx import numpy_helper

    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            found[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return found
