"""Outputs that say nothing: constant ones, dead blocks, cases that cannot tell right from wrong."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from verify.bundle import exported
from verify.core import Array, Candidate, Measurement, RunSpec, Tier, Where, runs
from verify.frozen import Frozen
from verify.trial import Trial

#: The leg in which an exporter's mistakes show.
EXPORT = "source~graph"


def varies(values: Array) -> bool:
    return bool(values.size) and bool((values != values.flat[0]).any())


def _said(values: Array) -> str:
    one = values.flat[0]
    return f"{float(one):.6g}" if values.dtype.kind in "fiub" else repr(one)


def _one_extent(trial: Trial) -> Iterator[str]:
    """The inputs' dynamic axes that nothing fixes and of which all cases have the same extent."""
    fed = [recording.integrity.get("inputs", {}) for recording in trial.recordings.get("graph", ())]
    for name in trial.graph.inputs:
        spec = trial.candidate.inputs.get(name)
        if spec is not None and spec.shape is not None:
            continue
        shapes = [inputs[name].shape for inputs in fed if name in inputs]
        for axis, extent in enumerate(trial.graph.shapes.get(name, ())):
            if extent is None and len({shape[axis] for shape in shapes}) == 1:
                yield f"{name}, axis {axis} ({shapes[0][axis]})"


class Diversity:
    """Counts blocks that are constant although the reference varies there, and outputs equal in every case.

    A block is what one operand of a Concat became in an output, or the whole output. `frozen_branches` counts the
    places where the exporter took a value of the data out of its trace and no case goes another way; `baked_shapes`
    the dynamic axes of which the cases show one extent only, where it took what follows from shapes. `blind_cases` is 1
    where no output differs between cases: undecided, as it may do no harm.
    """

    name, tier = "diversity", Tier.DEVICE

    def plan(self, candidate: Candidate) -> Collection[RunSpec]:
        return runs("source", "graph", "simulator", "device")

    def check(self, trial: Trial) -> Iterator[Measurement]:
        for tier in (Tier.GRAPH, Tier.DEVICE):
            for leg in trial.legs(tier):
                yield from self._leg(trial, leg.reference, leg.candidate)
        if any(leg.name == EXPORT for leg in trial.legs(Tier.GRAPH)):
            yield from self._export(trial)

    def _export(self, trial: Trial) -> Iterator[Measurement]:
        """What is not decided by the cases has an interval that begins at 0: it may do no harm."""
        yield from exported(trial.candidate.folder)
        found: tuple[Frozen, ...] = trial.facts.get("frozen", ())
        where, data = Where("exported graph", "", EXPORT), [f for f in found if f.site.data]
        if data:
            alone = [str(f.site) for f in data if not f.covered]
            what = "the exporter froze a branch" if any(f.site.branch for f in data) else "the exporter froze a value"
            note = f"{what}, and every case goes the same way there: {'; '.join(alone[:3])}" if alone else ""
            count = float(len(alone))
            yield Measurement(where, "frozen_branches", count, "", "export", len(data), (0.0, count), note)
        if len(data) < len(found):
            axes = list(_one_extent(trial))
            note = (
                f"the exporter baked a shape, and every case has the same extent of {', '.join(axes)}" if axes else ""
            )
            count = float(len(axes))
            yield Measurement(where, "baked_shapes", count, "", "export", len(found) - len(data), (0.0, count), note)

    def _leg(self, trial: Trial, reference: str, candidate: str) -> Iterator[Measurement]:
        seen: dict[str, list[Array]] = {}
        for where, wanted, got in trial.pairs(reference, candidate):
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
                        dead.append(f"the block from {name} is {_said(b)} everywhere")
            elif varies(wanted) and not varies(got):
                dead.append(f"it is {_said(got)} everywhere")
            yield Measurement(where, "dead_blocks", len(dead), "", "block", got.size, note="; ".join(dead))
        blinds = []
        for name, values in seen.items():
            same = all(np.array_equal(values[0], other) for other in values[1:])
            blind = not varies(values[0]) if len(values) == 1 else same
            blinds.append(blind)
            note = "the cases give this output one value only: it cannot tell right from wrong" if blind else ""
            where = Where(name, "", f"{reference}~{candidate}")
            yield Measurement(where, "blind_outputs", int(blind), n=len(values), note=note)
        if trial.graph.inputs and blinds:  # without inputs there is nothing that cases could vary
            count = float(all(blinds))
            note = "every case gives every output the same values: a wrong model would give them too" if count else ""
            where = Where("outputs", "", f"{reference}~{candidate}")
            yield Measurement(where, "blind_cases", count, "", "export", len(blinds), (0.0, count), note)
