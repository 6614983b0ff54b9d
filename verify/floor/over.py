"""A candidate's errors over the floor, as measurements that carry their null."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace

from verify.core import Array, Measurement, Where
from verify.floor import draws, null
from verify.floor.kept import Floor
from verify.floor.tail import ALPHA, HONEST, limit


def over(
    floor: Floor, precision: str, where: Where, wanted: Array, got: Array, grain: str, batch: int | None, note: str = ""
) -> Iterator[Measurement]:
    """`over_floor` of a whole tensor, and of the worst index along each of its axes ("channel 4", "row 7", "slot 1").

    Nothing for a tensor or case that has no floor. `batch` is the axis of the batch, if there is one.
    """
    sample = floor.drawn.samples.get((where.case, where.tensor))
    if sample is None or not floor.nulls:
        return
    allowance, n = HONEST[precision]
    for ratio in null.ratios(sample, draws.errors(wanted, got, sample.scale)):
        held = floor.nulls.get(null.kind_of(ratio.axis))
        if held is None:
            continue
        carried = {**asdict(held), "spread": ratio.spread, "allowance": allowance, "n": n, "alpha": ALPHA}
        part = "" if ratio.axis < 0 else f"{axis_name(ratio.axis, wanted.ndim, batch)} {ratio.index}"
        bound = limit(carried)
        said = f"{note}honest builds stay below {bound:.3g} at {ALPHA:g} false alarms" if bound else note
        place = replace(where, part=part)
        size = wanted.size if ratio.axis < 0 else wanted.size // wanted.shape[ratio.axis]
        yield Measurement(place, "over_floor", ratio.value, "", grain, size, note=said, null=carried)


def axis_name(axis: int, rank: int, batch: int | None) -> str:
    """What an axis is usually called: slot, channel (the second of images, else the last), row."""
    if axis == batch:
        return "slot"
    channel = 1 if rank >= 4 else rank - 1
    return "channel" if axis == channel else f"row (axis {axis})"


def without(floor: Floor, tensors: list[str], cases: list[str]) -> dict[str, str]:
    """Of these tensors those that no floor was drawn for in any of these cases, with the reason."""
    said = floor.reason or "not among what was drawn"
    return {
        tensor: floor.drawn.absent.get(tensor, said)
        for tensor in tensors
        if not any((case, tensor) in floor.drawn.samples for case in cases)
    }
