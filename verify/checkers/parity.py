"""Does the exported graph compute what the source model computes, in float32?"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from verify.core import Candidate, Measurement, NotComparable, RunSpec, Tier, runs
from verify.metrics import difference, factor, over_peak, unequal
from verify.trial import Trial


class Parity:
    """Per output and case: relative L2 error, worst element over the tensor's rms; what is no float must be equal."""

    name, tier = "parity", Tier.GRAPH

    def plan(self, candidate: Candidate) -> Collection[RunSpec]:
        return runs("source", "graph")

    def check(self, trial: Trial) -> Iterator[Measurement]:
        for leg in trial.legs(self.tier):
            for where, wanted, got in trial.pairs(leg.reference, leg.candidate):
                if trial.graph.indexed(where.tensor):
                    continue
                if wanted.dtype.kind in "iubSUO":
                    count, first = unequal(wanted, got)
                    note = f"first at index {first}: {got[first]} instead of {wanted[first]}" if count else ""
                    yield Measurement(where, "unequal", count, n=wanted.size, note=note)
                    continue
                try:
                    d = difference(wanted, got)
                except NotComparable as error:
                    raise NotComparable(error.what, f"{leg.name}, output {where.tensor}", error.do) from None
                note = f"worst at index {d.max_index}: {d.max_abs:.4g} apart"
                gain = factor(d)
                if gain is not None:
                    note += f"; the candidate is about {gain:.4g} times the reference"
                yield Measurement(where, "relative_l2", d.relative_l2, n=d.n, note=note)
                yield Measurement(where, "max_over_peak", over_peak(d, wanted), n=d.n, note=note)
