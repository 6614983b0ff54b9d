"""The regions' errors as measurements: how unlikely, how large, and what could not be replayed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from verify.core import Measurement, Where
from verify.floor.allowance import ALPHA, allowance
from verify.floor.isolated import surprise
from verify.floor.power import SAMPLED, power
from verify.floor.regions import LEG, RegionError, Unreplayed, errors
from verify.trial import Trial

#: Elements from which on a region's gain is judged: the rounding of fewer moves it by more than honest builds show.
MANY = 1000


@dataclass(frozen=True)
class _Held:
    """One region in one case, without its elements."""

    where: Where
    decades: float
    cells: int
    worst: float
    gain: float
    note: str
    n: int
    nodes: tuple[str, ...]
    foreign: str
    layer: str

    def beyond(self, cells: float) -> bool:
        """Whether the built-in limits deny it, of 10 ** `cells` tests in all."""
        return not (self.decades - cells <= -math.log10(ALPHA) and self.worst <= 1 and self.gain <= 1)


def measured(trial: Trial) -> Iterator[Measurement]:
    """Per region and case, from one capture.

    `isolated_odds`: decades of surprise, that is -log10 of the chance that an honest region shows as many elements
    beyond rounding as the least likely of its channels and rows, times the number of all that were looked at
    (Bonferroni). `isolated_worst`: its worst element over the worst that honest builds show. `isolated_gain`: how far
    its gain is from 1 over the same of honest builds, where it is computed in float. `not_replayed` counts the layers
    that no replay foretells.
    """
    held: list[_Held] = []
    left: dict[str, str] = {}
    sample: list[RegionError] = []
    every = max(1, len({m.tensor for m in trial.alignment.values()}) // SAMPLED)
    seen: set[str] = set()
    for item in errors(trial):
        if isinstance(item, Unreplayed):
            left[item.layer] = item.why
            continue
        held.append(_held(item))
        if item.kind != "moved" and not item.foreign and item.where.tensor not in seen:
            seen.add(item.where.tensor)
            if len(seen) % every == 0 and len(sample) < SAMPLED:
                sample.append(item)
    if not held and not left:
        return
    cells = math.log10(max(1, sum(h.cells for h in held)))
    for h in held:
        odds = h.decades - cells
        if h.foreign and h.beyond(cells):  # not known to be wrong: the compiler computes it in steps of its own
            left[h.layer] = f"the compiler computes it in steps of its own: {h.foreign}"
            continue
        null = {"nodes": list(h.nodes), "cells": 10**cells}
        rows = [("isolated_odds", max(odds, 0.0), "decades"), ("isolated_worst", h.worst, "x honest")]
        rows += [("isolated_gain", h.gain, "x honest")] if h.gain >= 0 else []
        for metric, value, unit in rows:
            yield Measurement(h.where, metric, value, unit, "region", h.n, note=h.note, null=null)
    why = "; ".join(f"{layer}: {reason}" for layer, reason in list(left.items())[:5])
    place = Where("(all regions)", leg=LEG)
    yield Measurement(place, "not_replayed", len(left), "layers", "region", len(held), note=why)
    yield from power(sample, lambda item, found: _held(replace(item, found=found)).beyond(cells))


def _held(item: RegionError) -> _Held:
    found, allowed = item.found, allowance(item.found.unit, item.kind)
    decades, part = surprise(found, allowed)
    worst, at = found.worst
    beyond = int((found.excess > allowed.width).sum())
    gain, n = found.gain[0], found.excess.size
    note = (
        f"compiled layer {item.layer}, {item.kind}, replayed on its own inputs: {beyond} of {n} elements beyond "
        f"rounding, worst {worst:.3g} {found.unit} at index {at}, gain {1 + gain:.5g}"
    )
    note += f"; {part}" if part else ""
    # a gain is as exact as the elements are many; on an integer grid the count of wrong codes says more
    certain = found.unit != "step" and n >= MANY
    return _Held(
        item.where, decades, found.cells, worst / allowed.worst, abs(gain) / allowed.gain if certain else -1.0, note, n,
        item.nodes, item.foreign, item.layer,
    )  # fmt: skip
