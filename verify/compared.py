"""What `compare` found, as data, JSON and a short table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA = "npu-verify/compare/1"
WITHIN, DIFFERS, NOT_COMPARABLE = "within", "differs", "not comparable"
METRICS = ("relative_l2", "max_over_peak", "max_abs")  # the table's columns
FEW = 8  # names in a line
SHOWN = 40  # rows of a table that a person still reads; beyond that, what is not within, and the worst that is


@dataclass(frozen=True)
class Row:
    """One tensor. `metrics` are numbers by name; `index`, `wanted` and `got` the worst element; `notes` for reading."""

    name: str
    outcome: str
    shape: tuple[int, ...] = ()
    dtypes: tuple[str, str] = ("", "")
    metrics: Mapping[str, float] = field(default_factory=dict)
    index: tuple[int, ...] | None = None
    wanted: Any = None
    got: Any = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """`mismatches` are structural: names, order, shape, dtype. `limits` maps a metric to its value and origin."""

    reference: str
    candidate: str
    precision: str
    rows: tuple[Row, ...]
    mismatches: tuple[str, ...] = ()
    limits: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()  # tensors that were not compared, and why

    @property
    def outcome(self) -> str:
        """`not comparable` if anything was, or if nothing was compared; `differs` if any tensor does; else `within`."""
        outcomes = {row.outcome for row in self.rows}
        if self.mismatches or not self.rows or NOT_COMPARABLE in outcomes:
            return NOT_COMPARABLE
        return WITHIN if outcomes == {WITHIN} else DIFFERS

    @property
    def within(self) -> bool:
        return self.outcome == WITHIN

    def to_json(self) -> str:
        """The document of schema npu-verify/compare/1, on one line; NaN and infinities are written as strings."""
        from verify.verdict import _plain

        limits = {name: {"value": value, "origin": origin} for name, (value, origin) in self.limits.items()}
        document = {"schema": SCHEMA, "outcome": self.outcome, **asdict(self), "limits": limits}
        return json.dumps(_plain(document), allow_nan=False)

    def __str__(self) -> str:
        told = " ".join(self.mismatches)
        listed = [r for r in self.rows if not (r.outcome == NOT_COMPARABLE and f"output {r.name}:" in told)]
        within = [r for r in listed if r.outcome == WITHIN]
        worst = max(within, key=lambda r: r.metrics.get("relative_l2", 0.0), default=None)
        shown = [r for r in listed if r.outcome != WITHIN or len(listed) <= SHOWN or r is worst]
        limits = ", ".join(f"{name} <= {value:g}" for name, (value, _) in self.limits.items())
        lines = [f"reference {self.reference}, candidate {self.candidate}, {self.precision}: {limits}"]
        lines += [f"  {text}" for text in self.mismatches]
        if shown:
            lines += _table(shown)
        if len(shown) < len(listed):
            lines.append(f"  and {len(listed) - len(shown)} more within their limits")
        lines += [f"  {text}" for text in self.notes]
        if self.uncovered:
            many = f", and {len(self.uncovered) - FEW} more (--json lists them)" if len(self.uncovered) > FEW else ""
            lines.append(f"  {len(self.uncovered)} not compared: {', '.join(self.uncovered[:FEW])}{many}")
        return "\n".join([*lines, self._last()])

    def _last(self) -> str:
        count = {kind: sum(r.outcome == kind for r in self.rows) for kind in (WITHIN, DIFFERS)}
        rest = len(self.rows) - sum(count.values())
        what = f"{count[DIFFERS]} of {len(self.rows)} tensors differ, {count[WITHIN]} within"
        what += f", {rest} not comparable" if rest else ""
        if self.outcome != NOT_COMPARABLE:
            return f"{self.outcome}: {what}"
        if not self.rows:
            what = "nothing was compared"
        many = f"; {len(self.mismatches)} mismatches, the first: " if len(self.mismatches) > 1 else "; "
        return f"{NOT_COMPARABLE}: {what}" + (many + self.mismatches[0] if self.mismatches else "")


def _table(rows: list[Row]) -> list[str]:
    head = ("tensor", "shape", "relative_l2", "max_over_peak", "max_abs", "worst at", "wanted", "got", "")
    cells: list[tuple[str, ...]] = [head]
    for row in rows:
        numbers = [_number(row.metrics.get(name)) for name in METRICS]
        place = "" if row.index is None else str(row.index).replace(" ", "")
        shape = "x".join(map(str, row.shape)) or "scalar"
        cells.append((row.name, shape, *numbers, place, _number(row.wanted), _number(row.got), row.outcome))
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    out = []
    for i, line in enumerate(cells):
        padded = (
            cell.ljust(w) if j < 2 else cell.rjust(w) for j, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        out.append("  " + "  ".join(padded).rstrip())
        out += [f"      {note}" for note in (rows[i - 1].notes if i else ())]
    return out


def _number(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
