"""What is read of a graph."""

from __future__ import annotations

import pytest
from onnx import helper

from tests.small import linear, normal, save
from verify.core import UsageError
from verify.graphs.info import FEW, read


def chain(folder, count):
    names = ["x", *(f"t{i}" for i in range(count - 1)), "y"]
    nodes = [helper.make_node("Relu", [a], [b], name=f"relu_{b}") for a, b in zip(names, names[1:], strict=False)]
    return save(folder / f"chain{count}.onnx", nodes)


def test_an_output_points_at_its_node_where_few_lead_to_it(tmp_path):
    held = read(chain(tmp_path, FEW)).last_of_few("y")
    assert held is not None and held.name == "relu_y"
    assert read(chain(tmp_path, FEW + 1)).last_of_few("y") is None
    assert read(chain(tmp_path, FEW)).last_of_few("nowhere") is None


def test_layout_operators_are_not_counted(tmp_path):
    nodes = [helper.make_node("Identity", [f"i{n}"], [f"i{n + 1}"]) for n in range(FEW + 5)]
    nodes = [
        helper.make_node("Relu", ["x"], ["i0"]),
        *nodes,
        helper.make_node("Neg", [f"i{FEW + 5}"], ["y"], name="neg"),
    ]
    held = read(save(tmp_path / "m.onnx", nodes)).last_of_few("y")
    assert held is not None and held.name == "neg"


def test_files_of_external_weights_are_known(tmp_path):
    linear(tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert read(tmp_path / "m.onnx").external == ("w.bin",)


def test_a_graph_that_changed_is_read_again(tmp_path):
    path = linear(tmp_path / "m.onnx")
    assert read(path).outputs == ("y",) and read(path) is read(path)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["another"])]
    save(path, nodes, outputs=[("another", 1, None)], weights={"w": normal(0, 4, 3)})
    assert read(path).outputs == ("another",)


def test_a_graph_that_is_not_there_is_told(tmp_path):
    with pytest.raises(UsageError, match="not a readable ONNX file"):
        read(tmp_path / "m.onnx")
