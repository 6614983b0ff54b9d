"""What checker `finite` measures, on trials made by hand."""

from __future__ import annotations

import numpy as np

from tests.hand import found, recordings, same, trial, values
from verify.checkers.finite import Finite, nonfinite

WANTED = np.array([[1, 2, 3, 129_000]], np.float32)


def test_nan_and_inf_are_counted_and_located() -> None:
    got = np.array([[1, np.nan, np.inf, 129_000]], np.float32)
    differing, alike, note = nonfinite(WANTED, got)
    assert (differing, alike) == (2, 0)
    assert note.startswith("1 NaN, 1 Inf, first at index (0, 1)")
    assert "65504 exceeded" in note


def test_alike_is_not_equal_kind_of_wrong() -> None:
    bad = np.array([np.nan, np.inf, -np.inf, 1])
    assert nonfinite(bad, bad)[:2] == (0, 3)
    assert nonfinite(bad, -bad)[:2] == (2, 1)
    assert nonfinite(bad, np.zeros(4))[0] == 3 and "3 lost" in nonfinite(bad, np.zeros(4))[2]


def test_a_float_candidate_of_integers_is_looked_at_too() -> None:
    assert nonfinite(np.array([1, 2]), np.array([1, np.nan]))[0] == 1
    assert nonfinite(np.array([1, 2]), np.array([1, 2]))[0] == 0
    assert nonfinite(np.array(["a"]), np.array(["b"]))[0] == 0


def test_outputs_of_every_leg_and_aligned_layers() -> None:
    nan = WANTED.copy()
    nan[0, 0] = np.nan
    given = trial(
        builder="rknn",
        source=[{"y": WANTED}],
        graph=recordings("graph", {"y": WANTED}, layers=[{"y": WANTED}]),
        simulator=recordings("simulator", {"y": WANTED}, layers=[{"y": nan}]),
        more={"alignment": {"y": same()}},
    )
    assert values(Finite(), given, "nonfinite", "source~graph") == [0]
    outputs, layer = found(Finite(), given, "nonfinite", "graph~simulator")
    assert (outputs.value, outputs.grain) == (0, "tensor")
    assert (layer.value, layer.grain) == (1, "layer") and "compiled layer y: 1 NaN" in layer.note


def test_what_the_reference_has_itself_is_said_apart() -> None:
    nan = WANTED.copy()
    nan[0, 0] = np.nan
    given = trial(source=[{"y": nan}], graph=[{"y": nan}])
    assert values(Finite(), given, "nonfinite") == [0]
    assert values(Finite(), given, "nonfinite_in_both") == [1]
