"""What a wrong address, a stale buffer or a broken lane leaves in one recorded tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Memory:
    """A fault of a recorded tensor: `put` gets a copy and another case's; None where it does not apply."""

    name: str
    put: Callable[[Any, Any, np.random.Generator], Any]
    group: str = "memory"


def _rows(value: Any) -> Any:
    """A view of the tensor as rows of its last axis."""
    return value.reshape(-1, value.shape[-1])


def _stale_row(v: Any, other: Any, rng: np.random.Generator) -> Any:
    """One row of the case before."""
    rows = _rows(v)
    rows[len(rows) // 2] = _rows(other)[len(rows) // 2]
    return v


def _tail(v: Any, other: Any, rng: np.random.Generator) -> Any:
    """The last 16 elements were never written."""
    v.reshape(-1)[-16:] = rng.choice(v.reshape(-1), 16)  # values that the tensor has, so that they lie on its grid
    return v


def _slots(v: Any, other: Any, rng: np.random.Generator) -> Any:
    if v.ndim < 2 or v.shape[0] < 2:
        return None
    v[[0, 1]] = v[[1, 0]]
    return v


def _layout(v: Any, other: Any, rng: np.random.Generator) -> Any:
    """The last two axes are in memory in the other order."""
    if v.ndim < 2 or min(v.shape[-2:]) < 2:
        return None
    return np.ascontiguousarray(v.swapaxes(-1, -2)).reshape(v.shape)


def _lane(value: float | None) -> Callable[[Any, Any, np.random.Generator], Any]:
    def put(v: Any, other: Any, rng: np.random.Generator) -> Any:
        """One of 16 lanes gives this number, or for ever its first one."""
        flat = v.reshape(-1)
        flat[3::16] = flat[3] if value is None else value
        return v

    return put


def _one(value: float) -> Callable[[Any, Any, np.random.Generator], Any]:
    def put(v: Any, other: Any, rng: np.random.Generator) -> Any:
        v.reshape(-1)[v.size // 2] = value
        return v

    return put


def _half_other(v: Any, other: Any, rng: np.random.Generator) -> Any:
    v.reshape(-1)[v.size // 2 :] = other.reshape(-1)[v.size // 2 :]
    return v


def _shifted(v: Any, other: Any, rng: np.random.Generator) -> Any:
    return np.roll(v.reshape(-1), 1).reshape(v.shape)


def _unwritten(v: Any, other: Any, rng: np.random.Generator) -> Any:
    """A block of 32 elements is still zero."""
    at = v.size // 2
    v.reshape(-1)[at : at + 32] = 0
    return v


def _sign(v: Any, other: Any, rng: np.random.Generator) -> Any:
    """The sign bit of the largest element."""
    flat = v.reshape(-1)
    flat[np.abs(flat).argmax()] *= -1
    return v


FAULTS = [
    Memory("stale row", _stale_row),
    Memory("tail of a tile unwritten", _tail),
    Memory("block of 32 unwritten", _unwritten),
    Memory("batch slots swapped", _slots),
    Memory("wrong layout", _layout),
    Memory("one lane NaN", _lane(float("nan"))),
    Memory("one lane stuck", _lane(None)),
    Memory("one element NaN", _one(float("nan"))),
    Memory("sign bit of one element", _sign),
    Memory("half of another case", _half_other),
    Memory("shifted by one element", _shifted),
]
