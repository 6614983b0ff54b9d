"""Where a compiled build rounds, and onto which grid: what its dumps lie on, its scales and its precision say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verify.core import Array, Tensors
from verify.graphs.align import Match
from verify.graphs.info import GraphInfo, Node

#: A dump whose codes are further than this from integers is not rounded there (rknn-toolkit2 2.5.0: fused layers dump
#: what they have before the rounding, everything else is within 1e-4).
ON_GRID = 1e-3
#: How many nodes lie at most between an attention's two products (scale, mask, softmax, layouts; house choice).
NEAR = 8


@dataclass(frozen=True)
class Floating:
    """A binary format: bits of its significand (the hidden one counts), exponents of its smallest normal number and of
    the smallest power of two that it cannot hold."""

    bits: int
    lowest: int
    beyond: int


@dataclass(frozen=True)
class Integer:
    """Codes from `low` to `high`, in the tensor's units times 1 / scale, zero point taken off."""

    scale: float
    low: float
    high: float


Grid = Floating | Integer


@dataclass(frozen=True)
class Split:
    """An operator that the compiler made several of: `stages` of them, each rounds; `grid` is that of the last one
    before the result, where the build states it."""

    stages: int
    grid: Integer | None


FP16 = Floating(11, -14, 16)
BF16 = Floating(8, -126, 128)
#: Integer formats that a build's scales name, with their codes.
CODES = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "int32": (-(2.0**31), 2.0**31 - 1)}
FLOATS = {"fp16": FP16, "bf16": BF16}
#: Precisions whose rounding of activations and of weights is modelled; for the others no floor is claimed.
MODELLED = frozenset({"fp32", "fp16", "bf16", "w8a8"})


def integer(held: Mapping[str, Any] | None) -> Integer | None:
    """The grid that a build's entry of scale, zero point and dtype describes."""
    codes, scale = CODES.get(str(held.get("dtype", ""))) if held else None, float(held.get("scale") or 0) if held else 0
    if not held or codes is None or not scale > 0:
        return None
    zero = float(held.get("zero_point") or 0)
    return Integer(scale, codes[0] - zero, codes[1] - zero)


def on_grid(values: Array, grid: Grid) -> bool:
    """Whether every finite value lies on the grid."""
    values = np.asarray(values, np.float32)
    values = values[np.isfinite(values)]
    if isinstance(grid, Integer):
        codes = values / np.float32(grid.scale)
        return bool(np.all(np.abs(codes - np.round(codes)) <= ON_GRID))
    if grid == FP16:
        return bool(np.array_equal(values, values.astype(np.float16).astype(np.float32)))
    return not np.any(values.view(np.uint32) & np.uint32((1 << (24 - grid.bits)) - 1))


def points(
    graph: GraphInfo,
    precision: str,
    scales: Mapping[str, Mapping[str, Any]],
    alignment: Mapping[str, Match],
    dumps: Sequence[Tensors],
) -> dict[str, Grid]:
    """The grid of every reference tensor that the build rounds, inputs among them; others do not round.

    `dumps` are the compiled layers' values by layer, case by case: a layer rounds if they lie on its grid.
    """
    found: dict[str, Grid] = {}
    for layer, match in alignment.items():
        grid: Grid = integer(scales.get(layer)) or FLOATS.get(precision, FP16)
        held = [dump[layer] for dump in dumps if layer in dump]
        if match.tensor not in found and held and all(on_grid(value, grid) for value in held):
            found[match.tensor] = grid
    for name in graph.inputs:
        stated = integer(scales.get(f"{name}_int8")) or integer(scales.get(name))
        if stated:
            found[name] = stated
        # fp16 builds: a first Conv takes the input as float32, what moves it about rounds it (fixtures, 2.5.0)
        elif precision in FLOATS and all(_moved(dump, name, FLOATS[precision]) for dump in dumps):
            found[name] = FLOATS[precision]
    found.update(_attention(graph, scales))
    return found


def _moved(dump: Tensors, name: str, grid: Grid) -> bool:
    """Whether a layer that only moves the input `name` about, or the input's own dump, lies on the grid."""
    size = np.asarray(dump[name]).size if name in dump else 0
    layers = [layer for layer in dump if layer.startswith((name, f"{name}_")) and np.asarray(dump[layer]).size == size]
    return any(on_grid(dump[layer], grid) for layer in layers)


def splits(graph: GraphInfo, scales: Mapping[str, Mapping[str, Any]], dumps: Sequence[Tensors]) -> dict[str, Split]:
    """The tensors whose operator the compiler split, as its dumps' names tell: pools "_2conv0", Convs "_conv"."""
    found: dict[str, Split] = {}
    layers = list(dumps[0]) if dumps else []
    for node in graph.nodes:
        if node.op in ("GlobalAveragePool", "AveragePool", "ReduceMean"):
            names = [n for key in (node.name, node.outputs[0]) for n in layers if n.startswith(f"{key}_2conv")]
            if names:
                found[node.outputs[0]] = Split(len(set(names)) + 1, integer(scales.get(max(names))))
        elif node.op == "Conv" and (grid := integer(scales.get(f"{node.inputs[0]}_conv"))):
            found[node.outputs[0]] = Split(2, grid)
    return found


def _attention(graph: GraphInfo, scales: Mapping[str, Mapping[str, Any]]) -> dict[str, Grid]:
    """Grids inside attention that the compiler fused: stated under the name of one of its products."""
    found: dict[str, Grid] = {}
    consumers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            consumers.setdefault(name, []).append(node)
    for node in graph.nodes:
        if node.op != "Softmax":
            continue
        first, last = _upwards(graph, node), _downwards(consumers, node)
        names = {text for product in (first, last) if product for text in (product.name, product.outputs[0])}
        places = {"matmul": first.outputs[0] if first else "", "add": node.inputs[0], "softmax": node.outputs[0]}
        for kind, tensor in places.items():
            for name in names:
                grid = integer(scales.get(f"{name}_2sdpa_q_{kind}"))
                if grid and tensor:
                    found[tensor] = grid
    return found


def _upwards(graph: GraphInfo, node: Node) -> Node | None:
    held: Node | None = node
    for _ in range(NEAR):
        held = graph.producer.get(held.inputs[0]) if held and held.inputs else None
        if held is None or held.op == "MatMul":
            return held
    return None


def _downwards(consumers: Mapping[str, Sequence[Node]], node: Node) -> Node | None:
    held = node
    for _ in range(NEAR):
        after = consumers.get(held.outputs[0], ())
        if len(after) != 1:
            return None
        held = after[0]
        if held.op == "MatMul":
            return held
    return None
