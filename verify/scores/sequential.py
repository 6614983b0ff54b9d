"""Confidence bounds for a mean that hold at every sample size, so that sampling may stop as soon as it is decided.

Betting (Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", 2024): against "the mean
is m or more" one stakes a fixed fraction c of the capital on every sample. If the claim is true the capital is a
nonnegative supermartingale, so it reaches 1/alpha with probability alpha at most, whenever one looks (Ville).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verify.core import Array, NotComparable, UsageError

# Fractions c and the share of the capital behind each; any fixed choice is valid, it only sets the speed.
# c = 1 is the fastest when nothing differs (ln 20 / -ln 0.99 = 298 samples at margin 0.01, alpha 0.05) and is ruined by
# one full loss; the smaller fractions survive losses. This choice needs 327 samples when nothing differs, and 752, 963
# and 1,161 with one, two and three full losses (tests/scores/test_sequential.py holds these numbers).
FRACTIONS = np.array([1.0, 0.9, 0.75, 0.5, 0.25, 0.1])
SHARES = np.array([0.6, 0.1, 0.12, 0.1, 0.05, 0.03])
# Halvings of [-1, 1] in a search: the bound is exact to 2 / 2**50 = 2e-15, below what float64 resolves near 1.
HALVINGS = 50
# What samples_needed answers when the samples so far point to no decision at all: nobody runs a million.
MANY = 1_000_000


def bounds(losses: Sequence[float], alpha: float) -> tuple[float, float]:
    """Lower and upper bound of the mean loss, each wrong with probability alpha at most over *all* sample sizes.

    `losses` lie within [-1, 1] (source's score minus candidate's), in any order. Together the two cover the mean with
    probability 1 - 2 alpha. No losses give (-1, 1). Raises NotComparable for NaN, UsageError beyond [-1, 1].
    """
    values, counts = _counted(losses, alpha)
    return -_upper(-values, counts, alpha), _upper(values, counts, alpha)


def decided(losses: Sequence[float], margin: float, alpha: float) -> str | None:
    """ "pass" when the mean is proven within the margin, "fail" when proven beyond it, None while it is open.

    `margin` lies within (-1, 1): at 1 nothing could fail. Raises as `bounds` does.
    """
    values, counts = _counted(losses, alpha, margin)
    goal = -np.log(alpha)
    if _log_capital(values, counts, margin) >= goal:
        return "pass"
    return "fail" if _log_capital(-values, counts, -margin) >= goal else None


def samples_needed(losses: Sequence[float], margin: float, alpha: float) -> int:
    """Estimate of the samples until a decision, if they go on as so far; 1,000,000 when they point to none."""
    values, counts = _counted(losses, alpha, margin)
    if not len(values):
        values, counts = np.zeros(1), np.ones(1)
    low, high = 1, MANY
    if not _decides(values, counts / counts.sum() * high, margin, alpha):
        return MANY
    while low < high:
        middle = (low + high) // 2
        if _decides(values, counts / counts.sum() * middle, margin, alpha):
            high = middle
        else:
            low = middle + 1
    return low


def _decides(values: Array, counts: Array, margin: float, alpha: float) -> bool:
    best = max(_log_capital(values, counts, margin), _log_capital(-values, counts, -margin))
    return bool(best >= -np.log(alpha))


def _counted(losses: Sequence[float], alpha: float, margin: float = 0.0) -> tuple[Array, Array]:
    """The distinct losses with their counts: order does not matter, and most samples lose exactly 0."""
    if not -1 < margin < 1:
        raise UsageError(f"margin is {margin!r}", "accuracy", "give a loss between -1 and 1, for example 0.01")
    if not 0 < alpha < 1:
        raise UsageError(f"alpha is {alpha!r}", "accuracy", "give a probability between 0 and 1")
    values = np.asarray(losses, dtype=np.float64)
    if np.isnan(values).any():
        raise NotComparable("a loss is NaN", "accuracy", "look for NaN in the scores of both sides")
    if values.size and np.abs(values).max() > 1:
        raise UsageError(
            f"a loss of {values[np.abs(values).argmax()]} is beyond [-1, 1]",
            "accuracy",
            "let the score return values within [0, 1]",
        )
    found: tuple[Array, Array] = np.unique(values, return_counts=True)
    return found[0], found[1].astype(np.float64)


def _log_capital(values: Array, counts: Array, mean: float) -> float:
    """Log of the capital won against "the mean is `mean` or more".

    That is the sum over c of share x prod(1 + c (mean - x) / (1 - mean)).
    In logarithms, because a thousand factors over- and underflow; a ruined stake is minus infinity, which is right.
    """
    with np.errstate(divide="ignore"):
        factors = np.log1p(np.maximum(FRACTIONS[:, None] * (mean - values) / (1 - mean), -1.0))
    return float(np.logaddexp.reduce(np.log(SHARES) + factors @ counts))


def _upper(values: Array, counts: Array, alpha: float) -> float:
    """sup{m: capital(m) < 1/alpha} by bisection; the capital increases with m. Rounded outwards."""
    low, high, goal = -1.0, 1.0, -np.log(alpha)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _log_capital(values, counts, middle) < goal:
            low = middle
        else:
            high = middle
    return high
