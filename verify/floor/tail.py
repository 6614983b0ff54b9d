"""The limit of a ratio to the floor, from the parameters that a measurement carries: no model, no draw, no numpy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

ALPHA = 1e-3  # false alarms per candidate, all grains, tensors and cases together (design, section 3)
#: Whole tensors, and grains along their axes: alpha is shared between the two.
KINDS = ("tensor", "axis")

#: The model-error allowance by precision: (allowance, honest builds that it was learnt from). None of these builds
#: needed more than 1.00 (`make bench-floor`, docs/floor.md); 5 % is what the draws' own mean may be off by, as honest
#: fp16 tensors of encoder12 are (house choice). No false-alarm rate below 3 / n is claimed.
HONEST: Mapping[str, tuple[float, int]] = {"fp32": (1.05, 8), "fp16": (1.05, 8), "bf16": (1.25, 0), "w8a8": (1.05, 8)}


def quantile(location: float, scale: float, k: int, alpha: float) -> float:
    """The fitted (1 - alpha / 2) quantile of a Gumbel distribution plus one standard error of the fit to k maxima.

    The error is the asymptotic one: variance scale^2 / k (1.109 + 0.514 y + 0.608 y^2), y the reduced variate (Gumbel's
    maximum likelihood; Coles 2001, section 3.3.3, with shape 0), so that few draws make the limit wider.
    """
    y = -math.log(-math.log1p(-alpha / len(KINDS)))
    return location + scale * (y + math.sqrt((1.109 + 0.514 * y + 0.608 * y * y) / k))


def limit(null: Mapping[str, Any], alpha: float = ALPHA) -> float | None:
    """The largest honest ratio, None where the parameters are not usable: then nothing passes."""
    try:
        location, scale, spread = (float(null[name]) for name in ("location", "scale", "spread"))
        allowance, k = float(null["allowance"]), int(null["k"])
        found = allowance * math.exp(spread * quantile(location, scale, k, alpha))
    except (KeyError, TypeError, ValueError, OverflowError, ZeroDivisionError):
        return None
    usable = min(scale, spread) >= 0 and allowance >= 1 and k > 2 and math.isfinite(found)
    return found if usable else None
