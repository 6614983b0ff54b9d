"""What checker `range` measures, on trials made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.hand import build, found, graph, noise, recordings, trial, values
from verify.checkers.range import Range
from verify.graphs.align import Match
from verify.graphs.info import Node

GRAPH = graph(Node("mm", "MatMul", ("x",), ("h",)), Node("sig", "Sigmoid", ("h",), ("y",)))
Y = noise(1, 4)


def inner(wanted: Any, scales: Any = None, precision: str = "w8a8", info: Any = GRAPH) -> Any:
    match = Match("h_mm", "h", wanted.shape, tuple(range(wanted.ndim)), (), wanted.shape)
    return trial(
        info, "rknn", precision,
        graph=recordings("graph", {"y": Y}, layers=[{"h": wanted}]),
        simulator=recordings("simulator", {"y": Y}, layers=[{"h_mm": wanted}]),
        more={"alignment": {"h_mm": match}, "build": build(scales)},
    )  # fmt: skip


def test_clipped_and_below_one_step() -> None:
    wanted = np.array([[-14.6, -7.0, -1.0, -0.001]], np.float32)  # the quantiser stops at -7
    scale = {"min": -7.0, "max": 0.0, "scale": 7 / 255}
    given = inner(wanted, {"h_mm": scale})
    (m,) = found(Range(), given, "clipped")
    assert m.value == 0.25 and "range [-7, 0], the case spans -14.6 to -0.001" in m.note
    assert values(Range(), given, "below_step") == [0.25]


def test_what_a_fused_relu_cuts_off_is_not_clipped() -> None:
    """The compiled Conv carries the range of its Relu, and its dump shows the values before it."""
    mm, relu = Node("mm", "MatMul", ("x",), ("h",)), Node("relu", "Relu", ("h",), ("y",))
    wanted, scale = np.array([[-4.0, 3.0, 2.0, 1.0]], np.float32), {"min": 0.0, "max": 3.7, "scale": 3.7 / 255}
    assert values(Range(), inner(wanted, {"h_mm": scale}, info=graph(mm, relu)), "clipped") == []
    other = Node("add", "Add", ("h", "h"), ("z",))
    assert values(Range(), inner(wanted, {"h_mm": scale}, info=graph(mm, relu, other)), "clipped") == [0.25]
    both = graph(mm, relu, outputs=("h", "y"))
    assert values(Range(), inner(wanted, {"h_mm": scale}, info=both), "clipped") == [0.25]


SWISH = (
    Node("add", "Add", ("h", "three"), ("a",)),
    Node("clip", "Clip", ("a",), ("c",)),
    Node("div", "Div", ("c", "six"), ("d",)),
    Node("mul", "Mul", ("h", "d"), ("y",)),
)


@pytest.mark.parametrize(
    "after",
    [
        SWISH,
        (*SWISH[:2], Node("mul", "Mul", ("h", "c"), ("m",)), Node("div", "Div", ("m", "six"), ("y",))),
        (Node("hs", "HardSigmoid", ("h",), ("s",)), Node("mul", "Mul", ("h", "s"), ("y",))),
        (Node("swish", "HardSwish", ("h",), ("y",)),),
    ],
)
def test_below_minus_3_a_hard_swish_uses_nothing_and_above_it_uses_all(after: tuple[Node, ...]) -> None:
    mm = Node("mm", "MatMul", ("x",), ("h",))
    wanted, scale = np.array([[-4.0, 3.0, 2.0, 1.0]], np.float32), {"min": -3.0, "max": 2.5, "scale": 5.5 / 255}
    assert values(Range(), inner(wanted, {"h_mm": scale}, info=graph(mm, *after)), "clipped") == [0.25]
    read = (*after, Node("other", "Add", ("h", "y"), ("z",)))
    assert values(Range(), inner(wanted, {"h_mm": scale}, info=graph(mm, *read)), "clipped") == [0.5]


def test_beyond_the_largest_half() -> None:
    (m,) = found(Range(), inner(np.array([[129_244.0, 1.0]], np.float32), precision="fp16"), "over_65504")
    assert m.value == 1 and "1.292e+05" in m.note
    assert values(Range(), inner(np.array([[65_504.0]], np.float32), precision="fp16"), "over_65504") == []


@pytest.mark.parametrize(
    ("names", "measured"),
    [
        (["f_q_add", "f_q_matmul"], ["f_q_add"]),  # the mask is added to the scores: that is what the softmax gets
        (["f_q_matmul"], ["f_q_matmul"]),
        (["f_q_softmax", "other"], []),
    ],
)
def test_the_step_at_a_softmax_input(names: list[str], measured: list[str]) -> None:
    scales = {name: {"min": -10_000.0, "max": 3.0, "scale": 39.2} for name in names}
    got = found(Range(), inner(Y, scales), "softmax_step")
    assert [m.where.tensor for m in got] == measured
    assert all(m.value == 39.2 and "e^19.6" in m.note for m in got)


def test_a_destroyed_block_of_a_concat() -> None:
    cat = graph(Node("cat", "Concat", ("boxes", "scores"), ("y",), axis=1), boxes=(1, 4, 8), scores=(1, 2, 8))
    wanted = np.abs(noise(1, 6, 8))
    wanted[:, :4] *= 300
    got = wanted.copy()
    got[:, 4:] = 0
    given = trial(cat, graph=[{"y": wanted}], device=[{"y": got}])
    (scores,) = found(Range(), given, "destroyed", part="block from scores")
    assert scores.value == pytest.approx(1.0) and scores.note == "0 of 16 elements are non-zero"
    assert values(Range(), given, "destroyed", part="block from boxes") == [0]


def test_zeros_are_nothing_to_destroy_and_nan_is_finites() -> None:
    zero = np.zeros((1, 4), np.float32)
    assert values(Range(), trial(graph=[{"y": zero}], device=[{"y": zero + 1}]), "destroyed") == []
    nan = Y.copy()
    nan[0, 0] = np.nan
    assert values(Range(), trial(graph=[{"y": Y}], device=[{"y": nan}]), "destroyed") == []


def test_half_precision_sums_do_not_overflow() -> None:
    wanted = np.full((1, 100), 60_000, np.float16)
    assert values(Range(), trial(graph=[{"y": wanted}], device=[{"y": wanted / 2}]), "destroyed") == [0.5]
