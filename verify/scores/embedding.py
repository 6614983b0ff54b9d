"""Cosine of an embedding to the source model's."""

from __future__ import annotations

import numpy as np

from verify.core import Array, Tensors
from verify.scores._pair import pick


def score(expected: Tensors, outputs: Tensors) -> float:
    """Cosine between output and source along the last axis, clipped to [0, 1], mean over the rows, the worst output's.

    `expected` are the source's outputs, float arrays of equal shape. An output that is not finite or zero scores 0; NaN
    (which the caller counts as the worst loss) when the source is not finite or zero. Raises NotComparable.
    """
    scores = [_one(wanted, got) for wanted, got in pick(expected, outputs, "embedding")]
    return float("nan") if any(value != value for value in scores) else min(scores)


def _one(wanted: Array, got: Array) -> float:
    # float64, or a dot product of fp16 values overflows to NaN
    reference = np.atleast_1d(wanted).astype(np.float64).reshape(-1, np.atleast_1d(wanted).shape[-1])
    output = np.atleast_1d(got).astype(np.float64).reshape(reference.shape)
    size, other = np.linalg.norm(reference, axis=-1), np.linalg.norm(output, axis=-1)
    if not np.isfinite(size).all() or not size.all():
        return float("nan")
    good = np.isfinite(other) & (other > 0)
    dots = np.einsum("ij,ij->i", reference[good], output[good]) / (size[good] * other[good])
    return float(np.clip(dots, 0.0, 1.0).sum() / len(reference))
