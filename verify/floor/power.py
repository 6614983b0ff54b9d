"""The smallest faults that the replay of a build's regions would have caught, found by injecting them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from verify.core import Array, Measurement, Where
from verify.floor.formats import to_float
from verify.floor.isolated import Isolated, judge
from verify.floor.regions import LEG, RegionError

Fault = Callable[[Array, float], Array]
#: Regions that faults are injected into, evenly over the build: of 16 the 95th percentile is the last but one.
SAMPLED = 16
#: Sizes that are tried, and halvings of their logarithm: the figure is exact to 1.1 times.
SMALLEST, LARGEST, HALVINGS = 1e-5, 10.0, 7
#: The share of regions that catch a fault of the size stated (design, section 3).
CAUGHT = 0.95


def _rms(exact: Array) -> float:
    return float(np.sqrt(np.mean(np.square(exact[np.isfinite(exact)])))) or 1.0


def _channel(exact: Array, size: float) -> Array:
    out = exact.copy()
    axis = 1 if exact.ndim == 4 else exact.ndim - 1  # (N, C, H, W), else channels come last
    channels = np.moveaxis(out, axis, 0)
    energy = np.square(np.where(np.isfinite(channels), channels, 0.0)).reshape(len(channels), -1).sum(1)
    channels[np.argsort(energy)[len(energy) // 2]] *= 1 + size  # an ordinary one: some are always zero
    return out


def _element(exact: Array, size: float) -> Array:
    out = exact.copy()
    out.reshape(-1)[out.size // 2] += size * _rms(exact)
    return out


#: Each with its unit.
FAULTS: Mapping[str, tuple[Fault, str]] = {
    "gain": (lambda exact, size: exact * (1 + size), "relative"),
    "bias": (lambda exact, size: exact + size * _rms(exact), "rms"),
    "channel": (_channel, "relative"),
    "element": (_element, "rms"),
}


def power(sample: Sequence[RegionError], caught: Callable[[RegionError, Isolated], bool]) -> Iterator[Measurement]:
    """The smallest gain, bias, channel gain and element fault that 95 % of the sampled regions catch.

    A fault is put on the replayed value before its last rounding; `caught` says whether a judged region is beyond its
    limits. Infinite where no size tried is caught.
    """
    for name, (fault, unit) in FAULTS.items():
        if sample:
            sizes = sorted(_smallest(item, fault, caught) for item in sample)
            value = sizes[int(np.ceil(CAUGHT * len(sizes))) - 1]
            note = f"in {CAUGHT:.0%} of {len(sizes)} regions; median {sizes[len(sizes) // 2]:.2g}"
            yield Measurement(Where("(all regions)", leg=LEG), name, value, unit, "power", len(sizes), note=note)


def _smallest(item: RegionError, fault: Fault, caught: Callable[[RegionError, Isolated], bool]) -> float:
    low, high = np.log(SMALLEST), np.log(LARGEST)
    if not caught(item, _injected(item, fault, LARGEST)):
        return float("inf")
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if caught(item, _injected(item, fault, float(np.exp(middle)))):
            high = middle
        else:
            low = middle
    return float(np.exp(high))


def _injected(item: RegionError, fault: Fault, size: float) -> Isolated:
    wrong = fault(item.replayed.exact, size)
    if item.grid is not None and item.found.unit == "step":
        wrong = item.grid.round(wrong)
    elif item.grid is None:
        wrong = to_float(wrong, item.precision)
    return judge(item.replayed, wrong, item.grid, item.precision)
