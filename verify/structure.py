"""What differs between two sets of outputs before any number is formed: names, order, rank, shape, kind of dtype."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verify.core import Array, NotComparable, Tensors
from verify.metrics import difference

#: Signed and unsigned integers are apart (a quantised output read with the other sign is 128 off); widths are not.
KINDS = {"f": "float", "i": "integer", "u": "unsigned integer", "b": "bool", "c": "complex"}
#: A permutation is named only where the values in place say that they are foreign to each other (unrelated signals of
#: equal size are 1.41 apart), and another order brings them at least three times nearer (house choice: honest int8
#: outputs are up to 0.5 apart, so order is never guessed from noise).
FOREIGN, NEARER = 0.5, 3.0


def mismatches(reference: Tensors, candidate: Tensors) -> list[str]:
    """One line for each thing that differs, in the reference's order; empty when numbers may be formed.

    Float widths may differ, integer widths too; float against integer, another rank or shape, a missing or an extra
    output and another order are mismatches. A permutation is one line: by names, else by shapes, else by values.
    """
    if not reference:
        return ["the reference holds no outputs"]
    if not candidate:
        return [f"no outputs came back, expected {', '.join(reference)}"]
    found = [f"output {name} did not come back" for name in reference if name not in candidate]
    found += [f"output {name} is not one of the reference's" for name in candidate if name not in reference]
    common = [name for name in reference if name in candidate]
    came = [name for name in candidate if name in reference]
    if common != came:
        found.append(f"outputs are permuted: expected {', '.join(common)}; got {', '.join(came)}")
    shaped = _by_shape(common, reference, candidate)
    if shaped:
        return [*found, _say(common, shaped, "shape")]
    for name in common:
        found += _differs(name, np.asarray(reference[name]), np.asarray(candidate[name]))
    if not found:
        valued = permutation(reference, candidate)
        if valued:
            found.append(_say(list(reference), valued, "value"))
    return found


def _differs(name: str, wanted: Array, got: Array) -> list[str]:
    found = []
    if wanted.ndim != got.ndim:
        found.append(f"output {name}: rank {wanted.ndim} vs {got.ndim} (shape {wanted.shape} vs {got.shape})")
    elif wanted.shape != got.shape:
        found.append(f"output {name}: shape {wanted.shape} vs {got.shape}")
    elif not wanted.size:
        found.append(f"output {name}: empty, shape {wanted.shape}: nothing to compare")
    kinds = _kind(wanted), _kind(got)
    if kinds[0] != kinds[1]:
        found.append(f"output {name}: dtype {wanted.dtype} vs {got.dtype} ({kinds[0]} vs {kinds[1]})")
    return found


def _kind(value: Array) -> str:
    return KINDS.get(value.dtype.kind, "raw bytes" if value.dtype.kind == "V" else "string")


def _say(names: Sequence[str], order: Sequence[str], by: str) -> str:
    return f"outputs are permuted (by {by}): the candidate's {', '.join(names)} are the reference's {', '.join(order)}"


def _by_shape(names: Sequence[str], reference: Tensors, candidate: Tensors) -> list[str]:
    """The reference's name for each candidate output, if shapes disagree in place and agree in one other order."""
    wanted = {name: np.shape(reference[name]) for name in names}
    got = {name: np.shape(candidate[name]) for name in names}
    moved = [name for name in names if wanted[name] != got[name]]
    if len(moved) < 2 or len({wanted[name] for name in moved}) < len(moved):
        return []
    place = {wanted[name]: name for name in moved}
    if any(got[name] not in place for name in moved) or len({got[name] for name in moved}) < len(moved):
        return []
    return [place[got[name]] if name in moved else name for name in names]


def permutation(reference: Tensors, candidate: Tensors) -> list[str]:
    """The reference's name whose values each of the candidate's outputs really holds, or [] where they stand in place.

    Both hold the same names and shapes. Only float outputs are moved, and only as a whole permutation.
    """
    names = list(reference)
    here = {name: _distance(reference[name], candidate[name]) for name in names}
    foreign = [name for name in names if not here[name] <= FOREIGN]
    if len(foreign) < 2:
        return []
    order = {name: name for name in names}
    for name in foreign:
        others = {other: _distance(reference[other], candidate[name]) for other in foreign if other != name}
        nearest = min(others, key=lambda other: others[other])
        if not (others[nearest] <= FOREIGN and others[nearest] * NEARER <= _least(here[name])):
            return []
        order[name] = nearest
    return [order[name] for name in names] if len(set(order.values())) == len(names) else []


def _least(distance: float) -> float:
    return distance if distance == distance else float("inf")  # NaN: nothing is further away


def _distance(wanted: Array, got: Array) -> float:
    """relative_l2, or infinity where none can be formed."""
    try:
        value = difference(np.asarray(wanted), np.asarray(got)).relative_l2
    except NotComparable:
        return float("inf")
    return value if value == value else float("inf")
