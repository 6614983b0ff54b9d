"""What may not be compared says so, in one line each, and a permutation is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verify.structure import mismatches

RNG = np.random.default_rng(0)


def tensors(**shapes: tuple[int, ...]) -> dict[str, Any]:
    return {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def test_equal_structure_says_nothing() -> None:
    held = tensors(boxes=(1, 4), scores=(1, 8))
    assert mismatches(held, {name: value + 1e-3 for name, value in held.items()}) == []


def test_missing_and_extra() -> None:
    held = tensors(a=(2,), b=(3,))
    (told,) = mismatches(held, {"a": held["a"]})
    assert told == "output b did not come back"
    (told,) = mismatches(held, {**held, "c": held["a"]})
    assert told == "output c is not one of the reference's"


def test_nothing_came_back() -> None:
    assert mismatches(tensors(a=(2,)), {}) == ["no outputs came back, expected a"]
    assert mismatches({}, tensors(a=(2,)))
    assert mismatches({}, {})


def test_a_permutation_is_named_by_names() -> None:
    held = tensors(a=(2,), b=(2,), c=(2,))
    (told,) = mismatches(held, {name: held[name] for name in "cab"})
    assert told == "outputs are permuted: expected a, b, c; got c, a, b"


def test_a_permutation_is_named_by_shapes() -> None:
    held = tensors(a=(1, 4), b=(1, 8), c=(1, 2))
    (told,) = mismatches(held, {"a": held["b"], "b": held["a"], "c": held["c"]})
    assert told == "outputs are permuted (by shape): the candidate's a, b, c are the reference's b, a, c"


def test_a_permutation_is_named_by_values() -> None:
    held = tensors(o0=(1, 64), o1=(1, 64), o2=(1, 64))
    got = {f"o{k}": held[f"o{i}"] + np.float32(0.01) for k, i in enumerate((2, 0, 1))}
    (told,) = mismatches(held, got)
    assert told == "outputs are permuted (by value): the candidate's o0, o1, o2 are the reference's o2, o0, o1"


def test_noise_is_no_permutation() -> None:
    held = tensors(a=(1, 64), b=(1, 64))
    ruined = {name: value + 3 * RNG.standard_normal(value.shape).astype(np.float32) for name, value in held.items()}
    assert mismatches(held, ruined) == []
    twins = {"a": held["a"], "b": held["a"] * np.float32(1.001)}
    assert mismatches(twins, {"a": twins["b"], "b": twins["a"]}) == []  # as near as rounding: not told apart
    near = {"a": np.array([1, 0.0]), "b": np.array([1, 0.9])}  # each is nearer to the other, but not by enough
    assert mismatches(near, {"a": np.array([1, 0.6]), "b": np.array([1, 0.2])}) == []
    nan = {name: np.full_like(value, np.nan) for name, value in held.items()}
    assert mismatches(held, nan) == []  # `finite` says it


@pytest.mark.parametrize(
    ("wanted", "got", "says"),
    [
        ((1, 4), (1, 1, 1, 4), "rank 2 vs 4"),
        ((3,), (3, 1), "rank 1 vs 2"),
        ((5, 1), (5, 2), "shape (5, 1) vs (5, 2)"),
        ((), (0,), "rank 0 vs 1"),
        ((0,), (1,), "shape (0,) vs (1,)"),
        ((0,), (0,), "empty"),
    ],
)
def test_shapes(wanted: tuple[int, ...], got: tuple[int, ...], says: str) -> None:
    (told,) = mismatches({"y": np.full(wanted, 7.0)}, {"y": np.full(got, 7.0)})
    assert told.startswith("output y: ") and says in told


@pytest.mark.parametrize(
    ("wanted", "got", "fine"),
    [
        (np.float32, np.float16, True),
        (np.float64, np.float32, True),
        (np.int64, np.int32, True),
        (np.float32, np.int32, False),
        (np.int64, np.float32, False),
        (np.int8, np.uint8, False),
        (np.bool_, np.int8, False),
        (np.float32, "<U3", False),
    ],
)
def test_kinds_of_dtypes(wanted: Any, got: Any, fine: bool) -> None:
    told = mismatches({"y": np.ones(2, wanted)}, {"y": np.ones(2, got)})
    assert bool(told) is not fine
    assert fine or "dtype" in told[0]
