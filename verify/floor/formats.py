"""Number formats as the builds round to them: IEEE binary16, bfloat16, and the quantisers' integer grids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from verify.core import Array

#: Bits of the significand without the leading one, and the exponent of the smallest normal number (IEEE 754, table 3.5;
#: bfloat16 is binary32's exponent with 7 bits).
FLOATS: Mapping[str, tuple[int, int]] = {"fp32": (23, -126), "fp16": (10, -14), "bf16": (7, -126)}
#: Codes of each integer type that a build states.
CODES = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}
#: Of an integer variant, the type of its activations; what else it computes in is binary16.
INTEGER = ("w8a8", "w8a16", "w4a16", "w16a16i_dfp")


@dataclass(frozen=True)
class Grid:
    """A quantiser's grid: value = (code - zero) * step for codes from `low` to `high`."""

    step: float
    zero: int
    low: int
    high: int

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest value."""
        return (self.low - self.zero) * self.step, (self.high - self.zero) * self.step

    def round(self, values: Array) -> Array:
        """The nearest values on the grid, ties to even, saturated; float64."""
        codes = np.rint(np.asarray(values, np.float64) / self.step) + self.zero
        return np.asarray((np.clip(codes, self.low, self.high) - self.zero) * self.step)


def grid(scale: Mapping[str, Any] | None) -> Grid | None:
    """The grid of one entry of Build.scales, or None where it states none that is known."""
    if scale is None or scale.get("dtype") not in CODES or not 0 < float(scale.get("scale") or 0) < float("inf"):
        return None
    return Grid(float(scale["scale"]), int(scale["zero_point"]), *CODES[scale["dtype"]])


def ulp(values: Array, precision: str) -> Array:
    """The unit in the last place at each value's own exponent, float64; the smallest one for subnormals and zero."""
    bits, least = FLOATS[precision]
    with np.errstate(over="ignore", invalid="ignore"):
        _, exponent = np.frexp(np.where(np.isfinite(values), values, 0.0))
    at = np.maximum(exponent - 1, least)  # frexp's fraction lies in [0.5, 1)
    return np.asarray(np.where(np.asarray(values) == 0, 2.0 ** (least - bits), np.ldexp(1.0, at - bits)))


def to_float(values: Array, precision: str) -> Array:
    """Values rounded to a float format (ties to even; overflow to infinity) and held as float32."""
    with np.errstate(over="ignore"):
        if precision == "fp16":
            return np.asarray(values, np.float16).astype(np.float32)
        single = np.asarray(values, np.float32)
    if precision == "bf16":
        bits = np.ascontiguousarray(single).view(np.uint32)
        even = (bits >> np.uint32(16)) & np.uint32(1)
        held = ((bits + np.uint32(0x7FFF) + even) & np.uint32(0xFFFF0000)).view(np.float32)
        return np.asarray(np.where(np.isnan(single), single, held)).reshape(single.shape)
    return single


#: How near to a tie a weight may lie for either code to be right, in steps: float32 arithmetic of a step and a quotient
#: leaves about 1e-5 of 128 steps undetermined.
TIE = 1e-4


def by_channel(weight: Array, axis: int) -> tuple[Array, Array]:
    """An integer weight as the vendor rounds it, asymmetric per channel along `axis`, and the step where it ties.

    lo = min(w, 0), hi = max(w, 0), step = (hi - lo) / 255, zero = round(-128 - lo / step) (rknn-toolkit2 2.5.0,
    measured). The second array holds one signed step where a weight lies on a tie, so that either code is right, else
    0. Both float64, of the weight's shape.
    """
    wide = np.asarray(weight, np.float64)
    low, step = _channels(wide, axis)
    zero = np.rint(-128 - low / step)
    exact = wide / step
    codes = np.clip(np.rint(exact) + zero, -128, 127)
    off = exact - np.rint(exact)
    tied = np.abs(np.abs(off) - 0.5) < TIE
    return (codes - zero) * step, np.where(tied, np.sign(off) * step, 0.0)


def channel_steps(weight: Array, axis: int) -> Array:
    """The step of every channel of `by_channel`, float64, with the other axes of extent 1."""
    return _channels(np.asarray(weight, np.float64), axis)[1]


def _channels(wide: Array, axis: int) -> tuple[Array, Array]:
    others = tuple(i for i in range(wide.ndim) if i != axis % wide.ndim)
    low, high = np.minimum(wide.min(others, keepdims=True), 0), np.maximum(wide.max(others, keepdims=True), 0)
    step = (high - low) / 255
    return low, np.where(step > 0, step, 1.0)
