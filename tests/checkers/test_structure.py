"""What checker `structure` measures, on trials made by hand."""

from __future__ import annotations

from tests.hand import found, noise, trial, values
from verify.checkers.structure import Structure

Y = noise(1, 4)


def test_what_differs_is_counted_per_leg_and_said() -> None:
    given = trial(source=[{"y": Y}], graph=[{"y": Y}], device=[{"y": Y.reshape(1, 1, 1, 4)}])
    assert values(Structure(), given, "mismatches", "source~graph") == [0]
    (m,) = found(Structure(), given, "mismatches", "graph~device")
    assert m.value == 1 and "rank 2 vs 4" in m.note


def test_a_case_that_was_not_run() -> None:
    given = trial(source=[{"y": Y}, {"y": Y}], graph=[{"y": Y}])
    assert values(Structure(), given, "mismatches") == [0, 1]


def test_nothing_came_back() -> None:
    given = trial(source=[{"y": Y}], graph=[{}])
    assert values(Structure(), given, "mismatches") == [1]


def test_a_permutation_is_one_mismatch_that_names_it() -> None:
    a, b = noise(1, 64), noise(1, 64)
    (m,) = found(Structure(), trial(source=[{"a": a, "b": b}], graph=[{"a": b, "b": a}]), "mismatches")
    assert m.value == 1 and "are the reference's b, a" in m.note


def test_every_leg_of_an_npu_variant() -> None:
    roles = {role: [{"y": Y}] for role in ("source", "graph", "simulator", "device")}
    given = trial(builder="rknn", **roles)
    assert {m.where.leg for m in Structure().check(given)} == {
        "source~graph", "graph~simulator", "simulator~device", "graph~device",
    }  # fmt: skip
