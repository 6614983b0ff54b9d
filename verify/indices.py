"""Indices of TopK, ArgMax and the like: right when they point at the same value, whichever of the tied ones it is."""

from __future__ import annotations

import numpy as np

from verify.core import Array, NotComparable


def whole(indices: Array, extent: int) -> tuple[Array, Array]:
    """(int64 indices, mask of those that are not one of 0 .. extent - 1).

    Floats are taken where they are whole numbers: some runtimes return every output as float32. What is masked reads 0.
    """
    indices = np.asarray(indices)
    with np.errstate(invalid="ignore"):
        bad = ~((indices >= 0) & (indices < extent))
        if indices.dtype.kind == "f":
            bad |= indices != np.floor(indices)
    return np.where(bad, 0, indices).astype(np.int64), bad


def tied(reference: Array, candidate: Array, values: Array, axis: int, within: float = 0.0) -> Array:
    """True where the candidate's index is wrong, bool, shape of `reference`.

    Both are positions along `axis` of `values` (same shape as `values` but for that axis). Wrong: not a position
    (negative ones too), another value than the reference's there (further off than `within` times the values' rms; NaN
    equals NaN), or a position that its row already had. Raises NotComparable for unequal or unfitting shapes and for
    empty arrays.
    """
    if within:
        return np.asarray(value_lost(reference, candidate, values, axis) > within)
    wanted, got, bad = _pointed(reference, candidate, values, axis)
    return np.asarray(bad | ~_same(wanted, got))


def value_lost(reference: Array, candidate: Array, values: Array, axis: int) -> Array:
    """By how much of the values' rms the value pointed at is off, float64, shape of `reference`; as `tied` otherwise.

    Infinite where the index is no position, or one that its row already had, and where the values are not finite.
    """
    wanted, got, bad = _pointed(reference, candidate, values, axis)
    held = np.asarray(values, np.float64)
    finite = held[np.isfinite(held)]
    rms = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
    with np.errstate(invalid="ignore"):
        off = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
    lost = np.where(_same(wanted, got), 0.0, off / rms if rms else np.inf)
    return np.where(bad | np.isnan(lost), np.inf, lost)


def _same(wanted: Array, got: Array) -> Array:
    same = wanted == got
    return np.asarray(same | (np.isnan(wanted) & np.isnan(got)) if wanted.dtype.kind == "f" else same)


def _pointed(reference: Array, candidate: Array, values: Array, axis: int) -> tuple[Array, Array, Array]:
    """The values pointed at by both, and where the candidate's (or the reference's) index itself is not possible."""
    reference, candidate, values = np.asarray(reference), np.asarray(candidate), np.asarray(values)
    if reference.shape != candidate.shape:
        raise NotComparable(f"indices of shape {reference.shape} vs {candidate.shape}")
    if not reference.size:
        raise NotComparable(f"empty: indices of shape {reference.shape} hold nothing to compare")
    if values.ndim != reference.ndim or not -values.ndim <= axis < values.ndim:
        raise NotComparable(f"indices of shape {reference.shape} along axis {axis} do not fit values of {values.shape}")
    rest = [tuple(np.delete(shape, axis)) for shape in (values.shape, reference.shape)]
    if rest[0] != rest[1]:
        raise NotComparable(f"indices of shape {reference.shape} along axis {axis} do not fit values of {values.shape}")
    extent = values.shape[axis]
    wanted_at, wanted_bad = whole(reference, extent)
    got_at, got_bad = whole(candidate, extent)
    wanted, got = np.take_along_axis(values, wanted_at, axis), np.take_along_axis(values, got_at, axis)
    return wanted, got, np.asarray(wanted_bad | got_bad | _again(got_at, axis))


def _again(indices: Array, axis: int) -> Array:
    """True where a position already stood earlier in its row along `axis`."""
    order = np.argsort(indices, axis=axis, kind="stable")
    ranked = np.moveaxis(np.take_along_axis(indices, order, axis), axis, 0)
    again = np.zeros(ranked.shape, bool)
    again[1:] = ranked[1:] == ranked[:-1]
    out = np.zeros(indices.shape, bool)
    np.put_along_axis(out, order, np.moveaxis(again, 0, axis), axis)
    return out
