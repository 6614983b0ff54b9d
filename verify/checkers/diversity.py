"""Outputs that say nothing: constant ones, dead blocks, cases that cannot tell right from wrong."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from verify.core import Array, Candidate, Measurement, RunSpec, Tier, Where, runs
from verify.trial import Trial


def varies(values: Array) -> bool:
    return bool(values.size) and bool((values != values.flat[0]).any())


class Diversity:
    """Counts blocks that are constant although the reference varies there, and outputs equal in every case.

    A block is what one operand of a Concat became in an output, or the whole output.
    """

    name, tier = "diversity", Tier.DEVICE

    def plan(self, candidate: Candidate) -> Collection[RunSpec]:
        return runs("source", "graph", "simulator", "device")

    def check(self, trial: Trial) -> Iterator[Measurement]:
        for tier in (Tier.GRAPH, Tier.DEVICE):
            for leg in trial.legs(tier):
                yield from self._leg(trial, leg.reference, leg.candidate)

    def _leg(self, trial: Trial, reference: str, candidate: str) -> Iterator[Measurement]:
        seen: dict[str, list[Array]] = {}
        for where, wanted, got in trial.pairs(reference, candidate):
            if wanted.dtype.kind not in "fiub":
                continue
            seen.setdefault(where.tensor, []).append(wanted)
            dead = []
            blocks = trial.graph.blocks(where.tensor)
            if blocks:
                axis, pieces = blocks
                cuts = np.cumsum([extent for _, extent in pieces])[:-1]
                for (name, _), a, b in zip(
                    pieces, np.split(wanted, cuts, axis), np.split(got, cuts, axis), strict=True
                ):
                    if varies(a) and not varies(b):
                        dead.append(f"the block from {name} is {float(b.flat[0]):.6g} everywhere")
            elif varies(wanted) and not varies(got):
                dead.append(f"it is {float(got.flat[0]):.6g} everywhere")
            yield Measurement(where, "dead_blocks", len(dead), "", "block", got.size, note="; ".join(dead))
        for name, values in seen.items():
            same = all(np.array_equal(values[0], other) for other in values[1:])
            blind = not varies(values[0]) if len(values) == 1 else same
            note = "the cases give this output one value only: it cannot tell right from wrong" if blind else ""
            where = Where(name, "", f"{reference}~{candidate}")
            yield Measurement(where, "blind_outputs", int(blind), n=len(values), note=note)
