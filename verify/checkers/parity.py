"""Does the exported graph compute what the source model computes, in float32?"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from verify.core import Candidate, Measurement, RunSpec, Tier, runs
from verify.graphs.info import INDEX
from verify.metrics import difference
from verify.trial import Trial


class Parity:
    """Relative L2 error and worst element over the tensor's rms, per output, case and, for several, batch slot."""

    name, tier = "parity", Tier.GRAPH

    def plan(self, candidate: Candidate) -> Collection[RunSpec]:
        return runs("source", "graph")

    def check(self, trial: Trial) -> Iterator[Measurement]:
        for leg in trial.legs(self.tier):
            for where, wanted, got in trial.pairs(leg.reference, leg.candidate):
                if wanted.dtype.kind not in "fiub" or where.op in INDEX:
                    continue
                d = difference(wanted, got)
                note = f"worst at index {d.max_index}: {d.max_abs:.4g} apart"
                if d.gain == d.gain and abs(d.gain - 1) > 0.01 and d.relative_l2 > 1e-4:  # parity's own limit
                    note += f"; the candidate is about {d.gain:.4g} times the reference"
                yield Measurement(where, "relative_l2", d.relative_l2, n=d.n, note=note)
                yield Measurement(where, "max_over_rms", d.max_over_rms, n=d.n, note=note)
