"""Which roundings of a build are known: the grids of its activations, of its constants, and inside fused layers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from verify.core import Array, Build, Tensors
from verify.floor.formats import INTEGER, Grid, by_channel, grid, to_float
from verify.graphs.align import Match
from verify.graphs.info import GraphInfo
from verify.graphs.regions import LINEAR, Cuttable

#: A fused layer's inner scales are named after the node it ends with: "/MatMul_1_2sdpa_q_softmax".
FUSED = re.compile(r"_2\w+_q_([a-z]+)$")
#: The range that a build states for an inner tensor and the one that the reference shows agree within this factor; the
#: scaled and the unscaled product of an attention differ by the root of its head's width, 2.8 at least (house choice).
FITS = 2.0
#: Of a constant the build states the range itself: a factor further from 1 than this is another constant.
SAME = 1e-3


@dataclass(frozen=True)
class Rounding:
    """`precision` of the variant, `grids` by reference tensor or constant, `steps` of what each tensor is rounded to.

    An integer build computes in binary16 what it does not quantise.
    """

    precision: str
    grids: Mapping[str, Grid] = field(default_factory=dict)

    @property
    def integer(self) -> bool:
        return self.precision in INTEGER

    @property
    def unit(self) -> str:
        """The float format that is left where nothing is quantised."""
        return "fp16" if self.integer else self.precision

    def constant(
        self, name: str, value: Array, node: Any, index: int, bias: bool = False
    ) -> tuple[Array, Array | None]:
        """A constant as the build holds it, as float32, and what may be added to it where it lies on a tie.

        `bias` says that it is added to a linear node's sums. The vendor's builds keep those in binary32: rounded to
        binary16, 7 % of the elements of an honest float16 layer are off, unrounded none (rknn-toolkit2 2.5.0).
        """
        import numpy as np

        if value.dtype.kind != "f":
            return value, None
        if bias or (node.op_type in LINEAR and index == 2):  # added in binary32, or in the sums' own 32-bit steps
            return np.asarray(value, np.float32), None
        if not self.integer:
            return to_float(value, self.unit), None
        if node.op_type in LINEAR and index == 1 and value.ndim > 1 and self.precision == "w8a8":
            held, tied = by_channel(value, channel_axis(node, value))
            return held.astype(np.float32), tied.astype(np.float32) if tied.any() else None
        if name in self.grids and value.ndim:  # a LayerNorm's weights, a constant operand
            return self.grids[name].round(value).astype(np.float32), None
        return np.asarray(value, np.float32), None


def channel_axis(node: Any, weight: Array) -> int:
    """The axis of a linear node's weight that its output channels lie on."""
    flags = {a.name: a.i for a in node.attribute}
    if node.op_type == "MatMul":
        return weight.ndim - 1
    if node.op_type == "Gemm":
        return 0 if flags.get("transB") else 1
    return 0 if node.op_type == "Conv" else 1


def rounding(
    precision: str,
    build: Build,
    alignment: Mapping[str, Match],
    graph: GraphInfo,
    cut: Cuttable,
    references: Sequence[Tensors],
) -> Rounding:
    """What is known of a build's roundings; `references`, a case each, show the ranges that tell inner scales apart."""
    grids: dict[str, Grid] = {}
    if precision not in INTEGER:
        return Rounding(precision)
    nodes = {node.name: node for node in graph.nodes}
    for layer, held in build.scales.items():
        found = grid(held)
        if found is None:
            continue
        if layer in alignment:
            grids.setdefault(alignment[layer].tensor, found)
            continue
        fused = FUSED.search(layer)
        if fused and layer[: fused.start()] in nodes:
            tensor, factor = _inner(nodes[layer[: fused.start()]], fused[1], graph, cut, references, held)
            if tensor:
                grids[tensor] = replace(found, step=found.step * factor)
        elif layer in cut.constants and _apart([cut.constants[layer]], held) < SAME:
            grids[layer] = found  # a constant of the graph, unless the compiler made another one of it (a sixth of it)
    return Rounding(precision, grids)


def _inner(
    last: Any, op: str, graph: GraphInfo, cut: Cuttable, references: Sequence[Tensors], held: Mapping[str, Any]
) -> tuple[str, float]:
    """The tensor inside a fused layer that a scale "_q_OP" belongs to: an OP's result of the stated range, or "".

    The factor is what the tensor is of what the scale was made for: a compiler multiplies by a constant after the
    product although the graph does so before it.
    """
    todo, seen = [i for i in last.inputs if i in graph.producer], set()
    fits: list[tuple[float, str, float]] = []
    for _ in range(8):  # an attention's longest way from its last product to its first: scale, mask, softmax
        behind: list[str] = []
        for name in todo:
            node = graph.producer.get(name)
            if node is None or name in seen:
                continue
            seen.add(name)
            kind = node.op.lower()
            scaled = op == "matmul" and node.op in ("Div", "Mul")
            if kind == op and op != "matmul":
                return name, 1.0
            if kind == op or scaled:
                values = [r[name] for r in references if name in r]
                for factor in (1.0, *(_scaled(graph, cut, node) if kind == op else ())):
                    fits.append((_apart([value / factor for value in values], held), name, factor))
            if kind != op:
                behind += node.inputs
        todo = behind
    best = min(fits, default=(math.inf, "", 1.0))
    return best[1:] if best[0] <= math.log(FITS) else ("", 1.0)


def _scaled(graph: GraphInfo, cut: Cuttable, node: Any) -> list[float]:
    """The constants that an operand of `node` was multiplied by."""
    before = [graph.producer[name] for name in node.inputs if name in graph.producer]
    numbers = [cut.constants[n] for p in before if p.op == "Mul" for n in p.inputs if n in cut.constants]
    return [float(n.reshape(())) for n in numbers if n.size == 1 and n.dtype.kind == "f" and float(n.reshape(())) > 0]


def _apart(values: Sequence[Array], held: Mapping[str, Any]) -> float:
    """How far, as a logarithm, the larger end of a tensor's range in all cases is from what the build saw."""
    import numpy as np

    stated = max(abs(float(held.get("ori_min", held["min"]))), abs(float(held.get("ori_max", held["max"]))))
    seen = max((float(np.abs(value).max(initial=0.0)) for value in values), default=0.0)
    return abs(math.log(seen / stated)) if seen > 0 and stated > 0 and math.isfinite(seen) else math.inf
