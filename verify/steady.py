"""Whether a reference can be believed: it answers alike when it is asked again, and as its cases expect."""

from __future__ import annotations

from collections.abc import Sequence

from verify.core import Case, NotComparable, Recording, Tensors
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


#: Outputs that came with a model were computed elsewhere, maybe on a GPU in half precision (house choice).
EXPECTED = 1e-2


def contradicted(cases: Sequence[Case], source: Sequence[Recording]) -> list[str]:
    """A note for the first case whose expected outputs are not what the source gives; labels are none of them."""
    from verify.metrics import difference

    for case, recording in zip(cases, source, strict=True):
        for name, wanted in (case.expected or {}).items():
            got = recording.outputs.get(name)
            if got is None or wanted.dtype.kind != "f" or wanted.shape != got.shape or not wanted.size:
                continue
            d = difference(wanted, got)
            if not d.relative_l2 <= EXPECTED and d.n:
                far = f"relative_l2 = {d.relative_l2:.3g}"
                return [
                    f"the source does not give what case {case.name} expects of {name} ({far}): another model's data?"
                ]
    return []
