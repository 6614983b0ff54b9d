"""One tensor of a comparison: judged, and what its error looks like put into words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from verify.compared import DIFFERS, NOT_COMPARABLE, WITHIN, Row
from verify.core import Array, NotComparable
from verify.indices import value_lost
from verify.limits import limit
from verify.metrics import FEW, Difference, difference, factor, over_peak, unequal
from verify.slots import SLOTS, by_slot, outliers
from verify.targets import integer

if TYPE_CHECKING:
    from verify.graphs.info import GraphInfo

METRICS = ("relative_l2", "max_over_peak", "nonfinite")
#: The values that indices point into, and the axis.
Pointed: TypeAlias = tuple[Array, int]


def bound(metric: str, precision: str) -> tuple[float, str]:
    """The built-in limit of one metric of a comparison, and where it comes from."""
    held = limit("compare", metric, precision)
    return (held.value, held.origin) if held else (-1.0, "no limit is known: never passed")


def row(
    name: str,
    wanted: Array,
    got: Array,
    precision: str,
    info: GraphInfo | None = None,
    at: Pointed | None = None,
    inner: bool = False,
) -> Row:
    """Judge one tensor; `at` is what an index tensor points into, `inner` says that it is no output of a model."""
    dtypes = (str(wanted.dtype), str(got.dtype))
    try:
        if at is not None:
            return _indices(name, wanted, got, precision, *at)
        if wanted.dtype.kind in "SUO" or got.dtype.kind in "SUO":
            count, first = unequal(wanted, got)
            notes = (f"{count} of {wanted.size} strings differ",) if count else ()
            return _made(name, DIFFERS if count else WITHIN, wanted, got, {"unequal": count}, first, notes)
        return _numbers(name, wanted, got, precision, info, inner)
    except NotComparable as error:
        return Row(name, NOT_COMPARABLE, wanted.shape, dtypes, notes=(str(error),))


def _made(
    name: str,
    outcome: str,
    wanted: Array,
    got: Array,
    metrics: Mapping[str, float],
    at: tuple[int, ...] | None,
    notes: tuple[str, ...],
) -> Row:
    a, b = (None, None) if at is None else (wanted[at].item(), got[at].item())
    return Row(name, outcome, wanted.shape, (str(wanted.dtype), str(got.dtype)), metrics, at, a, b, notes)


def _numbers(name: str, wanted: Array, got: Array, precision: str, info: GraphInfo | None, inner: bool) -> Row:
    d = difference(wanted, got)
    # integers and bool are exact (design, section 10), but for the codes of an integer build
    codes = integer(precision) and wanted.dtype.itemsize <= 2 and wanted.dtype.kind in "iu"
    exact = wanted.dtype.kind in "iub" and not codes
    peak = over_peak(d, wanted)
    good = _good(d, peak, "exact" if exact else precision)
    notes: list[str] = []
    if not good:
        notes += _explain(wanted, got, d, exact)
    if d.nonfinite_alike:
        notes.append(f"not finite in both, the reference included: {d.nonfinite_alike} of {wanted.size:,} elements")
    bad_parts = [*_blocks(name, wanted, got, precision, info), *_slots(wanted, got, d, precision)]
    dead = [] if info else list(_dead(wanted, got))
    bad_parts += [] if inner else dead
    notes += [*bad_parts, *(dead if inner else [])]
    keys = ("n", "relative_l2", "max_abs", "max_over_rms", "cosine", "gain", "sqnr_db", "nonfinite")
    metrics = {"max_over_peak": peak, **{key: getattr(d, key) for key in keys}}
    at = d.max_index if d.max_abs or d.nonfinite else None
    return _made(name, WITHIN if good and not bad_parts else DIFFERS, wanted, got, metrics, at, tuple(notes))


def _good(d: Difference, peak: float, precision: str) -> bool:
    # written so that NaN is not within
    held = {"relative_l2": d.relative_l2, "max_over_peak": peak, "nonfinite": d.nonfinite}
    return all(value <= bound(metric, precision)[0] for metric, value in held.items())


def _explain(wanted: Array, got: Array, d: Difference, exact: bool) -> Iterator[str]:
    if d.nonfinite:
        from verify.checkers.finite import nonfinite

        yield nonfinite(wanted, got)[2]
        return
    if not d.n:
        yield "nothing finite to compare"
        return
    if exact:
        count, _ = unequal(wanted, got)
        kind = "bool" if wanted.dtype.kind == "b" else "integers"
        yield f"{count:,} of {d.n:,} {kind} differ, by {d.max_abs:.17g} at most"
        if wanted.dtype.itemsize >= 4:
            yield "if they are indices, give --graph and --inputs: ties may be ordered either way"
        return
    gain = factor(d)
    if gain is not None:
        yield f"the candidate is about {gain:.4g} times the reference"
        return
    apart = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
    apart[~np.isfinite(apart)] = 0.0
    few = apart > d.max_abs / 2
    share = float((apart[few] ** 2).sum() / (apart**2).sum())
    if (
        d.n >= FEW and few.sum() <= max(1, d.n // 100) and share > 0.9
    ):  # one in a hundred carries nine tenths: a sparse fault
        yield f"{int(few.sum()):,} of {d.n:,} elements hold {share:.1%} of the error, off by up to {d.max_abs:.4g}"


def _blocks(name: str, wanted: Array, got: Array, precision: str, info: GraphInfo | None) -> Iterator[str]:
    """What a Concat joined, each piece judged by itself: a large piece hides a dead small one."""
    blocks = info.blocks(name) if info else None
    if not blocks or wanted.dtype.kind != "f":
        return
    from verify.checkers.diversity import varies

    axis, pieces = blocks
    cuts = np.cumsum([extent for _, extent in pieces])
    if not -wanted.ndim <= axis < wanted.ndim or wanted.shape[axis] != cuts[-1]:
        return
    parts = zip(pieces, np.split(wanted, cuts[:-1], axis), np.split(got, cuts[:-1], axis), cuts, strict=True)
    for (piece, extent), a, b, end in parts:
        d = difference(a, b)
        place = f"block from {piece} (axis {axis}, {end - extent} to {end - 1})"
        if varies(a) and not varies(b):
            nonzero = int(np.count_nonzero(b))
            yield f"{place} is {b.flat[0]:.4g} everywhere: {nonzero} of {b.size} elements are non-zero"
        elif not _good(d, over_peak(d, a), precision):
            yield f"{place}: relative_l2 = {d.relative_l2:.4g}"


def _dead(wanted: Array, got: Array) -> Iterator[str]:
    """Channels of one value where the reference varies: without a graph, they may be an output that was concatenated.

    Inner tensors of an integer build may lose a small channel honestly: there it is said, not judged.
    """
    if wanted.ndim < 3 or wanted.dtype.kind != "f" or wanted.shape[1] < 2:
        return
    a, b = (np.moveaxis(x, 1, 0).reshape(x.shape[1], -1) for x in (wanted, got))
    dead = np.flatnonzero((a != a[:, :1]).any(1) & ~(b != b[:, :1]).any(1))
    if 0 < len(dead) < len(a):
        names = ", ".join(str(i) for i in dead[:8]) + (", ..." if len(dead) > 8 else "")
        what = f"axis 1, index {names}: one value everywhere, where the reference varies"
        yield f"{what}; give --graph, so that what was concatenated is judged piece by piece"


def _slots(wanted: Array, got: Array, d: Difference, precision: str) -> Iterator[str]:
    """Batch slots beyond the limit, or far worse than the others, named: the mean over a batch hides them."""
    if wanted.ndim < 2 or not 1 < wanted.shape[0] <= SLOTS or wanted.dtype.kind != "f" or d.n < wanted.size:
        return
    each = by_slot(wanted, got)
    bad = ~(each <= bound("relative_l2", precision)[0])
    held = limit("layers", "slot_outlier", precision)
    bad |= ~(outliers(each, wanted) <= (held.value if held else -1.0))
    slots = np.flatnonzero(bad)
    if 0 < len(slots) < len(each):
        worst = np.abs(got.astype(np.float64) - wanted.astype(np.float64)).reshape(len(each), -1).max(1)
        names = ", ".join(str(i) for i in slots[:8]) + (", ..." if len(slots) > 8 else "")
        largest = " / ".join(f"{w:.2g}" for w in worst[:8]) + (" / ..." if len(worst) > 8 else "")
        many = f"{len(slots)} of {len(each)} slots are beyond the limit"
        yield f"batch index {names}: {many} (worst element by slot: {largest})"


def _indices(name: str, wanted: Array, got: Array, precision: str, values: Array, axis: int) -> Row:
    if wanted.shape != got.shape:
        raise NotComparable(f"shape {wanted.shape} vs {got.shape}")
    shape = wanted.shape
    if wanted.ndim < values.ndim:  # keepdims=0
        wanted, got = np.expand_dims(wanted, axis), np.expand_dims(got, axis)
    lost = value_lost(wanted, got, values, axis)
    held = limit("indices", "value_lost", precision)
    bad = ~(lost <= (held.value if held else -1.0))
    different = int((wanted != got).sum())
    wrong = int(bad.sum())
    notes = []
    if wrong:
        notes.append(f"{wrong:,} of {wanted.size:,} indices point at another value, or at none")
    if different - wrong > 0:
        notes.append(f"{different - wrong:,} indices differ between ties only: the order of ties is free")
    at = tuple(int(i) for i in np.argwhere(bad)[0]) if wrong else None
    metrics = {"wrong": wrong, "value_lost": float(lost.max()), "n": wanted.size}
    made = _made(name, DIFFERS if wrong else WITHIN, wanted, got, metrics, at, tuple(notes))
    return replace(made, shape=shape)
