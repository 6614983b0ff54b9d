"""What checker `layers` measures, on trials made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.hand import build, found, graph, noise, recordings, same, trial, values
from verify.checkers.layers import MANY, Layers
from verify.core import NotComparable
from verify.graphs.align import Match
from verify.graphs.info import Node
from verify.limits import limit

BATCHED = graph(Node("relu", "Relu", ("x",), ("y",)), x=(None, 4))


def simulated(wanted: Any, dumped: Any, match: Match, held: Any = None, **more: Any) -> Any:
    """One inner tensor `h` before an output `y` that is right."""
    y = np.ones((1, 4), np.float32)
    info = held or graph(Node("mm", "MatMul", ("x",), ("h",)), Node("relu", "Relu", ("h",), ("y",)), x=(1, 4))
    return trial(
        info, "rknn", "w8a8",
        graph=recordings("graph", {"y": y}, layers=[{"h": wanted, "y": y}]),
        simulator=recordings("simulator", {"y": y}, layers=[{match.layer: dumped}], **more.pop("integrity", {})),
        more={"alignment": {match.layer: match}, **more},
    )  # fmt: skip


def test_an_inner_tensor_is_restored_before_it_is_compared() -> None:
    wanted = noise(1, 3, 5)
    dumped = wanted.transpose(0, 2, 1)[:, :, None] * np.float32(1.1)
    given = simulated(wanted, dumped, Match("h_mm", "h", (1, 3, 5), (1, 0), (), (5, 3)))
    (m,) = [m for m in found(Layers(), given, "relative_l2") if m.grain == "layer"]
    assert m.value == pytest.approx(0.1, rel=1e-4)
    assert m.where.tensor == "h" and m.where.node == "mm" and m.where.op == "MatMul"
    assert "compiled layer h_mm" in m.note and "gain 1.1" in m.note


def test_below_the_quantisers_step_counts_as_the_step() -> None:
    wanted = np.full((1, 4), 0.01, np.float32)
    match = same("h")
    given = simulated(wanted, wanted + np.float32(0.04), match, build=build({"h": {"scale": 0.1}}))
    (m,) = [m for m in found(Layers(), given, "relative_l2") if m.grain == "layer"]
    assert m.value == pytest.approx(0.4, rel=1e-3)


def test_the_vendors_own_figure_for_one_layer() -> None:
    wanted = noise(1, 4)
    given = simulated(wanted, wanted, same("h"), integrity={"isolated": {"h": 0.7}})
    (m,) = found(Layers(), given, "isolated_l2")
    assert m.value == 0.7 and m.grain == "isolated"


def test_layouts_and_integers_are_left_out() -> None:
    info = graph(Node("tr", "Transpose", ("x",), ("h",)), Node("relu", "Relu", ("h",), ("y",)))
    wanted = noise(1, 4)
    assert {m.where.tensor for m in Layers().check(simulated(wanted, wanted, same("h"), info))} == {"y"}
    whole = np.arange(4)[None]
    assert {m.where.tensor for m in Layers().check(simulated(whole, whole, same("h")))} == {"y"}


def test_a_wrong_batch_slot_stands_out() -> None:
    wanted = noise(3, 4)
    got = wanted + np.float32(0.001) * noise(3, 4)
    got[1] = wanted[1] * np.float32(0.5)
    given = trial(BATCHED, graph=[{"y": wanted}], device=[{"y": got}])
    each = values(Layers(), given, "relative_l2", part="slot 1")
    assert each == [pytest.approx(0.5, rel=1e-3)]
    worse = {m.where.part: m.value for m in found(Layers(), given, "slot_outlier")}
    assert worse["slot 1"] > 10 and worse["slot 0"] <= 10 and worse["slot 2"] <= 10


@pytest.mark.parametrize(("axis", "slots"), [(1, {"slot 0", "slot 1", "slot 2"}), (None, set()), (-1, set())])
def test_a_declared_batch_axis_is_where_slots_lie(axis: int | None, slots: set[str]) -> None:
    info = graph(Node("relu", "Relu", ("x",), ("y",)), x=(2, 3, 4))
    wanted = noise(5, 3, 4)
    got = wanted.copy()
    got[:, 1] *= np.float32(0.5)
    given = trial(info, graph=[{"y": wanted}], device=[{"y": got}])
    given = replace(given, candidate=replace(given.candidate, batch_axis=axis))
    worse = {m.where.part: m.value for m in found(Layers(), given, "slot_outlier")}
    assert set(worse) == slots
    assert not slots or (worse["slot 1"] > 10 and worse["slot 0"] <= 10)


def test_one_of_two_slots_may_stand_out_and_noise_does_not() -> None:
    wanted = noise(2, 400)
    got = wanted.copy()
    got[1] *= 2
    assert max(values(Layers(), trial(BATCHED, graph=[{"y": wanted}], device=[{"y": got}]), "slot_outlier")) > 10
    honest = wanted + np.float32(0.01) * noise(2, 400)
    assert max(values(Layers(), trial(BATCHED, graph=[{"y": wanted}], device=[{"y": honest}]), "slot_outlier")) < 2
    loud = noise(40, 50)
    loud[7] *= 12  # the error grows with the signal: in proportion nothing stands out
    got = loud * np.float32(1.3)
    assert max(values(Layers(), trial(BATCHED, graph=[{"y": loud}], device=[{"y": got}]), "slot_outlier")) < 2


def test_an_empty_slot_is_no_outlier() -> None:
    wanted = noise(3, 400)
    wanted[1] = 0
    got = wanted + np.float32(1e-6)
    given = trial(BATCHED, graph=[{"y": wanted}], device=[{"y": got}])
    assert max(values(Layers(), given, "slot_outlier")) < 1
    assert max(values(Layers(), given, "relative_l2")) < 1e-4


def test_the_first_axis_is_a_batch_only_if_an_inputs_is() -> None:
    wanted = noise(3, 4)
    tokens = graph(Node("relu", "Relu", ("x",), ("y",)), x=(1, 12))
    assert values(Layers(), trial(tokens, graph=[{"y": wanted}], device=[{"y": wanted}]), "slot_outlier") == []
    fed = recordings("graph", {"y": wanted}, inputs={"x": noise(3, 12)})
    assert len(values(Layers(), trial(tokens, graph=fed, device=[{"y": wanted}]), "slot_outlier")) == 3


def test_of_a_large_batch_the_worst_slot_is_reported() -> None:
    wanted = noise(MANY + 1, 4)
    got = wanted.copy()
    got[50] = 0
    (m,) = found(Layers(), trial(BATCHED, graph=[{"y": wanted}], device=[{"y": got}]), "slot_outlier")
    assert m.where.part == "slot 50" and m.value > 10


def test_indices_are_left_to_their_checker_and_strings_are_counted() -> None:
    top = graph(Node("top", "TopK", ("x", "k"), ("v", "y"), axis=-1))
    index = np.array([[1, 2]])
    assert list(Layers().check(trial(top, graph=[{"y": index}], device=[{"y": index + 1}]))) == []
    words = trial(graph=[{"y": np.array(["a", "b"])}], device=[{"y": np.array(["a", "c"])}])
    assert values(Layers(), words, "unequal") == [1]


def test_what_has_no_distance_is_said_of_its_leg() -> None:
    y = noise(1, 4).astype(np.complex64)
    with pytest.raises(NotComparable, match="^graph~device, output y: dtype complex64"):
        list(Layers().check(trial(graph=[{"y": y}], device=[{"y": y}])))


def test_an_integer_that_is_off_by_one_is_no_rounding() -> None:
    y = np.arange(20_000, 21_000)[None]
    off = y.copy()
    off[0, 3] += 1
    given = trial(graph=[{"y": y}], device=[{"y": off}])
    (m,) = found(Layers(), given, "integers")
    assert m.value == 1 and "index (0, 3): 20004 instead of 20003" in m.note
    held = limit("layers", "integers", "fp32")
    assert held is not None and held.action == "fail" and not m.value <= held.value
    (error,) = found(Layers(), given, "relative_l2")
    assert error.value <= 1e-4  # which hides it
