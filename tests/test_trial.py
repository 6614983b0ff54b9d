"""A trial pairs tensors strictly: no number is formed of what does not pair."""

from __future__ import annotations

import numpy as np
import pytest

from tests.hand import trial
from verify.core import Missing, NotComparable, Tier

Y = np.ones((1, 4), np.float32)


@pytest.mark.parametrize(
    ("got", "message"),
    [
        ([{"y": Y[:, :1]}], r"shape \(1, 4\) vs \(1, 1\)"),
        ([{"y": Y[0]}], r"shape \(1, 4\) vs \(4,\)"),
        ([{"z": Y}], "output y did not come back from graph"),
        ([], "case case0 was not run by graph"),
    ],
)
def test_what_does_not_pair_is_no_number(got, message):
    with pytest.raises(NotComparable, match=message):
        list(trial(source=[{"y": Y}], graph=got).pairs("source", "graph"))


def test_pairs_come_case_by_case_with_their_place():
    given = trial(source=[{"y": Y}, {"y": Y + 1}], graph=[{"y": Y}, {"y": Y + 2}])
    found = [
        (where.case, where.tensor, where.leg, float((got - want).max()))
        for where, want, got in given.pairs("source", "graph")
    ]
    assert found == [("case0", "y", "source~graph", 0.0), ("case1", "y", "source~graph", 1.0)]


def test_a_role_that_was_not_run_is_missing_and_its_legs_are_not_there():
    given = trial(source=[{"y": Y}], graph=[{"y": Y}])
    assert [leg.name for leg in given.legs(Tier.GRAPH)] == ["source~graph"] and given.legs(Tier.DEVICE) == ()
    with pytest.raises(Missing, match="no device recording"):
        given.of("device")
