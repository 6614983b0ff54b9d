"""How often execution leaves the compiled NPU region."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from verify.core import Candidate, LayerRow, Measurement, RunSpec, Tier, Where, runs
from verify.trial import Trial


def departures(table: Sequence[LayerRow]) -> list[list[LayerRow]]:
    """Maximal runs of rows that are not placed on the NPU, input and output operators left out."""
    found: list[list[LayerRow]] = []
    outside = False
    for row in table:
        if row.op in ("InputOperator", "OutputOperator"):
            continue
        if row.placed != "NPU":
            if not outside:
                found.append([])
            found[-1].append(row)
        outside = row.placed != "NPU"
    return found


class Regions:
    """Counts the departures in the build's layer table; a gate only against the candidate's own budget."""

    name, tier = "regions", Tier.DEVICE

    def plan(self, candidate: Candidate) -> Collection[RunSpec]:
        return runs("simulator") if candidate.variant.builder == "rknn" else frozenset()

    def check(self, trial: Trial) -> Iterator[Measurement]:
        if trial.build is None or not trial.build.table:
            return
        found = departures(trial.build.table)
        note = "; ".join(", ".join(f"{row.op} {row.name.partition(':')[2]}" for row in run) for run in found)
        where = Where("layer table", "", "graph~simulator")
        yield Measurement(where, "departures", len(found), n=len(trial.build.table), note=note)
