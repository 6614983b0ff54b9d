"""Top-1 of a classifier."""

from __future__ import annotations

import numpy as np

from verify.core import Array, NotComparable, Tensors


def score(expected: Tensors, outputs: Tensors) -> float:
    """Share of rows whose most likely class is the label; the first output's classes lie along its last axis.

    `expected` holds integer labels, one per row, under any name, or the source's logits in the output's own shape.
    A row with NaN is wrong. Raises NotComparable when rows and labels do not pair up.
    """
    if not outputs or not expected:
        raise NotComparable("no outputs came back" if not outputs else "no label", "score classification")
    name, logits = next(iter(outputs.items()))
    wanted = np.asarray(expected[name] if name in expected else next(iter(expected.values())))
    logits = np.asarray(logits)
    if logits.ndim == 0 or logits.shape[-1] < 2:
        raise NotComparable(
            f"shape {logits.shape} holds no classes",
            f"score classification, output {name}",
            "use agreement or a score of your own",
        )
    if wanted.dtype.kind not in "iu" and wanted.shape != logits.shape:  # argmax of a float label would be class 0
        raise NotComparable(
            f"expected is {wanted.dtype} of shape {wanted.shape}, logits {logits.shape}",
            f"score classification, output {name}",
            "give integer labels, or logits of that shape",
        )
    labels = wanted.ravel() if wanted.dtype.kind in "iu" else _top(wanted)
    found = _top(logits)
    if labels.size != found.size or not found.size:
        raise NotComparable(f"{found.size} rows, {labels.size} labels", f"score classification, output {name}")
    return float(np.mean((found == labels) & (found >= 0)))


def _top(logits: Array) -> Array:
    """The most likely class of each row; -1 (which is right for no label) where the row holds NaN."""
    rows = logits.reshape(-1, logits.shape[-1])
    if rows.dtype.kind != "f":
        return np.asarray(rows.argmax(-1))
    return np.where(np.isnan(rows).any(-1), -1, np.nan_to_num(rows, nan=0.0).argmax(-1))
