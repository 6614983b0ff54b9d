"""What checker `coverage` measures, on trials made by hand."""

from __future__ import annotations

import pytest

from tests.hand import found, graph, noise, same, trial, values
from verify.checkers.coverage import Coverage, tensors
from verify.core import NotComparable
from verify.graphs.info import Node

Y = noise(1, 4)
TWO = graph(
    Node("c", "Constant", (), ("k",)),
    Node("mm", "MatMul", ("x", "w"), ("a",)),
    Node("re", "Reshape", ("a", "k"), ("b",)),
    Node("soft", "Softmax", ("b",), ("s",)),
    Node("relu", "Relu", ("s",), ("y",)),
    outputs=("y",),
)


def test_an_output_that_no_recording_holds_is_counted() -> None:
    both = graph(Node("n", "Split", ("x",), ("y", "z")), outputs=("y", "z"))
    given = trial(both, source=[{"y": Y}], graph=[{"y": Y}])
    (m,) = found(Coverage(), given, "outputs_uncovered")
    assert m.value == 1 and m.note == "never compared: z"
    assert values(Coverage(), trial(source=[{"y": Y}], graph=[{"y": Y}]), "outputs_uncovered") == [0]


def test_an_output_that_did_not_come_back_is_not_comparable() -> None:
    with pytest.raises(NotComparable):
        list(Coverage().check(trial(source=[{"y": Y}], graph=[{"z": Y}])))


def test_inner_tensors_without_a_dump_are_listed_and_layouts_are_not() -> None:
    given = trial(TWO, source=[{"y": Y}], graph=[{"y": Y}], more={"alignment": {"layer": same("a")}})
    assert tensors(given) == (["a", "y"], ["s"])
    (m,) = found(Coverage(), given, "layers_uncovered")
    assert m.value == pytest.approx(1 / 3)


def test_no_dumps_no_share() -> None:
    assert values(Coverage(), trial(TWO, source=[{"y": Y}], graph=[{"y": Y}]), "layers_uncovered") == []
