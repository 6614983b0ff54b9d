"""The built-in limits, each with its origin; `verify.policy` may tighten them, and only a dated waiver loosens one.

They are plain ratios, but for `over_floor`: its limit follows from the null that each measurement carries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verify.floor import tail


@dataclass(frozen=True)
class Limit:
    """`action`: "fail" denies, "warn" prints, "report" only states. Passes when value <= `value`; NaN never does."""

    value: float
    origin: str
    action: str = "fail"


ZERO = "structure and masks are exact: nothing is tolerated"
DESTROYED = Limit(0.999, "error >= signal: what came back says less than zeros would (all zeros give exactly 1)")
REPORT = Limit(float("inf"), "stated, not judged; a budget in candidate.toml makes it a gate", "report")

# Honest float32 pairs (source against graph, fused against graph) stay below 2.6e-6 in relative L2 and 1.7e-5 in the
# worst element over the largest on every fixture (`python benchmarks/honest.py`); a 2 % fault in one FFN of a 12-layer
# encoder is 8e-3.
FP32 = Limit(1e-4, "38 x the worst honest float32 pair of the fixtures")
FP32_WORST = Limit(4e-4, "24 x the worst honest float32 element of the fixtures")
# Vendor simulator, fp16: the worst honest build measured is 31.6 dB (24 layers with outlier channels), that is 0.026.
FP16 = Limit(0.1, "4 x the worst honest fp16 build measured (31.6 dB, 24 layers with outlier channels)")
BF16 = Limit(0.5, "fp16's limit x 8 (three bits fewer), capped at half the signal")
# An integer build has no honest general bound short of the signal itself (PP-OCR det: 3.4 dB, one calibration image);
# whether its error matters is tier 3's question.
LOW = {"exact": Limit(0.0, "exact was asked for"), "fp32": FP32, "fp16": FP16, "bf16": BF16, "*": DESTROYED}
WORST = {
    "exact": Limit(0.0, "exact was asked for"),
    "fp32": FP32_WORST,
    "fp16": Limit(0.5, "5 x the worst honest fp16 element of the fixtures (PP-OCR det, where its sigmoid is steep)"),
    "bf16": Limit(2.0, "fp16's limit x 8 (three bits fewer), capped at twice the largest value"),
    "*": Limit(
        2.0, "twice the largest value: an integer build clips, so the worst that it makes of it is its opposite"
    ),
}

LIMITS: Mapping[tuple[str, str], Mapping[str, Limit]] = {
    ("structure", "mismatches"): {"*": Limit(0, ZERO)},
    ("finite", "nonfinite"): {"*": Limit(0, ZERO)},
    ("finite", "nonfinite_in_both"): {"*": Limit(0, "the reference itself is not finite there", "warn")},
    ("coverage", "outputs_uncovered"): {"*": Limit(0, "an output that was never compared fails")},
    ("coverage", "layers_uncovered"): {"*": REPORT},
    ("diversity", "dead_blocks"): {"*": Limit(0, "a block that is constant although the reference varies there")},
    ("diversity", "blind_outputs"): {"*": Limit(0, "an output that is the same in every case proves nothing", "warn")},
    ("diversity", "blind_cases"): {"*": Limit(0, "cases that all give the same prove nothing")},
    ("diversity", "frozen_branches"): {"*": Limit(0, "a way that no case goes was never compared")},
    ("diversity", "baked_shapes"): {"*": Limit(0, "an extent that no case has was never compared")},
    ("indices", "wrong"): {"*": Limit(0, "an index may differ only between ties")},
    ("indices", "value_lost"): LOW,
    ("parity", "relative_l2"): {"*": FP32},
    ("parity", "max_over_peak"): {"*": FP32_WORST},
    ("parity", "unequal"): {"*": Limit(0, "integers, bool and strings are exact (design, section 10)")},
    ("layers", "relative_l2"): LOW,
    ("layers", "over_floor"): {"*": Limit(float("inf"), "the null that each measurement carries (docs/floor.md)")},
    ("layers", "no_floor"): {"*": REPORT},
    ("layers", "max_over_peak"): {**WORST, "*": Limit(2.0, "twice the largest value", "warn")},
    ("layers", "factor"): {"*": Limit(0.01, "one factor explains the error: no rounding does that (verify.metrics)")},
    ("layers", "slot_outlier"): {"*": Limit(10, "slots of one honest batch err alike, within a small factor")},
    ("layers", "integers"): {
        "exact": Limit(0, "exact was asked for"),
        "fp32": Limit(0, "integers and bool are exact (design, section 10), as in tier 1"),
        "*": REPORT,  # what a threshold or a rounding makes of values that carry rounding: tier 3 decides
    },
    ("layers", "isolated_odds"): {
        "*": Limit(3, "-log10 of alpha = 1e-3 for a candidate, all regions, channels and rows together (Bonferroni)")
    },
    ("layers", "isolated_worst"): {"*": Limit(1, "the worst element of honest builds, with room (floor/allowance.py)")},
    ("layers", "isolated_gain"): {"*": Limit(1, "the gain of honest builds, with room (floor/allowance.py)")},
    ("layers", "rewritten"): {
        "*": Limit(100, "4 x the worst of 16 honest builds of the toolkit, whose median is 0.8 (`make bench-regions`)")
    },
    ("layers", "not_replayed"): {"*": REPORT},
    ("layers", "gain"): {"*": REPORT},  # of `power`: the smallest faults that would have been caught
    ("layers", "bias"): {"*": REPORT},
    ("layers", "channel"): {"*": REPORT},
    ("layers", "element"): {"*": REPORT},
    ("layers", "unequal"): {"*": Limit(0, "strings are equal or not")},
    ("layers", "isolated_l2"): {
        **LOW,
        "*": Limit(
            0.5, "one layer alone loses half of its signal; the vendor's honest int8 layers stay below 0.25", "warn"
        ),
    },
    ("range", "destroyed"): {"*": DESTROYED},
    ("range", "softmax_step"): {"*": Limit(1.39, "2 ln 2: half a step then doubles or halves a weight", "warn")},
    ("range", "clipped"): {"*": Limit(0.01, "1 % of the elements beyond the quantiser's range", "warn")},
    ("range", "below_step"): {"*": Limit(0.9, "90 % of the non-zero elements within half a step of zero", "warn")},
    ("range", "over_65504"): {"*": Limit(0, "largest finite number of IEEE binary16", "warn")},
    ("regions", "departures"): {"*": REPORT},
    ("accuracy", "loss"): {},  # the candidate's own margin
    ("agreement", "relative_error"): {"*": DESTROYED},
    ("agreement", "cosine_distance"): {"*": REPORT},
    ("agreement", "top1_flips"): {"*": REPORT},
    ("compare", "relative_l2"): LOW,
    ("compare", "max_over_peak"): WORST,
    ("compare", "nonfinite"): {"*": Limit(0, ZERO)},
}


#: Metrics whose limit follows from the null that the measurement carries.
NULLED = frozenset({"over_floor"})


def limit(checker: str, metric: str, precision: str = "*") -> Limit | None:
    """The built-in limit of one metric at one precision, or None where there is none: then it is not passed."""
    by_precision = LIMITS.get((checker, metric), {})
    return by_precision.get(precision, by_precision.get("*"))


def of_null(null: Mapping[str, Any], alpha: float) -> Limit | None:
    """The limit that a measurement's own null gives; None where it carries no usable one: then it is not passed."""
    bound = tail.limit(null, alpha)
    if bound is None:
        return None
    what = f"{null['k']} draws, {alpha:g} false alarms a candidate, model error {null['allowance']:g}"
    return Limit(bound, f"{what} (learnt from {null.get('n', 0)} honest builds)")
