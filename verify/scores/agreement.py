"""Agreement with the source model: what is scored when a candidate declares no score of its own."""

from __future__ import annotations

import numpy as np

from verify.core import Array, Tensors
from verify.scores._pair import pick


def score(expected: Tensors, outputs: Tensors) -> float:
    """1 - min(1, |output - source| / |source|), the worst output's; other than floats: the share that is equal.

    `expected` are the source's outputs; float arrays of any shape, one sample. An output that is not finite scores 0;
    NaN (which the caller counts as the worst loss) when the source is not finite. Raises NotComparable.
    """
    scores = [_one(wanted, got) for wanted, got in pick(expected, outputs, "agreement")]
    return float("nan") if any(value != value for value in scores) else min(scores)


def _one(wanted: Array, got: Array) -> float:
    if wanted.dtype.kind not in "fc":
        return float(np.mean(wanted == got))
    # float64, or a sum of squares of fp16 values overflows
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    reference, output = wanted.astype(wide), got.astype(wide)
    if not np.isfinite(reference).all():
        return float("nan")
    if not np.isfinite(output).all():
        return 0.0
    error, size = float(np.linalg.norm(output - reference)), float(np.linalg.norm(reference))
    return 1.0 - min(1.0, error / size) if size else float(error == 0)
