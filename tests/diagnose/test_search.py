"""A small passing set within a number of builds; only what was built and passed is ever returned."""

from __future__ import annotations

import pytest

from verify.diagnose.ranking import Ranked
from verify.diagnose.search import search


def ranked(*shares, names=None):
    names = names or [f"/l.{i}/x" for i in range(len(shares))]
    return [Ranked((name,), name, name, "Op", s, 20.0, 1.0, s**0.5) for name, s in zip(names, shares, strict=True)]


def searched(held, enough, builds):
    tried = []

    def passes(members):
        tried.append({m.tensor for m in members})
        return enough(tried[-1])

    return {m.tensor for m in search(held, passes, builds)}, tried


def test_the_worst_layer_alone_is_tried_first_and_is_enough():
    found, tried = searched(ranked(0.95, 0.03, 0.02, 0.0), lambda kept: "/l.0/x" in kept, 6)
    assert found == {"/l.0/x"} and tried == [{"/l.0/x"}]


def test_more_are_kept_until_one_passes_then_fewer():
    held = ranked(*[0.1] * 10, names=[f"/{letter}" for letter in "abcdefghij"])
    found, tried = searched(held, lambda kept: {"/a", "/e"} <= kept, 8)
    assert len(tried) <= 8 and {"/a", "/e"} <= found and found in tried and len(found) < 9


def test_a_family_that_does_not_matter_is_left_out_again():
    held = ranked(0.4, 0.3, 0.1, 0.1, 0.1, names=["/l.0/a", "/l.1/a", "/l.0/b", "/l.1/b", "/c"])
    found, tried = searched(held, lambda kept: {"/l.0/a", "/l.1/a", "/c"} <= kept, 6)
    assert found == {"/l.0/a", "/l.1/a", "/c"} and len(tried) <= 6


@pytest.mark.parametrize("builds", [1, 2, 6])
def test_nothing_passes_after_all_layers_were_tried(builds):
    found, tried = searched(ranked(0.6, 0.3, 0.1, 0.0), lambda kept: False, builds)
    assert found == set() and tried[-1] == {"/l.0/x", "/l.1/x", "/l.2/x"} and len(tried) <= builds


def test_a_set_that_fails_is_not_returned_although_a_smaller_one_passes():
    found, tried = searched(ranked(*[0.1] * 10), lambda kept: len(kept) in (5, 9), 6)
    assert found in tried and len(found) in (5, 9)
