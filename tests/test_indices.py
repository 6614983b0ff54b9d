"""Indices are right when they point at the same value."""

from __future__ import annotations

import numpy as np
import pytest

from verify.core import NotComparable
from verify.indices import tied, value_lost

VALUES = np.array([[1.0, 3.0, 3.0, 2.0, 3.0]], np.float32)
WANTED = np.array([[2, 4, 1]])


def test_ties_may_come_in_any_order() -> None:
    assert not tied(WANTED, np.array([[1, 2, 4]]), VALUES, 1).any()
    assert not tied(WANTED, np.array([[1, 2, 4]], np.int32), VALUES, -1).any()
    assert not value_lost(WANTED, np.array([[4, 2, 1]]), VALUES, 1).any()


@pytest.mark.parametrize(
    ("got", "wrong"),
    [
        ([[2, 4, 0]], [[False, False, True]]),  # another value
        ([[2, 4, 5]], [[False, False, True]]),  # outside
        ([[2, 4, -4]], [[False, False, True]]),  # numpy would take it from the end, where the value is right
        ([[2, 2, 1]], [[False, True, False]]),  # twice the same
        ([[1, 4, 1]], [[False, False, True]]),
        ([[2.0, 4.0, 1.5]], [[False, False, True]]),
        ([[2.0, 4.0, np.nan]], [[False, False, True]]),
    ],
)
def test_wrong_ones_are_marked(got: list[list[float]], wrong: list[list[bool]]) -> None:
    assert tied(WANTED, np.array(got), VALUES, 1).tolist() == wrong
    assert (value_lost(WANTED, np.array(got), VALUES, 1) > 0).tolist() == wrong


def test_rounding_may_be_a_tie() -> None:
    values = np.array([[1.0, 3.0, 3.0001]])
    assert tied(np.array([[2]]), np.array([[1]]), values, 1).all()
    assert not tied(np.array([[2]]), np.array([[1]]), values, 1, within=1e-4).any()
    assert tied(np.array([[2]]), np.array([[0]]), values, 1, within=1e-4).all()
    assert tied(np.array([[2]]), np.array([[3]]), values, 1, within=1e-4).all()


def test_whole_floats_are_indices_too() -> None:
    assert not tied(WANTED, np.array([[1.0, 2.0, 4.0]], np.float32), VALUES, 1).any()


def test_other_axes() -> None:
    values = np.random.default_rng(0).standard_normal((2, 6, 3))
    order = np.argsort(-values, axis=1)[:, :2]
    swapped = order[:, ::-1]
    assert not tied(order, order, values, 1).any()
    assert tied(order, swapped, values, -2).all()
    assert not tied(order[:, :1], order[:, :1], values, 1).any()  # ArgMax with keepdims


def test_nan_points_at_nan() -> None:
    values = np.array([np.nan, 1.0, np.nan])
    assert not tied(np.array([0]), np.array([2]), values, 0).any()
    assert tied(np.array([0]), np.array([1]), values, 0).all()
    assert value_lost(np.array([0]), np.array([1]), values, 0) == np.inf


def test_what_is_lost_is_measured_in_rms() -> None:
    values = np.array([3.0, 4.0])
    assert value_lost(np.array([1]), np.array([0]), values, 0)[0] == pytest.approx(1 / np.sqrt(12.5))
    assert value_lost(np.array([1]), np.array([7]), values, 0)[0] == np.inf


def test_long_integers_are_told_apart() -> None:
    values = np.array([2**53, 2**53 + 1])
    assert tied(np.array([0]), np.array([1]), values, 0).all()


@pytest.mark.parametrize(
    ("wanted", "got", "values", "axis"),
    [
        (np.zeros((1, 3), int), np.zeros((1, 2), int), VALUES, 1),
        (np.zeros((1, 0), int), np.zeros((1, 0), int), VALUES, 1),
        (np.zeros((2, 3), int), np.zeros((2, 3), int), VALUES, 1),
        (np.zeros(3, int), np.zeros(3, int), VALUES, 1),
        (np.zeros((1, 3), int), np.zeros((1, 3), int), VALUES, 2),
    ],
)
def test_what_does_not_fit_is_refused(wanted: object, got: object, values: object, axis: int) -> None:
    with pytest.raises(NotComparable):
        tied(wanted, got, values, axis)  # type: ignore[arg-type]
