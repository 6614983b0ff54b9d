"""A batch's slots, each by itself and against each other: the mean over a batch hides the one that is wrong."""

from __future__ import annotations

import numpy as np

from verify.core import Array
from verify.metrics import by_axis, difference

#: A batch slot's rms counts as at least this share of the whole tensor's: honest float32 errs by up to 4e-6 of the
#: whole (verify.limits), which must stay within 1e-4 of a slot that holds little or nothing.
SLOT_FLOOR = 0.1
#: The first axis is a batch only up to here; beyond it, it is something else (boxes, points), and slots tell nothing.
SLOTS = 4096


def by_slot(wanted: Array, got: Array) -> Array:
    """relative_l2 of every batch slot (first axis), measured against no less than a tenth of the whole tensor's rms.

    float64, shape (wanted.shape[0],). Raises NotComparable.
    """
    return by_axis(wanted, got, 0, SLOT_FLOOR * difference(wanted, got).rms)


def outliers(each: Array, wanted: Array) -> Array:
    """How many times worse than the median slot each batch slot is, in size and in proportion, whichever is less.

    `each` is what `by_slot` gave for `wanted`. An error of 1 % counts as no more than 1: slots that are nearly right
    are no outliers. float64, same shape; NaN where `each` is.
    """
    rms = np.array([difference(slot, slot).rms for slot in wanted])
    size = each * np.maximum(rms, SLOT_FLOOR * difference(wanted, wanted).rms)
    middle = (len(each) - 1) // 2  # the lower median, so that one of two can be an outlier
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = [np.where(x > 0, x / np.sort(x)[middle], 0.0) for x in (size, each)]
    return np.asarray(np.where(np.isnan(each), np.nan, np.minimum(np.minimum(*ratios), each / 0.01)))
