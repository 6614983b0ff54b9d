"""Whether a model gives the same answer when it is asked again: one that does not is nothing to compare with."""

from __future__ import annotations

from verify.core import NotComparable, Tensors
from verify.limits import FP32


def unsteady(first: Tensors, again: Tensors) -> str:
    """What differs between two answers to the same question, in words; "" where float32's rounding explains it.

    State, random numbers and dropout show this way; the limit is the one that source and graph must hold.
    """
    from verify.metrics import difference, unequal
    from verify.structure import mismatches

    wrong = mismatches(first, again)
    if wrong:
        return "" if mismatches(first, first) == wrong else wrong[0]  # what is wrong each time is told elsewhere
    for name, value in first.items():
        try:
            if value.dtype.kind == "f":
                d = difference(value, again[name])
                if d.relative_l2 > FP32.value or d.nonfinite:
                    return f"{name}: relative_l2 = {d.relative_l2:.3g}"
            elif unequal(value, again[name])[0]:
                return f"{name}: {unequal(value, again[name])[0]} of {value.size} values differ"
        except NotComparable:  # as above
            continue
    return ""
