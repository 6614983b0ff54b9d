"""A graph rewritten so that one run is one draw: every rounding that the build makes, at a phase that is fed.

Monte Carlo arithmetic (Parker, 1997) with the phase of a tensor's grid as the random number: equal values err alike, as
they do in the build, and a draw costs a few elementwise operators beyond a forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verify.core import Array
from verify.floor.grids import Floating, Grid, Integer, Split
from verify.floor.weights import LINEAR
from verify.graphs.info import LAYOUT

#: Operators whose results are values of their inputs: on a grid that these already lie on they round nothing.
SELECT = LAYOUT | {
    "Relu", "MaxPool", "GlobalMaxPool", "Slice", "Split", "Concat", "Gather", "GatherElements", "GatherND", "Expand",
    "Tile", "DepthToSpace", "SpaceToDepth", "Max", "Min", "ReduceMax", "ReduceMin", "Where", "Dropout",
}  # fmt: skip
#: A prefix that no exporter uses for its names.
OWN = "npu-verify/"


@dataclass
class Writer:
    """Appends nodes and constants to a graph under names of its own; `fed` are the scalars to feed for a draw."""

    graph: Any
    nodes: list[Any]
    fed: dict[str, str]
    opset: int = 17
    count: int = 0

    def constant(self, value: float | Array, dtype: Any = np.float32) -> str:
        from onnx import numpy_helper

        name = f"{OWN}c{self.count}"
        self.count += 1
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def scalar(self, kind: str) -> str:
        """A scalar input: "phase" in [-0.5, 0.5], or "factor" in [0.5, 1)."""
        from onnx import TensorProto, helper

        name = f"{OWN}{kind}{self.count}"
        self.count += 1
        self.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, []))
        self.fed[name] = kind
        return name

    def reduced(self, x: str, axes: Sequence[int]) -> str:
        """Sums over axes, which are an input from opset 13 on."""
        if self.opset < 13:
            return self.op("ReduceSum", x, keepdims=0, axes=list(axes))
        return self.op("ReduceSum", x, self.constant(np.array(axes), np.int64), keepdims=0)

    def op(self, kind: str, *inputs: str, into: str = "", **attributes: Any) -> str:
        from onnx import helper

        into = into or f"{OWN}t{self.count}"
        self.count += 1
        self.nodes.append(helper.make_node(kind, list(inputs), [into], **attributes))
        return into


def integer(to: Writer, x: str, grid: Integer, into: str) -> None:
    """clip(round(x / scale + phase) - phase) * scale: the build's own ends of the range are not moved.

    Adding and taking off 1.5 * 2**23 rounds to integers; beyond 2**22 everything saturates.
    """
    phase, bulk = to.scalar("phase"), to.constant(1.5 * 2.0**23)
    codes = to.op("Add", to.op("Div", x, to.constant(grid.scale)), phase)
    codes = to.op("Sub", to.op("Sub", to.op("Add", codes, bulk), bulk), phase)
    codes = to.op("Min", to.op("Max", codes, to.constant(grid.low)), to.constant(grid.high))
    to.op("Mul", codes, to.constant(grid.scale), into=into)


def floating(to: Writer, x: str, grid: Floating, into: str) -> None:
    """Round x to the format's spacing at x's own exponent, the grid shifted by a phase; overflow becomes infinite.

    The power of two below |x| comes from a product that leaves one bit (Veltkamp's splitting; 0.75 puts [1, 2) where
    that bit rounds to 1). Adding and taking off 1.5 * 2**(24 - bits) times it rounds to `bits` bits.
    """
    size = to.op("Max", to.op("Abs", x), to.constant(2.0**grid.lowest))
    size = to.op("Min", size, to.constant(2.0 ** min(grid.beyond - 1, 100)))
    size = to.op("Mul", size, to.constant(0.75 * (1 + 2.0**-22)))
    large = to.op("Mul", size, to.constant(2.0**23 + 1))
    power = to.op("Sub", large, to.op("Sub", large, size))
    shift = to.op("Mul", power, to.op("Mul", to.scalar("phase"), to.constant(2.0 ** (1 - grid.bits))))
    bulk = to.op("Mul", power, to.constant(1.5 * 2.0 ** (24 - grid.bits)))
    rounded = to.op("Sub", to.op("Add", to.op("Add", x, shift), bulk), bulk)
    if grid.beyond < 128:  # up and down again by a power of two: exact, and infinite where the format ends
        far = 128 - grid.beyond
        rounded = to.op("Mul", to.op("Mul", rounded, to.constant(2.0**far)), to.constant(2.0**-far))
    to.op("Sub", rounded, shift, into=into)


def single(to: Writer, x: str, into: str) -> None:
    """(x * factor) / factor: two float32 roundings, as many as two honest runs are apart; exact numbers stay exact."""
    factor = to.scalar("factor")
    to.op("Div", to.op("Mul", x, factor), factor, into=into)


def linear(to: Writer, node: Any) -> None:
    """A sum of products with its terms scaled by a factor: every partial sum rounds differently, none changes."""
    factor, result = to.scalar("factor"), node.output[0]
    node.input[0] = to.op("Mul", node.input[0], factor)
    if len(node.input) > 2 and node.input[2]:
        node.input[2] = to.op("Mul", node.input[2], factor)
    node.output[0] = f"{OWN}t{to.count}"
    to.count += 1
    to.nodes.append(node)
    to.op("Div", node.output[0], factor, into=result)


def several(to: Writer, x: str, split: Split) -> str:
    """What an operator in several stages adds before its own rounding: a step of the last stage's grid, or in fp16 the
    rounding of each stage's weight (1 / n for a pool), which is one factor of the whole result."""
    into = f"{OWN}t{to.count}"
    to.count += 1
    if split.grid:
        integer(to, x, Integer(split.grid.scale, -np.inf, np.inf), into)
        return into
    reach = to.op("Mul", to.scalar("phase"), to.constant(split.stages * 2.0**-10))
    return to.op("Add", x, to.op("Mul", x, reach), into=into)


def rounding(
    graph: Any, points: Mapping[str, Grid], opset: int = 17, splits: Mapping[str, Split] | None = None
) -> Writer:
    """Rewrite `graph` (a GraphProto) so that the tensors of `points` round, unless they only pass on rounded values."""
    to = Writer(graph, [], {}, opset)
    on: dict[str, Grid | None] = {}

    def put(x: str, grid: Grid, into: str) -> None:
        if isinstance(grid, Integer):
            integer(to, x, grid, into)
        else:
            floating(to, x, grid, into)

    for item in graph.input:
        on[item.name] = points.get(item.name)  # fed as rounded already: its exact value is known, so is its rounding
    for node in graph.node:
        source = [on.get(name) for name in node.input if name]
        passes = node.op_type in SELECT
        to.nodes.append(node)
        for index, name in enumerate(node.output):
            grid = points.get(name)
            if passes and source and source[0] is not None and (grid is None or _same(node, source, grid)):
                on[name] = source[0]
            elif grid is not None:
                node.output[index] = held = f"{OWN}{name}"
                put(several(to, held, splits[name]) if splits and name in splits else held, grid, name)
                on[name] = grid
    _replace(graph, to.nodes)
    return to


def _same(node: Any, source: Sequence[Grid | None], grid: Grid) -> bool:
    held = source if node.op_type in ("Concat", "Max", "Min", "Where") else source[:1]
    return all(one == grid for one in held)


def accumulating(graph: Any, floats: frozenset[str], opset: int = 17) -> Writer:
    """Rewrite `graph` so that every float32 operator rounds anew; `floats` are the tensors of that type."""
    to = Writer(graph, [], {}, opset)
    for node in graph.node:
        results = [name for name in node.output if name in floats]
        if node.op_type in SELECT or node.op_type == "Constant" or not results or node.domain not in ("", "ai.onnx"):
            to.nodes.append(node)
        elif node.op_type in LINEAR:
            linear(to, node)
        else:
            to.nodes.append(node)
            for index, name in enumerate(node.output):
                if name in floats:
                    node.output[index] = f"{OWN}{name}"
                    single(to, node.output[index], name)
    _replace(graph, to.nodes)
    return to


def measured(to: Writer, tensors: Mapping[str, tuple[tuple[int, ...], float]]) -> dict[str, list[tuple[str, int]]]:
    """Append to the graph, for each tensor (its shape, its scale), sums of squares of (value - reference) / scale.

    The reference is fed as input "npu-verify/ref/<tensor>", so that only the sums ever leave the run. Returns, for each
    tensor, the outputs (name, axis): sums over every other axis. A tensor of one element has one, axis -1.
    """
    from onnx import TensorProto, helper

    found: dict[str, list[tuple[str, int]]] = {}
    to.nodes.clear()
    del to.graph.output[:]
    for tensor, (shape, scale) in tensors.items():
        reference = f"{OWN}ref/{tensor}"
        to.graph.input.append(helper.make_tensor_value_info(reference, TensorProto.FLOAT, list(shape)))
        apart = to.op("Mul", to.op("Sub", tensor, reference), to.constant(1 / scale))
        square, sums = to.op("Mul", apart, apart), []
        axes = grained(shape)
        for axis in axes or (-1,):
            rest = [i for i in range(len(shape)) if i != axis]
            name = to.reduced(square, rest) if rest else square
            to.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
            sums.append((name, axis))
        found[tensor] = sums
    to.graph.node.extend(to.nodes)
    return found


#: Axes longer than this have no grains of their own (house choice: image sides and vocabularies have, flat data not).
LONGEST = 8192


def grained(shape: Sequence[int]) -> tuple[int, ...]:
    """The axes whose indices are grains."""
    return tuple(axis for axis, extent in enumerate(shape) if 1 < extent <= LONGEST)


def _replace(graph: Any, nodes: Sequence[Any]) -> None:
    held = [type(node)() for node in nodes]
    for new, node in zip(held, nodes, strict=True):
        new.CopyFrom(node)
    del graph.node[:]
    graph.node.extend(held)
