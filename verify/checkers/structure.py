"""Names, order, shape and dtype of the outputs: no broadcasting, no silent reorder."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from verify.core import Candidate, Measurement, RunSpec, Tier, Where, runs
from verify.structure import mismatches
from verify.trial import Trial


class Structure:
    """Counts what differs in names, order, shapes and dtypes, in every leg that was run; a permutation is named."""

    name, tier = "structure", Tier.GRAPH

    def plan(self, candidate: Candidate) -> Collection[RunSpec]:
        return runs("source", "graph", "simulator", "device")

    def check(self, trial: Trial) -> Iterator[Measurement]:
        for tier in (Tier.GRAPH, Tier.DEVICE):
            for leg in trial.legs(tier):
                got_by_case = {r.case: r for r in trial.of(leg.candidate)}
                for wanted in trial.of(leg.reference):
                    got = got_by_case.get(wanted.case)
                    found = (
                        [f"case {wanted.case} was not run by {leg.candidate}"]
                        if got is None
                        else mismatches(wanted.outputs, got.outputs)
                    )
                    where = Where("outputs", wanted.case, leg.name)
                    yield Measurement(where, "mismatches", len(found), n=len(wanted.outputs), note="; ".join(found))
