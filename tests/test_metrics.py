"""The traps of comparing numbers, each with the right value."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verify import metrics
from verify.core import NotComparable
from verify.metrics import BLOCK, by_axis, difference, over_peak, unequal

RNG = np.random.default_rng(0)


def noisy(n: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(n).astype(dtype)


def test_every_number_is_what_its_formula_says() -> None:
    wanted, got = np.array([3.0, -4.0]), np.array([3.0, -1.0])
    d = difference(wanted, got)
    assert d.n == 2
    assert d.relative_l2 == pytest.approx(3 / 5)
    assert d.max_abs == 3.0 and d.max_index == (1,)
    assert d.rms == pytest.approx(5 / math.sqrt(2))
    assert d.max_over_rms == pytest.approx(3 / (5 / math.sqrt(2)))
    assert d.cosine == pytest.approx(13 / (5 * math.sqrt(10)))
    assert d.gain == pytest.approx(13 / 25)
    assert d.sqnr_db == pytest.approx(-20 * math.log10(0.6))


@given(st.integers(1, 3 * BLOCK), st.integers(0, 2**32 - 1))
def test_blocks_add_up_to_the_whole(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    wanted, got = rng.standard_normal(n), rng.standard_normal(n)
    d = difference(wanted, got)
    assert d.relative_l2 == pytest.approx(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))
    assert d.max_index == (int(np.abs(got - wanted).argmax()),)
    assert d.cosine == pytest.approx(wanted @ got / np.linalg.norm(wanted) / np.linalg.norm(got))


def test_cosine_is_blind_to_scale_and_the_others_are_not() -> None:
    a = noisy(10_000)
    d = difference(a, a * np.float32(1.25))
    assert d.cosine > 0.999999
    assert d.relative_l2 == pytest.approx(0.25, rel=1e-6)
    assert d.gain == pytest.approx(1.25, rel=1e-6)


def test_cosine_is_blind_to_three_ruined_elements_and_the_others_are_not() -> None:
    a = noisy(10_000)
    b = a.copy()
    b[[10, 5000, 9999]] += 5
    d = difference(a, b)
    assert d.cosine > 0.996
    assert d.max_over_rms > 4.5
    assert d.max_index[0] in (10, 5000, 9999)


def test_half_precision_sums_do_not_overflow() -> None:
    a = np.full(BLOCK * 2 + 5, 60_000, np.float16)  # two squares already exceed 65504
    b = a.copy()
    b[-1] = 30_000
    d = difference(a, b)
    assert d.nonfinite == 0
    assert d.max_abs == 30_000
    assert d.relative_l2 == pytest.approx(0.5 / math.sqrt(a.size))


def test_every_half_precision_number_is_read_exactly() -> None:
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    for start in range(0, finite.size, 1000):
        piece = finite[start : start + 1000]
        assert difference(piece.astype(np.float64), piece).max_abs == 0.0
    d = difference(every.astype(np.float32), every)  # non-finite ones too, in the same block
    assert d.nonfinite == 0 and d.nonfinite_alike == 2**16 - finite.size and d.relative_l2 == 0.0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("at", [1, BLOCK + 3])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_leaves_no_number(dtype: Any, at: int, bad: float) -> None:
    wanted = noisy(BLOCK + 10, dtype)
    got = wanted.copy()
    got[at] = bad
    for d in (difference(wanted, got), difference(got, wanted)):
        assert d.nonfinite == 1 and d.max_index == (at,)
        for value in (d.relative_l2, d.max_abs, d.max_over_rms, d.cosine, d.gain, d.sqnr_db):
            assert math.isnan(value)
            assert not value <= math.inf  # the form in which the policy asks


def test_opposite_infinities_are_not_alike() -> None:
    d = difference(np.array([np.inf, 1]), np.array([-np.inf, 1]))
    assert d.nonfinite == 1 and math.isnan(d.relative_l2)


def test_alike_ones_are_counted_and_left_out() -> None:
    wanted = np.array([np.nan, np.inf, -np.inf, 3, 4], np.float32)
    got = wanted.copy()
    got[3] = 6
    d = difference(wanted, got)
    assert (d.n, d.nonfinite, d.nonfinite_alike) == (2, 0, 3)
    assert d.relative_l2 == pytest.approx(3 / 5) and d.max_index == (3,)


def test_nothing_finite_is_nothing_compared() -> None:
    assert math.isnan(difference(np.array([np.nan]), np.array([np.nan])).relative_l2)


@pytest.mark.parametrize(
    ("wanted", "got", "apart"),
    [
        (np.array([127, 0], np.int8), np.array([-128, 0], np.int8), 255),
        (np.array([-68], np.int8), np.array([60], np.int8), 128),
        (np.array([0, 5], np.uint8), np.array([255, 5], np.uint8), 255),
        (np.array([-(2**31)], np.int32), np.array([2**31 - 1], np.int32), 2**32 - 1),
        (np.array([-(2**63)], np.int64), np.array([2**63 - 1], np.int64), 2.0**64),
        (np.array([-1], np.int64), np.array([2**64 - 1], np.uint64), 2.0**64),
        (np.array([True, False]), np.array([False, False]), 1),
        (np.array([3], np.int8), np.array([2.5], np.float32), 0.5),
    ],
)
def test_integers_do_not_wrap_around(wanted: Any, got: Any, apart: float) -> None:
    assert difference(wanted, got).max_abs == apart
    assert difference(wanted, got).relative_l2 > 0


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_long_integers_are_exact_beyond_the_53_bits_of_a_float(dtype: Any) -> None:
    wanted = np.array([2**53, 2**62], dtype)
    got = np.array([2**53 + 1, 2**62], dtype)
    assert float(wanted[0]) == float(got[0])
    d = difference(wanted, got)
    assert d.max_abs == 1.0 and d.max_index == (0,) and d.relative_l2 > 0
    assert difference(wanted, wanted).relative_l2 == 0.0


def test_numbers_too_large_or_small_to_square_are_scaled() -> None:
    for size in (1e200, 1e-200, 5e-324 * 2**40):
        d = difference(np.array([size, size]), np.array([size, 2 * size]))
        assert d.relative_l2 == pytest.approx(1 / math.sqrt(2), rel=1e-6)
        assert d.max_abs == pytest.approx(size)
        assert difference(np.array([size]), np.array([size])).relative_l2 == 0.0


def test_a_difference_too_small_to_square_is_still_seen() -> None:
    assert difference(np.array([1.0, 1e-200]), np.array([1.0, 2e-200])).max_over_rms > 0


@pytest.mark.parametrize(
    ("wanted", "got"),
    [
        ((3,), (3, 1)),
        ((5, 1), (5, 2)),
        ((1, 4), (1, 1, 1, 4)),
        ((), (0,)),
        ((0,), (1,)),
        ((0,), (0,)),
        ((2, 0), (2, 0)),
    ],
)
def test_nothing_is_broadcast_and_empty_is_nothing(wanted: tuple[int, ...], got: tuple[int, ...]) -> None:
    for compare in (difference, unequal):
        with pytest.raises(NotComparable):
            compare(np.ones(wanted), np.ones(got))


@pytest.mark.parametrize("value", [np.array(["a"]), np.array([1j]), np.array([object()]), np.ones(1, np.longdouble)])
def test_what_has_no_distance_is_refused(value: Any) -> None:
    with pytest.raises(NotComparable):
        difference(value, value)


def test_zeros() -> None:
    zero, one = np.zeros(4), np.array([0, 0, 1e-9, 0])
    same, other, lost = difference(zero, zero), difference(zero, one), difference(one, zero)
    assert same.relative_l2 == 0.0 and same.max_over_rms == 0.0 and same.sqnr_db == math.inf
    assert other.relative_l2 == math.inf and other.max_over_rms == math.inf
    assert lost.relative_l2 == 1.0  # what DESTROYED of verify.limits stands on


def test_below_the_resolution_counts_as_the_resolution() -> None:
    wanted, got = np.full(4, 0.001), np.full(4, 0.05)
    assert difference(wanted, got).relative_l2 == pytest.approx(49)
    assert difference(wanted, got, scale_floor=0.1).relative_l2 == pytest.approx(0.49)
    assert difference(wanted * 1000, got * 1000, scale_floor=0.1).relative_l2 == pytest.approx(49)
    tiny = difference(wanted * 1e-200, got * 1e-200, scale_floor=0.1e-200)
    assert tiny.relative_l2 == pytest.approx(0.49)


def test_layout_in_memory_does_not_matter() -> None:
    a, b = noisy(300 * 100).reshape(300, 100), noisy(300 * 100).reshape(300, 100)
    plain = difference(np.ascontiguousarray(a.T), np.ascontiguousarray(b.T))
    assert difference(a.T, b.T) == plain
    assert difference(np.asfortranarray(a.T), np.ascontiguousarray(b.T)) == plain
    assert difference(a[::2, ::-1], b[::2, ::-1]).max_abs == np.abs(a.astype(float) - b)[::2].max()
    assert difference(np.float32(2.0), np.float32(3.0)).max_index == ()


def test_by_axis_names_the_slot_that_is_wrong() -> None:
    wanted = noisy(3 * 4 * 5).reshape(3, 4, 5)
    got = wanted.copy()
    got[1] *= 2
    assert by_axis(wanted, got, 0) == pytest.approx([0, 1, 0])
    assert by_axis(np.moveaxis(wanted, 0, 2), np.moveaxis(got, 0, 2), -1) == pytest.approx([0, 1, 0])
    with pytest.raises(NotComparable):
        by_axis(wanted, got[:1], 0)


def test_strings_are_equal_or_not() -> None:
    a = np.array([["x", "y"]], object)
    assert unequal(a, a.copy()) == (0, None)
    assert unequal(a, np.array([["x", "z"]], object)) == (1, (0, 1))


def test_memory_does_not_grow_with_the_array() -> None:
    a = np.zeros(2_000_000, np.float16)
    for pair in ((a, a), (a.reshape(2000, 1000).T, a.reshape(2000, 1000).T)):
        tracemalloc.start()
        difference(*pair)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 20 * metrics.BLOCK * 8  # the arrays are 4 MB each, 16 MB as float64


def test_over_peak_is_one_ruined_element_whatever_the_others_are() -> None:
    flat, peaky = np.ones(1000, np.float32), np.zeros(1000, np.float32)
    peaky[7] = 1.0
    for wanted in (flat, peaky, -peaky):
        got = wanted.copy()
        got[3] += np.float32(0.25)
        assert over_peak(difference(wanted, got), wanted) == 0.25
    assert over_peak(difference(flat, flat), flat) == 0.0
    zero = np.zeros(4, np.float32)
    assert over_peak(difference(zero, zero), zero) == 0.0
    assert over_peak(difference(zero, flat[:4]), zero) == math.inf
    assert math.isnan(over_peak(difference(flat, np.full_like(flat, np.nan)), flat))
    signed = np.array([-128, 0], np.int8)
    assert over_peak(difference(signed, np.array([127, 0], np.int8)), signed) == 255 / 128
    both = np.array([np.inf, 2.0], np.float32)
    assert over_peak(difference(both, both + np.float32(1)), both) == 0.5
