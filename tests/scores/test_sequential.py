"""The bounds hold under optional stopping, and decide as fast as their comment says."""

from __future__ import annotations

import numpy as np
import pytest

from verify.core import NotComparable, UsageError
from verify.scores.sequential import FRACTIONS, MANY, SHARES, bounds, decided, samples_needed

MARGIN, ALPHA, MOST = 0.01, 0.05, 1300


def first_pass(flips: int) -> int:
    return next(n for n in range(1, 3000) if decided([1.0] * flips + [0.0] * (n - flips), MARGIN, ALPHA) == "pass")


def test_speed_is_what_the_comment_says() -> None:
    assert [first_pass(flips) for flips in range(4)] == [327, 752, 963, 1161]
    assert first_pass(4) > MOST


def test_the_shares_are_a_split_of_one_capital() -> None:
    assert SHARES.sum() == pytest.approx(1) and (SHARES > 0).all()
    assert (FRACTIONS > 0).all() and (FRACTIONS <= 1).all()  # beyond 1 the capital could turn negative


def passes(draws: np.ndarray) -> float:
    """Share of rows that are decided "pass" at *any* sample size: what a user who looks after each sample gets."""
    capital = np.full(draws.shape, -np.inf)
    with np.errstate(divide="ignore"):
        for fraction, share in zip(FRACTIONS, SHARES, strict=True):
            steps = np.log1p(np.maximum(fraction * (MARGIN - draws) / (1 - MARGIN), -1.0))
            np.logaddexp(capital, np.log(share) + steps.cumsum(axis=1), out=capital)
    return float((capital.max(axis=1) >= -np.log(ALPHA)).mean())


def at_the_margin(kind: str, rng: np.random.Generator, rows: int) -> np.ndarray:
    """Losses whose true mean is exactly the margin, so that every pass is a false one."""
    shape = (rows, MOST)
    if kind == "flips":
        return (rng.random(shape) < MARGIN).astype(float)
    if kind == "flips both ways":
        draw = rng.random(shape)
        return np.where(draw < 0.03, 1.0, np.where(draw > 0.98, -1.0, 0.0))
    if kind == "small and steady":
        return rng.normal(MARGIN, 0.02, shape).clip(-1 + 2 * MARGIN, 1)
    return np.where(rng.random(shape) < 0.5, 0.3 + MARGIN, -0.3 + MARGIN)  # "wide"


@pytest.mark.parametrize("kind", ["flips", "flips both ways", "small and steady", "wide"])
def test_false_passes_stay_within_alpha_when_one_may_stop_at_any_time(kind: str) -> None:
    assert passes(at_the_margin(kind, np.random.default_rng(2024), 2000)) <= ALPHA


def test_the_simulation_can_see_too_many_false_passes() -> None:
    rng = np.random.default_rng(1)
    assert passes((rng.random((500, MOST)) < MARGIN / 4).astype(float)) > 0.5  # well within the margin: mostly decided


@pytest.mark.parametrize("seed", range(4))
def test_bounds_and_decision_agree_and_hold_the_mean(seed: int) -> None:
    losses = np.random.default_rng(seed).choice([0, 0, 0, 0.2, 1, -1], 400).tolist()
    lower, upper = bounds(losses, ALPHA)
    assert -1 <= lower < np.mean(losses) < upper <= 1
    assert decided(losses, upper + 1e-9, ALPHA) == "pass"
    assert decided(losses, upper - 1e-9, ALPHA) is None
    assert decided(losses, lower - 1e-9, ALPHA) == "fail"


def test_order_does_not_matter_and_the_two_bounds_mirror_each_other() -> None:
    losses = [0.0] * 90 + [0.4] * 9 + [-1.0]
    assert bounds(losses, ALPHA) == bounds(losses[::-1], ALPHA)
    lower, upper = bounds(losses, ALPHA)
    assert bounds([-loss for loss in losses], ALPHA) == (-upper, -lower)


def test_nothing_measured_proves_nothing() -> None:
    assert bounds([], ALPHA) == (-1.0, 1.0)
    assert decided([], 0.99, ALPHA) is None


def test_a_bad_model_fails_soon_and_a_huge_sample_does_not_overflow() -> None:
    assert decided([0.5] * 10, MARGIN, ALPHA) == "fail"
    assert decided([1.0] * 5, MARGIN, ALPHA) == "fail"
    lower, upper = bounds([0.0] * 200_000, ALPHA)
    assert -3e-5 < lower < 0 < upper < 3e-5
    assert bounds([1.0] * 10_000, ALPHA)[1] == 1.0


def test_a_smaller_alpha_widens_the_bounds() -> None:
    losses = [0.0] * 300 + [0.5] * 3
    assert bounds(losses, 0.001)[1] > bounds(losses, 0.05)[1]


def test_the_estimate_meets_what_happens_when_the_samples_go_on_as_they_were() -> None:
    assert samples_needed([0.0] * 20, MARGIN, ALPHA) == 327
    assert samples_needed([], MARGIN, ALPHA) == 327
    block = [0.0] * 499 + [1.0]
    needed = samples_needed(block, MARGIN, ALPHA)
    assert (
        abs(
            needed
            - next(n for n in range(500, 3000, 50) if decided(block * (n // 500) + block[: n % 500], MARGIN, ALPHA))
        )
        < 300
    )
    assert samples_needed([0.0] * 99 + [1.0], MARGIN, ALPHA) == MANY  # exactly at the margin: never
    assert samples_needed([0.5] * 3, MARGIN, ALPHA) < 20  # towards "fail"


def test_bad_losses_are_refused() -> None:
    with pytest.raises(NotComparable, match="NaN"):
        bounds([0.0, float("nan")], ALPHA)
    with pytest.raises(UsageError, match=r"1\.5 is beyond"):
        bounds([0.0, 1.5], ALPHA)
    with pytest.raises(UsageError, match="alpha"):
        bounds([0.0], 0.0)
    with pytest.raises(UsageError, match="margin"):
        decided([0.0], 1.0, ALPHA)
