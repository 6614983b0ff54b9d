"""What was measured of each inner tensor, in one row each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verify.judge import Judged

INNER = ("layer", "isolated", "region", "rewrite")
METRICS = {
    ("parity", "relative_l2"): 0,
    ("layers", "relative_l2"): 0,
    ("layers", "isolated_l2"): 1,
    ("layers", "isolated_odds"): 2,
    ("layers", "isolated_worst"): 2,
    ("layers", "isolated_gain"): 2,
}


@dataclass(frozen=True)
class Figure:
    """The worst of one number over cases and compiled layers; `state` as in `Judged`, or "waived"."""

    value: float
    limit: float
    state: str
    case: str
    note: str

    @property
    def beyond(self) -> bool:
        return self.state in ("fail", "warn", "waived")


@dataclass(frozen=True)
class Row:
    """One tensor: relative L2 error accumulated up to it, that of its layer alone, how unlikely its region is once
    every known rounding is replayed (or else its worst number over its limit), elements not finite unlike the
    reference's. `mark` is "first" (divergent), "beyond" (a limit that denies), "warn", "waived" or ""."""

    leg: str
    tensor: str
    node: str
    op: str
    accumulated: Figure | None
    isolated: Figure | None
    replay: Figure | None
    nonfinite: int
    mark: str

    @property
    def alone(self) -> bool:
        """Whether this layer is wrong by itself, whatever came before it."""
        return any(figure is not None and figure.beyond for figure in (self.isolated, self.replay))


def rows(judged: Sequence[Judged], leg: str, tensor: str) -> tuple[Row, ...]:
    """A row for each inner tensor with a number, in the graph's order; `tensor` of `leg` is the first divergent one.

    Measurements come in that order within a case, those of `finite` for every tensor.
    """
    held: dict[tuple[str, str], list[Judged]] = {}
    for j in judged:
        if j.measurement.grain in INNER:
            held.setdefault((j.measurement.where.leg, j.measurement.where.tensor), []).append(j)
    made = (_row(group, place == (leg, tensor)) for place, group in held.items())
    return tuple(row for row in made if row.accumulated or row.isolated or row.replay or row.nonfinite)


def _row(group: Sequence[Judged], first: bool) -> Row:
    kinds: list[list[Judged]] = [[], [], []]
    for j in group:
        kind = METRICS.get((j.measurement.checker, j.measurement.metric))
        if kind is not None:
            kinds[kind].append(j)
    bad = [j for j in group if j.measurement.metric == "nonfinite" and j.measurement.value]
    where, states = group[0].measurement.where, {_state(j) for j in group}
    marks = {"fail": "beyond", "warn": "warn", "waived": "waived"}
    mark = "first" if first else next((mark for state, mark in marks.items() if state in states), "")
    whole, alone, replay = (_figure(max(kind, key=_over)) if kind else None for kind in kinds)
    worst = int(max((j.measurement.value for j in bad), default=0))
    return Row(where.leg, where.tensor, where.node, where.op, whole, alone, replay, worst, mark)


def _figure(j: Judged) -> Figure:
    m = j.measurement
    return Figure(m.value, j.limit, _state(j), m.where.case, m.note)


def _state(j: Judged) -> str:
    return "waived" if j.waived else j.state


def _over(j: Judged) -> float:
    """The value over its limit: what ranks numbers of different kinds."""
    value = j.measurement.value
    return float("inf") if value != value else value / j.limit if j.limit > 0 else value
