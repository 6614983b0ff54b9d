"""What checker `parity` measures, on trials made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.hand import found, graph, noise, trial, values
from verify.checkers.parity import Parity
from verify.core import NotComparable
from verify.graphs.info import Node

Y = noise(1, 4)


def pair(wanted: Any, got: Any, **more: Any) -> Any:
    return trial(source=[{"y": wanted}], graph=[{"y": got}], **more)


def test_error_and_worst_element() -> None:
    got = Y.copy()
    got[0, 2] += 1
    given = pair(Y, got)
    assert values(Parity(), given, "relative_l2") == [pytest.approx(1 / float(np.linalg.norm(Y)), rel=1e-5)]
    (m,) = found(Parity(), given, "max_over_peak")
    assert "(0, 2)" in m.note


def test_a_factor_is_named() -> None:
    (m,) = found(Parity(), pair(np.tile(Y, 4), np.tile(Y, 4) * 255), "relative_l2")
    assert "about 255 times the reference" in m.note


@pytest.mark.parametrize(
    ("wanted", "got", "count"),
    [
        (np.array([2**53, 1]), np.array([2**53 + 1, 1]), 1),  # 1e-16 of it: no relative limit sees that
        (np.array([30_000, 1]), np.array([30_001, 1]), 1),
        (np.array([True, False]), np.array([True, True]), 1),
        (np.array(["a", "b"]), np.array(["a", "c"]), 1),
        (np.array([1, 2]), np.array([1, 2]), 0),
    ],
)
def test_integers_bool_and_strings_are_exact(wanted: Any, got: Any, count: int) -> None:
    (m,) = found(Parity(), pair(wanted, got), "unequal")
    assert m.value == count and ("first at index" in m.note) is bool(count)


def test_indices_are_left_to_their_checker() -> None:
    top = graph(Node("top", "TopK", ("x", "k"), ("v", "y"), axis=-1))
    assert list(Parity().check(trial(top, source=[{"y": WANTED}], graph=[{"y": WANTED}]))) == []


WANTED = np.array([[2, 4, 1]])


def test_what_has_no_distance_is_not_comparable_and_says_where() -> None:
    with pytest.raises(NotComparable) as caught:
        list(Parity().check(pair(np.array([1j]), np.array([1j]))))
    assert caught.value.where == "source~graph, output y"


def test_nan_is_no_number() -> None:
    nan = Y.copy()
    nan[0, 1] = np.nan
    assert not values(Parity(), pair(Y, nan), "relative_l2")[0] <= np.inf
