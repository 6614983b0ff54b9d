"""The null: how large the largest of all standardised ratios is when the build is honest, from the draws themselves.

A ratio is the candidate's error over the root mean square of the draws' errors, per tensor and grain. Grains spread
unlike (a tensor by 1 %, a channel of 64 elements by 10 %), so the logarithm of a ratio is divided by its grain's own
spread over the draws. Each draw in turn, held against the others, gives the largest of these over all tensors, grains
and cases; a Gumbel distribution fitted to the K maxima says how large the candidate's may be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from verify.core import Array
from verify.floor.draws import Drawn, Sample

ALPHA = 1e-3  # false alarms per candidate, all grains, tensors and cases together (design, section 3)
EULER = 0.5772156649015329
#: The spread of log ratios counts as no less: below it rounding of the statistics themselves shows (house choice).
LEAST = 2e-3


@dataclass(frozen=True)
class Null:
    """A Gumbel distribution of the largest standardised log ratio of a candidate, fitted to `k` draws."""

    k: int
    location: float
    scale: float


@dataclass(frozen=True)
class Ratio:
    """One grain of one tensor: its error over the floor, the spread of the floor's own log ratio, its place."""

    value: float
    spread: float
    axis: int = -1
    index: int = 0


def quantile(location: float, scale: float, k: int, alpha: float) -> float:
    """The fitted (1 - alpha) quantile plus one standard error of the fit to k maxima.

    The error is the asymptotic one of a Gumbel quantile (variance scale^2 / k (1.109 + 0.514 y + 0.608 y^2), y the
    reduced variate; Gumbel's maximum likelihood, Tiago de Oliveira 1983), so that few draws make the limit wider.
    """
    y = -math.log(-math.log1p(-alpha))
    return location + scale * (y + math.sqrt((1.109 + 0.514 * y + 0.608 * y * y) / k))


def limit(null: Mapping[str, Any], alpha: float = ALPHA) -> float | None:
    """The largest honest ratio by the parameters that a measurement carries, None where they are not usable."""
    try:
        location, scale, spread = (float(null[name]) for name in ("location", "scale", "spread"))
        allowance, k = float(null["allowance"]), int(null["k"])
        found = allowance * math.exp(spread * quantile(location, scale, k, alpha))
    except (KeyError, TypeError, ValueError, OverflowError, ZeroDivisionError):
        return None
    usable = min(scale, spread) >= 0 and allowance >= 1 and k > 2 and math.isfinite(found)
    return found if usable else None


def fit(drawn: Drawn) -> Null | None:
    """The null of all samples together; None where there are none."""
    largest = np.full(drawn.k, -np.inf)
    for sample in drawn.samples.values():
        for _, held, least in _groups(sample):
            largest = np.maximum(largest, _standardised(held + least).max(1))
    if not np.isfinite(largest).all() or drawn.k < 3:
        return None
    scale = float(largest.std(ddof=1)) * math.sqrt(6) / math.pi
    return Null(drawn.k, float(largest.mean()) - EULER * scale, scale)


def _groups(sample: Sample) -> Iterator[tuple[int, Array, float]]:
    """(axis, mean squares of shape (K, extent), what one element off by the resolution amounts to); the tensor is -1."""
    yield -1, sample.tensor[:, None], sample.resolution**2 / sample.size
    for axis, held in sample.axes.items():
        yield axis, held, sample.resolution**2 * held.shape[1] / sample.size


def _standardised(held: Array) -> Array:
    """Each draw's log ratio to the others over their spread, shape (K, grains)."""
    k = len(held)
    logs = 0.5 * np.log(held)
    ratios = logs - 0.5 * np.log((held.sum(0) - held) / (k - 1))
    means = (logs.sum(0) - logs) / (k - 1)
    variance = ((logs * logs).sum(0) - logs * logs - (k - 1) * means * means) / (k - 2)
    return np.asarray(ratios / _spread(np.maximum(variance, 0)))


def _spread(variance: Array) -> Array:
    """A grain's own spread, or that of its whole axis where this is more: K draws alone would leave it uncertain."""
    return np.asarray(np.sqrt(np.maximum(np.maximum(variance, variance.mean(-1, keepdims=True)), LEAST**2)))


def ratios(drawn: Sample, own: Sample, allowance: float) -> list[Ratio]:
    """The whole tensor's ratio, then of each axis the one that is furthest beyond; NaN counts as furthest."""
    found = []
    held = {axis: value for axis, value, _ in _groups(own)}
    for axis, draws, least in _groups(drawn):
        draws = draws + least
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            value = np.sqrt(held[axis][0] / draws.mean(0))
            spread = _spread((0.5 * np.log(draws)).var(0, ddof=1))
            beyond = (np.log(value) - math.log(allowance)) / spread
        at = int(np.where(np.isnan(beyond), np.inf, beyond).argmax())
        found.append(Ratio(float(value[at]), float(spread[at]), axis, at))
    return found
