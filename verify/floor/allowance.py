"""What honest builds show beyond the roundings that are replayed: data, with its origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Allowance:
    """Of a kind of region: at most `rate` of the elements are more than `width` beyond, none more than `worst`.

    `width` and `worst` are in units and slacks, as `Isolated.excess`; `gain` bounds how far a region's gain is from 1.
    """

    width: float
    rate: float
    worst: float
    gain: float


#: Nothing but sums in another order: of 312 million elements of 16 honest builds none is beyond the width, the worst by
#: 0.005 units (`make bench-regions`; the width is four times that, the rate one that no count of zero contradicts).
EXACT = Allowance(0.02, 1e-4, 1.0, 1e-3)
#: By unit and kind. Honest builds beyond, worst (`make bench-regions`): norm 3 ulp (rows of which one channel holds the
#: variance); attention 0.8 steps and 0.5 ulp (a code inside it that lies on a tie); softmax 0.12 ulp. Of products of
#: two activations, scaled behind a rounding that the build says nothing of, 1.2 steps in an unfused attention.
ALLOWANCES: Mapping[tuple[str, str], Allowance] = {
    ("unrounded step", "linear"): Allowance(0.1, 1e-3, 1.0, 5e-4),
    ("unrounded step", "fused"): Allowance(0.1, 1e-3, 1.0, 5e-4),
    ("ulp", "linear"): Allowance(0.05, 1e-3, 1.0, 1e-3),
    ("ulp", "fused"): Allowance(0.05, 1e-3, 1.0, 1e-3),
    ("ulp", "norm"): Allowance(0.5, 1e-3, 12.0, 1e-3),
    ("ulp", "attention"): Allowance(0.25, 1e-3, 2.0, 1e-3),
    ("step", "attention"): Allowance(0.5, 1e-3, 3.0, 1e-3),
    ("step", "product"): Allowance(1.5, 1e-3, 3.0, 1e-3),
    ("ulp", "softmax"): Allowance(0.25, 1e-3, 2.0, 1e-3),
}
#: One in a thousand honest candidates may alarm (design, section 3), all regions, channels and rows together.
ALPHA = 1e-3


def allowance(unit: str, kind: str) -> Allowance:
    """The allowance of a kind of region ("linear", "attention", ...) judged in steps or units in the last place."""
    return ALLOWANCES.get((unit, kind), EXACT)
