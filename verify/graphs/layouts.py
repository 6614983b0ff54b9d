"""How an array may be laid out as another of as many elements: an order of its axes, joined or split."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import permutations

import numpy as np


@lru_cache(maxsize=4096)
def layouts(dump: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Every (view, order) that may lay an array of shape `dump` out as one of shape `wanted`, the plain one first.

    Axes of extent 1 are free. Axes may be joined or split where all parts of one shape's axes are axes of the other.
    """
    a, b = (tuple(extent for extent in shape if extent != 1) for shape in (dump, wanted))
    if math.prod(a) != math.prod(b):
        return ()
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], None] = {(a, tuple(range(len(a)))): None}
    for order in permutations(range(len(a))):  # the dump's axes, joined where the reference has fewer
        if _joins(tuple(a[axis] for axis in order), b):
            found[a, order] = None
    for order in permutations(range(len(b))):  # the dump's axes, split where the reference has more
        view = tuple(b[axis] for axis in order)
        if len(b) > len(a) and _joins(view, a):
            found[view, tuple(int(i) for i in np.argsort(order))] = None
    return tuple(found)


def _joins(parts: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether neighbouring `parts` multiply up to `whole`, in order."""
    i = 0
    for extent in whole:
        product = 1
        while product < extent and i < len(parts):
            product *= parts[i]
            i += 1
        if product != extent:
            return False
    return i == len(parts)
