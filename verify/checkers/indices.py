"""TopK, ArgMax and the like: an index may differ only between ties."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from verify.core import Array, Candidate, Measurement, Recording, RunSpec, Tier, runs
from verify.indices import tied, value_lost
from verify.trial import Trial

#: Source and graph compute the values each for themselves: nearer than this share of their rms is a tie (honest float32
#: pairs differ by up to 8e-5 of it, see verify.limits).
ROUNDING = 1e-4


class Indices:
    """`wrong`: indices that point at another value, in the graph's tier, where both sides compute in float32.

    `value_lost`: in the device tier, where values carry rounding, by how much of the values' rms the value pointed at
    is off; infinite for what is no position, or stands twice.
    """

    name, tier = "indices", Tier.GRAPH

    def plan(self, candidate: Candidate) -> Collection[RunSpec]:
        return runs("source", "graph", "device", "simulator")

    def check(self, trial: Trial) -> Iterator[Measurement]:
        values_by_case = {r.case: r for r in trial.of("graph")}
        for tier in (Tier.GRAPH, Tier.DEVICE):
            for leg in trial.legs(tier):
                for where, wanted, got in trial.pairs(leg.reference, leg.candidate):
                    node = trial.graph.indexed(where.tensor)
                    if node is None:
                        continue
                    values = self._values(values_by_case[where.case], node.inputs[0])
                    axis = node.axis if node.axis is not None else -1
                    if wanted.ndim < values.ndim:  # keepdims=0
                        wanted, got = np.expand_dims(wanted, axis), np.expand_dims(got, axis)
                    if tier is Tier.GRAPH:
                        wrong = int(tied(wanted, got, values, axis, ROUNDING).sum())
                        reordered = int((wanted != got).sum()) - wrong
                        note = f"{reordered} differ between ties only" if reordered else ""
                        yield Measurement(where, "wrong", wrong, n=wanted.size, note=note)
                    else:
                        lost = value_lost(wanted, got, values, axis)
                        gone = int(np.isinf(lost).sum())
                        note = f"{gone} are no positions, or stand twice" if gone else ""
                        yield Measurement(where, "value_lost", float(lost.max()), n=wanted.size, note=note)

    def _values(self, recording: Recording, tensor: str) -> Array:
        for held in (recording.layers, recording.outputs):
            if tensor in held:
                return np.asarray(held[tensor])
        inputs: dict[str, Array] = recording.integrity.get("inputs", {})
        return np.asarray(inputs[tensor])
