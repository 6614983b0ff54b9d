"""The first node, in the graph's order, at which a leg that fails goes wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verify.judge import Judged
    from verify.stored import Run

#: In this order: where the reference runtime itself is wrong, a NaN's birth place, a layer that is wrong by itself, a
#: layer beyond its accumulated limit, an output.
RANKS = (("parity", "layer"), ("finite", "layer"), ("layers", "isolated"), ("layers", "layer"))
#: What speaks of all outputs together points at no node.
UNPLACED = frozenset({"structure", "coverage", "accuracy", "agreement"})


def first_divergent(judged: Sequence[Judged], run: Run) -> Mapping[str, str] | None:
    """{"node", "op", "tensor", "leg"} of the earliest divergence, or None where no leg fails on a tensor.

    Measurements come in the graph's order within a case, so the first of a kind is the earliest.
    """
    failing = {
        j.measurement.where.leg
        for j in judged
        if j.state == "fail" and not j.waived and j.measurement.checker != "accuracy"
    }
    for leg, (name, _) in run.misfed.items():
        if leg in failing:
            return {"node": name, "op": "Input", "tensor": name, "leg": leg}
    for checker, grain in RANKS:
        for j in judged:
            m = j.measurement
            if m.checker == checker and m.grain == grain and m.where.leg in failing and _diverged(j):
                return _place(j)
    for j in judged:
        if _diverged(j) and j.state == "fail" and j.measurement.checker not in UNPLACED and j.measurement.where.node:
            return _place(j)
    return None


def why_none(judged: Sequence[Judged]) -> str:
    """Why no node is named although an output is wrong, or ""."""
    for j in judged:
        leg = j.measurement.where.leg
        if j.state == "fail" and not j.waived and j.measurement.checker not in UNPLACED:
            inside = any(k.measurement.where.leg == leg and k.measurement.grain == "layer" for k in judged)
            why = "every inner tensor compared is within its limit" if inside else "only outputs were compared there"
            return f"no first divergent node for {leg}: {why}"
    return ""


def _diverged(j: Judged) -> bool:
    return j.state in ("fail", "warn") and not j.waived


def _place(j: Judged) -> Mapping[str, str]:
    where = j.measurement.where
    return {"node": where.node, "op": where.op, "tensor": where.tensor, "leg": where.leg}
