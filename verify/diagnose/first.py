"""The first node, in the graph's order, at which a leg that fails goes wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verify.judge import Judged
    from verify.stored import Run

#: In this order: where the reference runtime itself is wrong, a NaN's birth place, a layer that is wrong by itself (or
#: that the optimised graph gets wrong, whichever comes first), a layer beyond its accumulated limit, an output.
RANKS = (
    ("parity", ("layer",)),
    ("finite", ("layer",)),
    ("layers", ("region", "rewrite")),
    ("layers", ("isolated",)),
    ("layers", ("layer",)),
)
#: What each means.
MEANING = {
    ("parity", "layer"): "the reference runtime is wrong there, as float64 says",
    ("finite", "layer"): "the first tensor that is not finite as the reference's is",
    ("layers", "region"): "the first region that does not give what the graph says, replayed on its own inputs",
    ("layers", "rewrite"): "the first layer that the toolkit's own float32 run of its optimised graph gets wrong",
    ("layers", "isolated"): "the first layer that is wrong by itself",
    ("layers", "layer"): "the first layer beyond its limit, by the error accumulated up to it",
}
#: These are in the graph's order already, case by case; of the others the earliest of all cases counts.
ORDERED = frozenset({"isolated"})
#: What speaks of all outputs together points at no node.
UNPLACED = frozenset({"structure", "coverage", "accuracy", "agreement"})
ONLY = "only outputs were compared there"


def first_divergent(judged: Sequence[Judged], run: Run) -> Mapping[str, str] | None:
    """{"node", "op", "tensor", "leg"} of the earliest divergence, or None where no leg fails on a tensor."""
    found = origin(judged, run)
    return found[0] if found else None


def origin(judged: Sequence[Judged], run: Run) -> tuple[Mapping[str, str], str] | None:
    """The place of `first_divergent` with the reason, in words, why it is that one.

    Measurements come in the graph's order within a case, so the first of a kind is the earliest; an accumulated error
    crosses its limit in one case before it does in another, and the earliest crossing of all cases counts.
    """
    failing = {
        j.measurement.where.leg
        for j in judged
        if j.state == "fail" and not j.waived and j.measurement.checker != "accuracy"
    }
    for leg, (name, how) in run.misfed.items():
        if leg in failing:
            return {"node": name, "op": "Input", "tensor": name, "leg": leg}, f"how the input is fed: {how}"
    position: dict[str, int] = {}
    for j in sorted(filter(_inner, judged), key=lambda j: j.measurement.checker != "layers"):  # it has the most tensors
        position.setdefault(j.measurement.where.tensor, len(position))
    for checker, grains in RANKS:
        kind = [
            j for grain in grains for j in judged if (j.measurement.checker, j.measurement.grain) == (checker, grain)
        ]
        found = [j for j in kind if j.measurement.where.leg in failing and _diverged(j)]
        if found and not ORDERED & set(grains):
            found.sort(key=lambda j: position.get(j.measurement.where.tensor, len(position)))
        if found:
            return _place(found[0]), f"{MEANING[checker, found[0].measurement.grain]}: {_said(found[0])}"
    for j in judged:
        if _diverged(j) and j.state == "fail" and j.measurement.checker not in UNPLACED and j.measurement.where.node:
            inside = any(k.measurement.where.leg == j.measurement.where.leg and _inner(k) for k in judged)
            meaning = "every inner tensor compared holds, this output does not" if inside else ONLY
            return _place(j), f"{meaning}: {_said(j)}"
    return None


def why_none(judged: Sequence[Judged]) -> str:
    """Why no node is named although an output is wrong, or ""."""
    for j in judged:
        leg = j.measurement.where.leg
        if j.state == "fail" and not j.waived and j.measurement.checker not in UNPLACED:
            inside = any(k.measurement.where.leg == leg and _inner(k) for k in judged)
            why = "every inner tensor compared is within its limit" if inside else ONLY
            return f"no first divergent node for {leg}: {why}"
    return ""


def _diverged(j: Judged) -> bool:
    """What the reference does not have either is no divergence."""
    return j.state in ("fail", "warn") and not j.waived and j.measurement.metric != "nonfinite_in_both"


def _place(j: Judged) -> Mapping[str, str]:
    where = j.measurement.where
    return {"node": where.node, "op": where.op, "tensor": where.tensor, "leg": where.leg}


def _inner(j: Judged) -> bool:
    return j.measurement.grain in ("layer", "rewrite")


def _said(j: Judged) -> str:
    """The number that decided, with what stands beside it."""
    from verify.reports import pair

    m = j.measurement
    value, limit = pair(m.value, j.limit)
    case = f", case {m.where.case}" if m.where.case else ""
    return f"{m.metric} = {value}, limit {limit}{case}" + (f" ({m.note})" if m.note else "")
