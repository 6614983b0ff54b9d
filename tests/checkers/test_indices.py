"""What checker `indices` measures, on trials made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.hand import found, graph, recordings, trial, values
from verify.checkers.indices import Indices
from verify.checkers.layers import Layers
from verify.checkers.parity import Parity
from verify.graphs.info import Node
from verify.trial import Trial

TOP = graph(Node("top", "TopK", ("x", "k"), ("v", "y"), axis=-1), outputs=("y",))
ARG = graph(Node("arg", "ArgMax", ("x",), ("y",), axis=1), outputs=("y",))
X = np.array([[1, 3, 3, 2, 3]], np.float32)
WANTED = np.array([[2, 4, 1]])


def given(got: Any, role: str = "device", held: Any = TOP, wanted: Any = WANTED) -> Trial:
    roles: dict[str, Any] = {
        "source": [{"y": wanted}],
        "graph": recordings("graph", {"y": wanted}, inputs={"x": X}),
        "device": [{"y": wanted}],
    }
    roles[role] = recordings(role, {"y": got}, inputs={"x": X})
    return trial(held, **roles)


def test_ties_in_any_order_are_right() -> None:
    held = given(np.array([[1, 2, 4]]), "source")
    (m,) = found(Indices(), held, "wrong", "source~graph")
    assert m.value == 0 and "3 differ between ties only" in m.note
    assert values(Indices(), given(np.array([[1, 2, 4]])), "value_lost", "graph~device") == [0]


def test_another_value_is_wrong() -> None:
    assert values(Indices(), given(np.array([[2, 4, 0]]), "graph"), "wrong", "source~graph") == [1]
    rms = float(np.sqrt(np.mean(X**2)))
    assert values(Indices(), given(np.array([[2, 4, 3]])), "value_lost") == [pytest.approx(1 / rms)]


@pytest.mark.parametrize("bad", [[2, 4, 7], [2, 4, -4], [2, 4, 4]])
def test_what_is_no_position_is_measured_not_raised(bad: list[int]) -> None:
    (m,) = found(Indices(), given(np.array([bad])), "value_lost")
    assert m.value == np.inf and "no positions, or stand twice" in m.note


def test_a_device_may_return_indices_as_floats() -> None:
    assert values(Indices(), given(np.array([[1, 2, 4]], np.float32)), "value_lost") == [0]


def test_argmax_without_its_axis() -> None:
    assert values(Indices(), given(np.array([4]), held=ARG, wanted=np.array([1])), "value_lost") == [0]
    assert values(Indices(), given(np.array([0]), held=ARG, wanted=np.array([1])), "value_lost")[0] > 0


def test_inner_values_come_from_the_graphs_own_layers() -> None:
    held = graph(
        Node("relu", "Relu", ("x",), ("r",)), Node("top", "TopK", ("r", "k"), ("v", "y"), axis=1), outputs=("y",)
    )
    made = recordings("graph", {"y": WANTED}, layers=[{"r": X}], inputs={"x": X * 0})
    roles = {"source": [{"y": np.array([[2, 4, 0]])}], "graph": made}
    assert values(Indices(), trial(held, **roles), "wrong") == [1]


def test_indices_behind_a_cast_are_indices_still() -> None:
    held = graph(Node("top", "TopK", ("x", "k"), ("v", "i"), axis=-1), Node("cast", "Cast", ("i",), ("y",)))
    made = given(np.array([[1, 2, 4]], np.int32), "source", held)
    assert values(Indices(), made, "wrong") == [0]
    assert list(Parity().check(made)) == [] and list(Layers().check(made)) == []


def test_values_of_topk_are_no_indices() -> None:
    held = graph(Node("top", "TopK", ("x", "k"), ("y", "i"), axis=-1), outputs=("y",))
    made = given(np.array([[2.0, 4.0, 0.0]], np.float32), "graph", held, np.array([[2.0, 4.0, 1.0]], np.float32))
    assert list(Indices().check(made)) == []
    assert values(Parity(), made, "relative_l2")[0] > 0.1  # they are compared like any other output
    assert values(Layers(), made, "relative_l2")[0] > 0.1


def test_indices_over_weights_are_compared_as_numbers(tmp_path):
    """No run shows the values that they point at."""
    from onnx import helper

    from tests.small import FLOAT, INT64, save
    from verify.graphs.info import read

    nodes = [helper.make_node("ArgMax", ["w"], ["y"], axis=1), helper.make_node("Relu", ["x"], ["z"])]
    nodes.append(helper.make_node("ArgMax", ["z"], ["i"], axis=1))
    outputs = [("y", INT64, None), ("z", FLOAT, [1, 4]), ("i", INT64, None)]
    held = read(save(tmp_path / "m.onnx", nodes, outputs=outputs, weights={"w": np.eye(2, dtype=np.float32)}))
    assert held.indexed("y") is None and held.indexed("i") is not None
