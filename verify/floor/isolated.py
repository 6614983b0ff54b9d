"""Each region's own error: the candidate's tensor against the region replayed on the candidate's own inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from verify.core import Array
from verify.floor.allowance import Allowance
from verify.floor.formats import Grid, to_float, ulp
from verify.floor.replay import WIDER, Replayed

#: An element on the grid may be this far beyond half a step from the exact value, in steps: float32 sums of a replay
#: leave 1e-5 of 128 steps undetermined.
TIE = 2e-3
#: A dump whose elements are further from its own grid than this, in steps, was not rounded there (rknn-facts).
OFF_GRID = 1e-3


@dataclass(frozen=True)
class Isolated:
    """What is left of a region's error once every known rounding is taken off, in `unit`s: "step", "unrounded step"
    (of a dump that is rounded only later) or "ulp".

    `excess` is what each element is beyond the admitted half unit and slack, in (unit + slack); `gain` the factor of
    the least-squares fit got = gain * exact, less 1; `bias` the mean difference in (unit + slack).
    """

    excess: Array
    gain: tuple[float, float]
    bias: tuple[float, float]
    unit: str

    @property
    def worst(self) -> tuple[float, tuple[int, ...]]:
        """The largest excess and its index."""
        at = int(self.excess.argmax())
        return float(self.excess.reshape(-1)[at]), tuple(int(i) for i in np.unravel_index(at, self.excess.shape))

    @property
    def cells(self) -> int:
        """How many tests `surprise` makes: the tensor, and every index of every axis."""
        return 1 + sum(extent for extent in self.excess.shape if extent > 1)


def judge(replayed: Replayed, got: Array, grid: Grid | None, precision: str) -> Isolated:
    """Compare a dump with its replay; both of one shape. Elements not finite in both alike are infinitely off."""
    exact, value, slack = replayed.exact, np.asarray(got, np.float64), replayed.slack
    if grid is not None:
        codes, unit, half, name = value / grid.step, np.full(exact.shape, grid.step), TIE, "unrounded step"
        if np.quantile(np.abs(codes - np.rint(codes)), 0.9, method="higher") <= OFF_GRID:
            exact, half, name = np.clip(exact, *grid.ends), 0.5 + TIE, "step"
    else:
        unit, half, name = ulp(exact, precision), 0.5, "ulp"
        exact = np.where(np.isinf(to_float(exact, precision)), np.copysign(np.inf, exact), exact)  # it overflows
    with np.errstate(invalid="ignore"):
        off, admitted = value - exact, unit + slack
        alike = (np.isnan(exact) & np.isnan(value)) | (exact == value)
        excess = np.maximum(np.abs(off) - half * unit - slack, 0) / admitted
    excess = np.where(alike, 0.0, np.where(np.isfinite(off), excess, np.inf))
    fine = np.isfinite(off) & np.isfinite(admitted)
    gain, bias = _fits(exact[fine], off[fine], (unit**2 / 12 + (slack / WIDER) ** 2)[fine])
    return Isolated(excess, gain, bias, name)


def _fits(exact: Array, off: Array, variance: Array) -> tuple[tuple[float, float], tuple[float, float]]:
    """((gain - 1, z), (mean difference, z)) of least squares; z is in standard errors of independent roundings."""
    size, n = float(exact @ exact), off.size
    if not n or not size > 0:
        return (0.0, 0.0), (0.0, 0.0)
    gain, mean = float(exact @ off) / size, float(off.mean())
    errors = math.sqrt(float((exact * exact) @ variance)) / size, math.sqrt(float(variance.mean()) / n)
    z = [value / error if error > 0 else 0.0 for value, error in zip((gain, mean), errors, strict=True)]
    return (gain, z[0]), (mean, z[1])


def surprise(found: Isolated, allowed: Allowance) -> tuple[float, str]:
    """(decades, part) of the cell with the least likely count of elements beyond what is allowed.

    Decades are -log10 of a bound on the chance that an honest region shows as many: Chernoff's,
    exp(-n KL(k/n || rate)), of k elements out of n beyond `allowed.width` where honest builds have `allowed.rate` of
    them. Not yet corrected for the number of tests.
    """
    beyond = found.excess > allowed.width
    best = (_decades(int(beyond.sum()), beyond.size, allowed.rate), "")
    for axis, extent in enumerate(beyond.shape):
        if extent < 2:
            continue
        others = tuple(i for i in range(beyond.ndim) if i != axis)
        counts = beyond.sum(axis=others)
        at = int(counts.argmax())
        decades = _decades(int(counts[at]), beyond.size // extent, allowed.rate)
        if decades > best[0]:
            best = (decades, f"axis {axis}, index {at}")
    return best


def _decades(count: int, n: int, rate: float) -> float:
    share = count / n
    if share <= rate:
        return 0.0
    rest = (1 - share) * math.log((1 - share) / (1 - rate)) if share < 1 else 0.0
    return n * (share * math.log(share / rate) + rest) / math.log(10)
