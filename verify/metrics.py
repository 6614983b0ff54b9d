"""Every number of a comparison in one pass: float64 sums over blocks, constant memory, NaN-strict."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verify.core import Array, NotComparable

#: Elements at a time. OpenBLAS starts threads for dot products beyond 10,000 elements, which costs more than it brings
#: and makes the last bits depend on the machine; three float64 buffers of this size stay in a 256 kB cache.
BLOCK = 9984
#: Sums of squares outside these bounds may have lost elements to under- or overflow; only float64 input gets there.
SAFE = (1e-280, 1e280)

#: A factor explains an error of which it leaves less than this share. Honest errors are not explained: over the outputs
#: of all fixtures 0.75 of them or more is left (fp16, int8, fused float32; outputs of one or two numbers aside).
EXPLAINED = 0.1
#: Fewer elements than this show no factor: one number is always a multiple of another.
FEW = 8
#: A gain nearer to 1 than this is left to the other metrics: honest gains of the fixtures in fp16 are within 1e-3.
OFF = 0.01


@dataclass(frozen=True)
class Difference:
    """How far `got` is from `wanted`; sums run over the `n` elements that are finite in both.

    relative_l2 = |got - wanted| / |wanted|; max_over_rms = max |got - wanted| / rms(wanted); cosine of the two; `gain`
    is the factor of the least-squares fit got = gain * wanted; sqnr_db = -20 log10(relative_l2). `max_index` is where
    the largest difference stands, `rms` the reference's. `nonfinite` counts elements that are not finite in one and not
    alike in the other: if there are any, or nothing is left to compare, every number is NaN, which no limit lets pass,
    and `max_index` is the first of them. `nonfinite_alike` counts those that are alike and were left out.
    """

    n: int
    relative_l2: float
    max_abs: float
    max_index: tuple[int, ...]
    max_over_rms: float
    cosine: float
    gain: float
    sqnr_db: float
    rms: float
    nonfinite: int = 0
    nonfinite_alike: int = 0


def difference(wanted: Array, got: Array, scale_floor: float = 0.0) -> Difference:
    """Compare two arrays of one shape: floats of at most 64 bits, integers, bool, in any mixture.

    `scale_floor` (in the tensor's units) is what the format resolves, for example a quantiser's step: the reference's
    rms counts as no less. Integers are subtracted exactly. A reference of zeros gives relative_l2 0 if `got` is zero
    too, else infinity. Raises NotComparable for unequal shapes (nothing is broadcast), empty arrays and other dtypes.
    """
    wanted, got = np.asarray(wanted), np.asarray(got)
    _comparable(wanted, got)
    if wanted.dtype.kind in "iub" and got.dtype.kind in "iub" and _wide(wanted.dtype) | _wide(got.dtype):
        sums = _add(_integers(wanted, got))
    else:
        sums = _add(_floats(wanted, got, 1.0))
        low, high = SAFE
        size = sums.ww + sums.gg
        if _wide(wanted.dtype) | _wide(got.dtype) and not sums.nonfinite and not low < size < high:
            scale = _power_of_two(wanted, got)
            sums = _add(_floats(wanted, got, scale))
            return _result(sums, wanted.shape, scale_floor * scale, scale)
    return _result(sums, wanted.shape, scale_floor, 1.0)


def over_peak(d: Difference, wanted: Array) -> float:
    """The largest difference over the reference's largest finite magnitude: it sees one ruined element.

    Not over its rms: of a softmax over 6,625 characters that is 0.01, and an honest fp16 build is 1.7 times it away
    (PP-OCR rec). 0 if nothing differs, infinity where only the reference is zero, NaN where `d` is.
    """
    peak = max(float(wanted.max(initial=0)), -float(wanted.min(initial=0)))
    if not math.isfinite(peak):
        peak = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
    return d.max_abs / peak if peak else (d.max_abs if not d.max_abs > 0 else math.inf)


def factor(d: Difference) -> float | None:
    """The gain of a difference that this one factor explains, None for any other: a scale is no rounding."""
    left = abs(1.0 - d.cosine**2) ** 0.5  # what the least-squares fit leaves, as a share of the candidate
    if d.n >= FEW and abs(d.gain - 1) > OFF and left < EXPLAINED * d.relative_l2:
        return d.gain
    return None


def by_axis(wanted: Array, got: Array, axis: int, scale_floor: float = 0.0) -> Array:
    """relative_l2 of every index along `axis`, float64, shape (wanted.shape[axis],); raises NotComparable."""
    wanted, got = np.asarray(wanted), np.asarray(got)
    _comparable(wanted, got)
    pairs = zip(np.moveaxis(wanted, axis, 0), np.moveaxis(got, axis, 0), strict=True)
    return np.array([difference(a, b, scale_floor).relative_l2 for a, b in pairs])


def unequal(wanted: Array, got: Array) -> tuple[int, tuple[int, ...] | None]:
    """How many elements are not equal, and the index of the first: for strings and whatever has no distance.

    Raises NotComparable for unequal shapes and empty arrays.
    """
    wanted, got = np.asarray(wanted), np.asarray(got)
    _same_shape(wanted, got)
    differs = np.asarray(wanted != got, dtype=bool)
    count = int(np.count_nonzero(differs))
    return count, _index(int(differs.argmax()), wanted.shape) if count else None


@dataclass
class _Sums:
    n: int = 0
    ww: float = 0.0
    gg: float = 0.0
    wg: float = 0.0
    dd: float = 0.0
    worst: float = 0.0
    at: int = 0
    nonfinite: int = 0
    alike: int = 0
    first: int | None = field(default=None)


def _same_shape(wanted: Array, got: Array) -> None:
    if wanted.ndim != got.ndim:
        raise NotComparable(f"rank {wanted.ndim} vs {got.ndim} (shape {wanted.shape} vs {got.shape})")
    if wanted.shape != got.shape:
        raise NotComparable(f"shape {wanted.shape} vs {got.shape}")
    if not wanted.size:
        raise NotComparable(f"empty: shape {wanted.shape} holds nothing to compare")


def _comparable(wanted: Array, got: Array) -> None:
    for array in (wanted, got):
        # a longer float than 64 bits would turn into an infinity that is alike on both sides
        if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
            raise NotComparable(f"dtype {array.dtype} has no distance", do="compare floats, integers or bool")
    _same_shape(wanted, got)


def _wide(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize == 8


def _index(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, shape))


def _blocks(wanted: Array, got: Array) -> Iterator[tuple[Array, Array]]:
    """Flat pieces of both in C order, whatever their layout in memory; a piece is only valid until the next."""
    if wanted.flags.c_contiguous and got.flags.c_contiguous:
        a, b = wanted.reshape(-1), got.reshape(-1)
        yield from ((a[i : i + BLOCK], b[i : i + BLOCK]) for i in range(0, a.size, BLOCK))
        return
    flags: Any = ["external_loop", "buffered"]
    yield from np.nditer([wanted, got], flags, [["readonly"], ["readonly"]], order="C", buffersize=BLOCK)


def _floats(wanted: Array, got: Array, scale: float) -> Iterator[tuple[Array, Array, Array]]:
    """(wanted, got, got - wanted) in float64, piece by piece; exact for everything that fits float64."""
    wide, narrow = (np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)), np.empty(BLOCK, np.int32)
    (a, b, d), work = wide, narrow
    with np.errstate(invalid="ignore", over="ignore"):
        for x, y in _blocks(wanted, got):
            if len(x) != len(a):  # the last, or what numpy hands out where neither is contiguous
                (a, b, d), work = (buffer[: len(x)] for buffer in wide), narrow[: len(x)]
            for piece, into in ((x, a), (y, b)):
                _widen(piece, into, work)
                if scale != 1.0:
                    np.multiply(into, scale, out=into)
            yield a, b, np.subtract(b, a, out=d)


BINARY16 = np.dtype(np.float16)  # of this machine's byte order
# What a binary32 number keeps of an IEEE binary16 one, sign-extended and shifted by 13: sign, exponent, fraction.
HALF = np.array(0x8FFFE000, np.uint32).view(np.int32)
# The exponents' biases are 15 and 127, so the shifted pattern stands for 2**(127 - 15) times too little.
HALF_SCALE = np.float32(2.0**112)


def _widen(piece: Array, into: Array, work: Array) -> None:
    """Copy to float64. numpy converts binary16 one by one; by its bits it takes half the time."""
    if piece.dtype != BINARY16:
        np.copyto(into, piece, casting="unsafe")
        return
    np.copyto(work, piece.view(np.int16))
    np.left_shift(work, 13, out=work)
    np.bitwise_and(work, HALF, out=work)
    single = work.view(np.float32)
    np.multiply(single, HALF_SCALE, out=single)
    if np.abs(single).max() >= 65536.0:  # where infinities and NaN land: the pattern has no finite number there
        np.copyto(into, piece)
    else:
        np.copyto(into, single)


def _integers(wanted: Array, got: Array) -> Iterator[tuple[Array, Array, Array]]:
    """As `_floats`, but with a difference that is zero only where 64-bit integers are equal, beyond 2**53 too."""
    for x, y in _blocks(wanted, got):
        parts = []
        for piece in (x, y):
            whole = piece if _wide(piece.dtype) else piece.astype(np.int64)
            high = (whole >> whole.dtype.type(32)).astype(np.float64)
            parts.append((high, (whole & whole.dtype.type(0xFFFFFFFF)).astype(np.float64)))
        (x_high, x_low), (y_high, y_low) = parts
        high, low = 2.0**32 * (y_high - x_high), y_low - x_low
        yield 2.0**32 * x_high + x_low, 2.0**32 * y_high + y_low, high + low


def _add(pieces: Iterator[tuple[Array, Array, Array]]) -> _Sums:
    sums, start = _Sums(), 0
    for a, b, d in pieces:
        n = len(a)
        dd, ww, gg = float(d.dot(d)), float(a.dot(a)), float(b.dot(b))
        if not math.isfinite(dd + ww + gg):
            a, b, d = _without_nonfinite(sums, start, a, b, d)
            dd, ww, gg = float(d.dot(d)), float(a.dot(a)), float(b.dot(b))
        sums.n += len(a)
        sums.ww, sums.gg, sums.dd, sums.wg = sums.ww + ww, sums.gg + gg, sums.dd + dd, sums.wg + float(a.dot(b))
        # blocks that are equal hold no worst element; a sum of 0 may also be differences too small to square
        if dd > 0.0 or sums.worst == 0.0:
            np.abs(d, out=d)
            at = int(d.argmax())
            if d[at] > sums.worst:
                sums.worst, sums.at = float(d[at]), start + at
        start += n
    return sums


def _without_nonfinite(sums: _Sums, start: int, a: Array, b: Array, d: Array) -> tuple[Array, Array, Array]:
    """Count the non-finite elements and put zeros in their place, in all three, so that positions stay."""
    good_a, good_b = np.isfinite(a), np.isfinite(b)
    good = good_a & good_b
    alike = ~good & ((np.isnan(a) & np.isnan(b)) | (a == b))
    bad = ~good & ~alike
    if sums.first is None and bad.any():
        sums.first = start + int(bad.argmax())
    sums.nonfinite += int(np.count_nonzero(bad))
    sums.alike += int(np.count_nonzero(alike))
    sums.n -= int(np.count_nonzero(~good))
    return np.where(good, a, 0.0), np.where(good, b, 0.0), np.where(good, d, 0.0)


def _power_of_two(wanted: Array, got: Array) -> float:
    """A factor that brings the largest finite magnitude near 1 exactly; 1 where everything is zero."""
    peak = 0.0
    for a, b, _ in _floats(wanted, got, 1.0):
        for piece in (a, b):
            finite = np.abs(piece[np.isfinite(piece)])
            peak = max(peak, float(finite.max()) if finite.size else 0.0)
    if peak == 0.0:
        return 1.0
    return 2.0 ** min(-math.frexp(peak)[1], 1000)  # 2**1074 is not a float64; the deepest subnormals stay below 2**-74


def _result(sums: _Sums, shape: tuple[int, ...], scale_floor: float, scale: float) -> Difference:
    nan = math.nan
    if sums.nonfinite or not sums.n:
        at = _index(sums.first or 0, shape)
        return Difference(sums.n, nan, nan, at, nan, nan, nan, nan, nan, sums.nonfinite, sums.alike)
    rms = math.sqrt(sums.ww / sums.n)
    floor = max(rms, scale_floor)
    relative = _ratio(math.sqrt(sums.dd / sums.n), floor)
    both = math.sqrt(sums.ww) * math.sqrt(sums.gg)
    return Difference(
        n=sums.n,
        relative_l2=relative,
        max_abs=sums.worst / scale,
        max_index=_index(sums.at, shape),
        max_over_rms=_ratio(sums.worst, floor),
        cosine=sums.wg / both if both else float(sums.ww == sums.gg),
        gain=sums.wg / sums.ww if sums.ww else nan,
        sqnr_db=-20.0 * math.log10(relative) if relative else math.inf,
        rms=rms / scale,
        nonfinite_alike=sums.alike,
    )


def _ratio(error: float, size: float) -> float:
    return error / size if size else (math.inf if error else 0.0)
