"""Every layout that can restore, the plain one first, and none that cannot."""

from __future__ import annotations

import numpy as np
import pytest

from verify.graphs.layouts import layouts


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
@pytest.mark.parametrize("joined", [None, (0, 1), (1, 2)])
@pytest.mark.parametrize("dump_is_joined", [True, False])
def test_an_order_of_axes_with_two_of_them_joined(
    order: tuple[int, ...], joined: tuple[int, int] | None, dump_is_joined: bool
) -> None:
    """Whichever side has its axes joined, one of the layouts restores the values."""

    def join(value: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        if joined is None:
            return value
        shape = list(value.shape)
        shape[joined[0] : joined[1] + 1] = [shape[joined[0]] * shape[joined[1]]]
        return value.reshape(shape)

    whole = np.arange(2 * 3 * 5).reshape(2, 3, 5)
    moved = np.ascontiguousarray(whole.transpose(order))
    wanted, dump = (whole, join(moved)) if dump_is_joined else (join(whole), moved)
    tried = layouts(dump[None].shape, wanted.shape)
    assert any(np.array_equal(dump.reshape(v).transpose(o).reshape(wanted.shape), wanted) for v, o in tried)


def test_the_plain_one_comes_first_and_ones_are_free() -> None:
    assert layouts((1, 24, 1, 12), (1, 12, 24)) == (((24, 12), (0, 1)), ((24, 12), (1, 0)))
    assert layouts((8, 8), (8, 8))[0] == ((8, 8), (0, 1))
    assert layouts((1, 1), ()) == (((), ()),)


def test_another_size_has_none() -> None:
    assert layouts((3, 5), (5, 2)) == ()
