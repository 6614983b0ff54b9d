"""Layers ranked by their own error times its gain, with numbers that are known beforehand."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from onnx import helper

from tests import made
from tests.small import FLOAT, normal, save
from verify import recording
from verify.core import Measurement, Missing, Recording, Where
from verify.diagnose.groups import groups
from verify.diagnose.inject import reference, spread
from verify.diagnose.ranking import ranking
from verify.graphs import info


def node(op, inputs, output, **more):
    return helper.make_node(op, inputs, [output], name=f"/{output}", **more)


def two_branches(path):
    """y = 10 a + b, where a = x + 1 and b = x + 2: an error in a reaches y ten times as large."""
    nodes = [node("Add", ["x", "one"], "a"), node("Add", ["x", "two"], "b")]
    nodes += [node("Mul", ["a", "ten"], "c"), node("Add", ["c", "b"], "y")]
    weights = {name: np.float32(value) for name, value in (("one", 1), ("two", 2), ("ten", 10))}
    return save(path, nodes, [("x", FLOAT, [1, 1000])], [("y", FLOAT, [1, 1000])], weights)


def alone(layer, tensor, value, case="c"):
    where = Where(tensor, case, "graph~simulator", "", "Add", f"/{tensor}")
    return Measurement(where, "isolated_l2", value, grain="isolated", null={"layer": layer}, checker="layers")


def stored(folder, *measurements, fed=True):
    """A run folder with a graph, what case c was fed, and these measurements."""
    two_branches(folder / "graph.onnx")
    entry = recording.save(Recording("graph", "c", {"y": normal(1, 1)}), folder / "recordings", "graph-0000")
    if fed:
        entry = recording.save_inputs(entry, {"x": normal(0, 1, 1000)}, folder / "recordings")
    return made.run("v", "rk3588", "w8a8", made.NPU_LEGS, list(measurements)), [entry]


def test_shares_and_gains_are_those_of_the_reference(tmp_path):
    run, entries = stored(tmp_path, alone("A", "a", 0.01), alone("B", "b", 0.02), alone("Y", "y", 0.001))
    first, second, third = ranking(run, entries, tmp_path)
    assert [r.layers for r in (first, second, third)] == [("A",), ("B",), ("Y",)]
    x = normal(0, 1, 1000).astype(np.float64)
    a, b, y = (float(np.linalg.norm(v)) for v in (x + 1, x + 2, 11 * x + 12))
    for found, gain in ((first, 10 * a / y), (second, b / y), (third, 1.0)):
        assert found.gain == pytest.approx(gain, rel=1e-3)
    assert first.snr == pytest.approx(40) and second.snr == pytest.approx(-20 * math.log10(0.02))
    total = sum(r.output**2 for r in (first, second, third))
    assert first.share == pytest.approx(first.output**2 / total) and first.output == pytest.approx(0.01 * 10 * a / y)


def test_a_layer_without_an_error_of_its_own_causes_none(tmp_path):
    run, entries = stored(tmp_path, alone("A", "a", 0.0), alone("B", "b", 0.02))
    assert [(r.layers, r.share) for r in ranking(run, entries, tmp_path)] == [(("B",), 1.0), (("A",), 0.0)]


def test_what_is_not_quantised_cannot_be_kept_in_float_but_counts(tmp_path):
    fixed = dataclasses.replace(alone("A", "a", 0.01), null={"layer": "A", "quantised": False})
    run, entries = stored(tmp_path, fixed, alone("B", "b", 0.02))
    (only,) = ranking(run, entries, tmp_path)
    assert only.layers == ("B",) and 0 < only.share < 0.5


def test_what_is_not_stored_is_missing_with_what_to_do(tmp_path):
    for name, measurements, fed in (("none", [], True), ("unfed", [alone("A", "a", 0.1)], False)):
        (tmp_path / name).mkdir()
        run, entries = stored(tmp_path / name, *measurements, fed=fed)
        with pytest.raises(Missing, match="run the check again"):
            ranking(run, entries, tmp_path / name)
    (tmp_path / "unfed" / "graph.onnx").unlink()
    with pytest.raises(Missing, match=r"no graph\.onnx"):
        ranking(run, entries, tmp_path / "unfed")


def test_without_an_error_the_rewritten_graph_says_what_the_graph_says(tmp_path):
    held = reference(two_branches(tmp_path / "m.onnx"), {"a", "y", "x", "nowhere"})
    assert set(held.tensors) == {"a", "y"}  # what no node computes cannot be rounded by one
    x = normal(3, 1, 1000)
    outputs, exact = held.exact({"x": x})
    assert np.array_equal(exact["a"], x + 1) and np.array_equal(outputs["y"], exact["y"])
    moved = held.run({"x": x}, {"a": np.ones((1, 1000))})
    assert np.allclose(moved["y"] - outputs["y"], 10, atol=1e-4)
    assert spread(outputs, outputs) == 0 and math.isnan(spread({"i": np.array([1])}, {"i": np.array([1])}))


def test_a_layer_inside_what_is_fused_has_no_figure_and_is_kept_with_the_rest(tmp_path):
    run, entries = stored(tmp_path, alone("Y", "y", 0.01))
    nodes = [node("MatMul", ["x", "w"], "m"), node("Mul", ["m", "g"], "s"), node("Relu", ["s"], "y")]
    weights = {"w": normal(1, 1000, 4), "g": normal(2, 4)}
    save(tmp_path / "graph.onnx", nodes, [("x", FLOAT, [1, 1000])], [("y", FLOAT, [1, 4])], weights)
    inside = dataclasses.replace(alone("S", "s", 0.3), metric="relative_l2", grain="layer")
    (only,) = ranking(dataclasses.replace(run, measurements=(inside, *run.measurements)), entries, tmp_path)
    assert only.layers == ("S", "Y") and only.snr == pytest.approx(40)


def test_what_is_fused_is_kept_together(tmp_path):
    nodes = [
        node("MatMul", ["x", "w"], "m"), node("Add", ["m", "bias"], "h"), node("Add", ["h", "x"], "r"),
        node("Softmax", ["r"], "s"), node("MatMul", ["s", "w"], "n"), node("Softmax", ["n"], "t"),
        node("Add", ["t", "r"], "y"),
    ]  # fmt: skip
    weights = {"w": normal(1, 4, 4), "bias": normal(2, 4)}
    save(tmp_path / "m.onnx", nodes, [("x", FLOAT, [1, 4])], [("y", FLOAT, [1, 4])], weights)
    layers = {"H": "h", "R": "r", "S": "s", "S_tp": "s", "N": "n", "T": "t"}
    found = groups(info.read(tmp_path / "m.onnx"), layers)
    assert found == (("H", "R"), ("S", "S_tp"), ("N",), ("T",))  # a Softmax is not fused into the MatMul before it
