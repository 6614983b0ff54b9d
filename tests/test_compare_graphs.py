"""`npu-verify compare A.onnx B.onnx --inputs I.npz`: what is paired, what is said, and the exit code."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.graphs.test_pieces import FLOAT, INT64, saved
from verify import cli
from verify.graphs import pieces

RNG = np.random.default_rng(0)
WEIGHTS = [(f"w{i}", (RNG.standard_normal((8, 8)) / 3).astype(np.float32)) for i in range(4)]
LAYERS = [
    node
    for i in range(4)
    for node in (
        helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"m{i}"], name=f"mul{i}"),
        helper.make_node("Tanh", [f"m{i}"], [f"x{i + 1}"], name=f"tanh{i}"),
    )
]
PORTS = [("x0", FLOAT, [3, 8])], [("x4", FLOAT, [3, 8])]


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    """Compare with two nodes in a piece; returns exit code, text and document."""
    monkeypatch.setattr(pieces, "NODES", 2)
    np.savez(tmp_path / "i.npz", x0=RNG.standard_normal((3, 8)).astype(np.float32))

    def go(a, b, *options, inputs="i.npz"):
        (tmp_path / "c.json").unlink(missing_ok=True)
        more = ["--inputs", str(tmp_path / inputs)] if inputs else []
        code = cli.main(["compare", str(a), str(b), "--json", str(tmp_path / "c.json"), *more, *options])
        text = capsys.readouterr()
        held = json.loads((tmp_path / "c.json").read_text()) if (tmp_path / "c.json").exists() else {}
        return code, text.out + text.err, held

    return go


@pytest.fixture
def good(tmp_path):
    return saved(tmp_path / "a.onnx", LAYERS, *PORTS, WEIGHTS)


def test_one_graph_at_two_optimisations(run, good):
    code, text, document = run(good, good)
    assert code == 0 and "within: 0 of 8 tensors differ, 8 within" in text and "optimisation all" in text
    assert [row["name"] for row in document["rows"]] == [n for i in range(4) for n in (f"m{i}", f"x{i + 1}")]
    assert document["uncovered"] == [] and "not compared" not in text
    assert "optimisation basic" in run(good, good, "--optimization", "basic")[1]


def test_a_wrong_weight_is_found_where_it_first_shows(run, good, tmp_path):
    wrong = [(n, w * np.float32(1.001) if n == "w2" else w) for n, w in WEIGHTS]
    code, text, document = run(good, saved(tmp_path / "b.onnx", LAYERS, *PORTS, wrong))
    assert code == 1 and document["outcome"] == "differs"
    assert "first divergent node: mul2 [MatMul], its output: m2" in text
    assert [row["outcome"] for row in document["rows"]] == ["within"] * 4 + ["differs"] * 4


def test_what_one_side_lacks_is_listed(run, good, tmp_path):
    renamed = onnx.load(str(good))
    for node in renamed.graph.node:
        node.input[:] = ["other" if n == "m1" else n for n in node.input]
        node.output[:] = ["other" if n == "m1" else n for n in node.output]
    onnx.save(renamed, str(tmp_path / "b.onnx"))
    code, text, document = run(good, tmp_path / "b.onnx")
    assert code == 0 and document["uncovered"] == ["m1 (reference only)", "other (candidate only)"]
    assert "2 not compared: m1 (reference only), other (candidate only)" in text


def test_an_output_that_is_missing_is_not_comparable(run, good, tmp_path):
    fewer = saved(tmp_path / "b.onnx", LAYERS[:-1], PORTS[0], [("m3", FLOAT, [3, 8])], WEIGHTS)
    code, text, document = run(good, fewer)
    assert code == 1 and document["outcome"] == "not comparable" and "output x4 did not come back" in text


def test_indices_go_by_what_they_point_at(run, tmp_path):
    def top(name, largest):
        node = helper.make_node("TopK", ["x0", "k"], ["v", "i"], largest=largest, axis=1)
        ports = [("v", FLOAT, [1, 1]), ("i", INT64, [1, 1])]
        return saved(tmp_path / name, [node], [("x0", FLOAT, [1, 3])], ports, [("k", np.array([1]))])

    np.savez(tmp_path / "ties.npz", x0=np.array([[2, 2, 2]], np.float32))
    a, b = top("a.onnx", 1), top("b.onnx", 0)
    assert run(a, b, inputs="ties.npz")[0] == 0
    np.savez(tmp_path / "ties.npz", x0=np.array([[1, 2, 3]], np.float32))
    code, text, _ = run(a, b, inputs="ties.npz")
    assert code == 1 and "1 indices point at another value" in text


def test_a_shape_that_differs_inside(run, good, tmp_path):
    nodes = [*LAYERS[:2], helper.make_node("MatMul", ["x1", "wide"], ["m1"])]
    weights = [*WEIGHTS[:1], ("wide", np.ones((8, 5), np.float32))]
    nodes.append(helper.make_node("MatMul", ["m1", "back"], ["x4"]))
    weights.append(("back", np.ones((5, 8), np.float32)))
    code, text, _ = run(good, saved(tmp_path / "b.onnx", nodes, *PORTS, weights))
    assert code == 1 and "shape (3, 8) vs (3, 5)" in text


@pytest.mark.parametrize(
    ("options", "inputs", "says"),
    [
        ((), "", "give --inputs I.npz"),
        ((), "other.npz", "no input x0"),
        ((), "shape.npz", "x0 is float32 (3, 7); a.onnx takes x0 float32 (3, 8)"),
        ((), "dtype.npz", "x0 is float64 (3, 8); a.onnx takes x0 float32 (3, 8)"),
        (("--graph", "a.onnx"), "i.npz", "leave it out"),
    ],
)
def test_bad_input(run, good, tmp_path, options, inputs, says):
    np.savez(tmp_path / "other.npz", z=np.ones(3))
    np.savez(tmp_path / "shape.npz", x0=np.ones((3, 7), np.float32))
    np.savez(tmp_path / "dtype.npz", x0=np.ones((3, 8)))
    code, text, _ = run(good, good, *options, inputs=inputs)
    assert code == 2 and says in text and "\n" not in text.strip()


def test_optimization_is_for_graphs(run, tmp_path):
    np.savez(tmp_path / "t.npz", y=np.ones(3))
    code, text, _ = run(tmp_path / "t.npz", tmp_path / "t.npz", "--optimization", "all", inputs="")
    assert code == 2 and "give two .onnx files" in text
    code, text, _ = run(tmp_path / "t.npz", tmp_path / "a.onnx", inputs="")
    assert code == 2


def test_a_node_that_fails_is_said(run, tmp_path):
    node = helper.make_node("Reshape", ["x0", "s"], ["y"])
    path = saved(tmp_path / "a.onnx", [node], PORTS[0], [("y", FLOAT, None)], [("s", np.array([7, 7]))])
    code, text, _ = run(path, path)
    assert code == 2 and "fails on it" in text
