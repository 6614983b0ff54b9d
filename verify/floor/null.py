"""The null: how large the largest of all standardised ratios is when the build is honest, from the draws themselves.

A ratio is the candidate's error over the root mean square of the draws' errors, per tensor and grain. Grains spread
unlike (a tensor by 1 %, a channel of 64 elements by 10 %), so the logarithm of a ratio is divided by the spread that
its tensor or axis shows over the draws. Each draw in turn, held against the others, gives the largest of these over
all tensors, grains and cases; a Gumbel distribution fitted to the K maxima says how large the candidate's may be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from verify.core import Array
from verify.floor.draws import Drawn, Sample
from verify.floor.tail import KINDS

EULER = 0.5772156649015329
#: The spread of log ratios counts as no less: below it rounding of the statistics themselves shows (house choice).
LEAST = 2e-3


#: A grain's mean square counts as at least this share of its axis' mean: channels that hardly err are judged against a
#: tenth of the usual error, or one chaotic channel would widen every limit (house choice).
SHARE = 1e-2


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


def fit(drawn: Drawn) -> dict[str, Null]:
    """The nulls of all samples together, of whole tensors and of the grains along their axes; {} where there are none.

    Two, because single channels have longer tails than tensors, which then keep a limit of their own.
    """
    largest = {kind: np.full(drawn.k, -np.inf) for kind in KINDS}
    for sample in drawn.samples.values():
        for axis, held, least in _groups(sample):
            kind = kind_of(axis)
            largest[kind] = np.maximum(largest[kind], _standardised(_floored(held, least)).max(1))
    found = {}
    for kind, values in largest.items():
        if np.isfinite(values).all() and drawn.k >= 3:
            scale = float(values.std(ddof=1)) * math.sqrt(6) / math.pi
            found[kind] = Null(drawn.k, float(values.mean()) - EULER * scale, scale)
    return found


def kind_of(axis: int) -> str:
    return KINDS[axis >= 0]


def _floored(held: Array, least: float) -> Array:
    """Mean squares with what an element may be off by, and with a share of the other grains' of the axis."""
    share = SHARE * float(held.mean()) if held.shape[1] > 1 else 0.0
    return np.asarray(held + max(least, share, 1e-300))


def _groups(sample: Sample) -> Iterator[tuple[int, Array, float]]:
    """(axis, mean squares of shape (K, extent), what one element off by the resolution makes); the tensor is -1."""
    yield -1, sample.tensor[:, None], sample.resolution**2 / sample.size
    for axis, held in sample.axes.items():
        yield axis, held, sample.resolution**2 * held.shape[1] / sample.size


def _standardised(held: Array) -> Array:
    """Each draw's log ratio to the others over their spread, shape (K, grains)."""
    logs, rest = 0.5 * np.log(held), held.sum(0) - held
    above = _above(held)
    without = 2 * (above.sum(0) - above) / (len(held) - 1)
    return np.asarray((logs - 0.5 * np.log(rest / (len(held) - 1))) / _spread(without))


def _above(held: Array) -> Array:
    """Squares of the log ratios above 0. What falls below does not count: small errors are no reason to let large ones
    pass, and a logarithm's lower tail is long."""
    return np.asarray(np.square(np.maximum(0.5 * np.log(held / held.mean(0)), 0)))


def _spread(variance: Array) -> Array:
    """The largest spread along the axis: what one channel does now and then, its neighbours may do as well."""
    return np.asarray(np.sqrt(np.maximum(variance.max(-1, keepdims=True), LEAST**2)))


def ratios(drawn: Sample, own: Sample) -> list[Ratio]:
    """The whole tensor's ratio, then of each axis the largest; NaN counts as such."""
    found = []
    held = {axis: value for axis, value, _ in _groups(own)}
    for axis, draws, least in _groups(drawn):
        draws = _floored(draws, least)
        with np.errstate(invalid="ignore", over="ignore"):
            value = np.sqrt(held[axis][0] / draws.mean(0))
            spread = float(_spread(2 * _above(draws).mean(0))[0])
        at = int(np.where(np.isnan(value), np.inf, value).argmax())
        found.append(Ratio(float(value[at]), spread, axis, at))
    return found
