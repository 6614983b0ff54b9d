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


def tied(reference: Array, candidate: Array, values: Array, axis: int) -> Array:
    """True where the candidate's index is wrong, bool, shape of `reference`.

    Both are positions along `axis` of `values` (same shape as `values` but for that axis). Wrong: not a position
    (negative ones too), another value than the reference's there (NaN equals NaN), or a position that its row already
    had. Raises NotComparable for unequal or unfitting shapes and for empty arrays.
    """
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
    same = wanted == got
    if values.dtype.kind == "f":
        same |= np.isnan(wanted) & np.isnan(got)
    return np.asarray(~same | wanted_bad | got_bad | _again(got_at, axis))


def _again(indices: Array, axis: int) -> Array:
    """True where a position already stood earlier in its row along `axis`."""
    order = np.argsort(indices, axis=axis, kind="stable")
    ranked = np.moveaxis(np.take_along_axis(indices, order, axis), axis, 0)
    again = np.zeros(ranked.shape, bool)
    again[1:] = ranked[1:] == ranked[:-1]
    out = np.zeros(indices.shape, bool)
    np.put_along_axis(out, order, np.moveaxis(again, 0, axis), axis)
    return out
