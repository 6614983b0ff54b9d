"""Regions replayed: what a build's own roundings explain is no error, anything else is found where it is."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import hand
from verify.core import Artifact, Missing, Recording
from verify.floor import isolated
from verify.floor.allowance import EXACT
from verify.floor.formats import Grid, by_channel, channel_steps, to_float, ulp
from verify.floor.isolated import Isolated, judge, surprise
from verify.floor.measured import measured
from verify.floor.replay import Replayed, ready
from verify.floor.rounding import Rounding
from verify.graphs import info
from verify.graphs.align import Match
from verify.graphs.assume import assume
from verify.graphs.regions import cuttable

RNG = np.random.default_rng(5)
W1, W2 = (RNG.standard_normal(s).astype(np.float32) / 8 for s in ((48, 32), (32, 16)))
B1, B2 = (RNG.standard_normal(n).astype(np.float32) for n in (32, 16))
X = RNG.standard_normal((64, 48)).astype(np.float32)


def model(path: Path, *, scaled: bool = False) -> Path:
    """x (64, 48) -> MatMul, Add, [Mul,] Relu -> MatMul, Add -> y (64, 16)."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["m1"], name="/one/MatMul"),
        helper.make_node("Add", ["m1", "b1"], ["a1"], name="/one/Add"),
        helper.make_node("Relu", ["a1"], ["r"], name="/relu"),
        helper.make_node("MatMul", ["r", "w2"], ["m2"], name="/two/MatMul"),
        helper.make_node("Add", ["m2", "b2"], ["y"], name="/two/Add"),
    ]
    weights = {"w1": W1, "b1": B1, "w2": W2, "b2": B2}
    if scaled:
        nodes[0].output[0] = "m0"
        nodes.insert(1, helper.make_node("Mul", ["m0", "c"], ["m1"], name="/one/Mul"))
        weights["c"] = np.asarray(0.37, np.float32)
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (64, 48)), ("y", (64, 16)))]
    held = [numpy_helper.from_array(v, n) for n, v in weights.items()]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:], held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(made.SerializeToString())
    return path


def half(value):
    return np.asarray(value, np.float16).astype(np.float64)


def built(w1=W1, b1=B1, w2=W2, b2=B2, *, weight=half, bias=np.float64):
    """Every tensor of an honest float16 build: weights rounded, biases not, results rounded."""
    x = half(X)
    a1 = half(x @ weight(w1) + bias(b1))
    r = np.maximum(a1, 0)
    return {"x": x, "a1": a1, "r": r, "y": half(r @ weight(w2) + bias(b2))}


def trial(tmp_path, dumps, precision="fp16", scales=None, unmatched=(), more=()):
    path = model(tmp_path / "m.onnx")
    a1 = X @ W1 + B1
    r = np.maximum(a1, 0)
    inner = {"x": X, "a1": a1, "r": r, "y": r @ W2 + B2}
    match = {n: Match(n, n, v.shape, (0, 1), (), v.shape) for n, v in inner.items()}
    held = {**dumps, **dict(more)}
    graph = Recording("graph", "c0", {"y": inner["y"]}, inner, {"inputs": {"x": X}})
    simulator = Recording("simulator", "c0", {"y": held["y"]}, held, {}, {}, 0.0, "simulator")
    made = hand.trial(
        info.read(path), "rknn", precision,
        {"alignment": match, "unmatched": dict(unmatched), "build": hand.build(scales), "facts": {
            "graph": Artifact("graph", path, "")}}, graph=(graph,), simulator=(simulator,),
    )  # fmt: skip
    return dataclasses.replace(made)


def odds(found):
    return {m.where.tensor: m for m in found if m.metric == "isolated_odds"}


def test_an_honest_float_build_is_explained_entirely(tmp_path):
    found = list(measured(trial(tmp_path, built())))
    assert set(odds(found)) == {"a1", "r", "y"}
    assert all(m.value == 0 for m in odds(found).values())
    assert all(m.value == 0 for m in found if m.metric == "isolated_worst")
    (left,) = [m for m in found if m.metric == "not_replayed"]
    assert left.value == 0


@pytest.mark.parametrize(
    "fault",
    [
        {"w1": W1 * np.float32(1.001)},
        {"w1": np.where(np.arange(32) == 7, W1 * np.float32(1.02), W1)},
        {"b1": B1 * 0},
        {"weight": np.float64},
        {"bias": half},
    ],
    ids=["gain 0.1 %", "one channel 2 %", "bias lost", "weights not rounded", "bias rounded"],
)
def test_what_no_known_rounding_explains_is_found_where_it_is(tmp_path, fault):
    found = odds(measured(trial(tmp_path, built(**fault))))
    assert found["a1"].value > 3 and "/one/MatMul" in found["a1"].null["nodes"]
    if "w1" in fault or "b1" in fault:  # what comes later is right on what it was given
        assert found["r"].value == 0 and found["y"].value == 0


def test_one_element_and_nan_are_beyond_the_worst(tmp_path):
    for wrong in (40.0, np.nan, np.inf):
        dumps = built()
        dumps["y"] = dumps["y"].copy()
        dumps["y"][3, 5] = wrong
        worst = {m.where.tensor: m for m in measured(trial(tmp_path, dumps)) if m.metric == "isolated_worst"}
        assert not worst["y"].value <= 1 and "(3, 5)" in worst["y"].note
        assert worst["a1"].value == 0


GRIDS = {"x": Grid(0.03, 3, -128, 127), "a1": Grid(0.05, -10, -128, 127), "y": Grid(0.06, 4, -128, 127)}
SCALES = {
    name: {"scale": g.step, "zero_point": g.zero, "min": g.ends[0], "max": g.ends[1], "dtype": "int8"}
    for name, g in {**GRIDS, "r": GRIDS["a1"]}.items()
}


def quantised(w1=W1, symmetric=False):
    def weight(w):
        if symmetric:
            step = np.abs(w).max(0) / 127
            return np.rint(w / step) * step
        return by_channel(w, 1)[0]

    x = GRIDS["x"].round(X)
    a1 = GRIDS["a1"].round(x @ weight(w1) + B1)
    r = GRIDS["a1"].round(np.maximum(a1, 0))
    return {"x": x, "a1": a1, "r": r, "y": GRIDS["y"].round(r @ weight(W2) + B2)}


def test_an_honest_integer_build_is_explained_entirely(tmp_path):
    found = odds(measured(trial(tmp_path, quantised(), "w8a8", SCALES)))
    assert set(found) == {"a1", "r", "y"} and all(m.value == 0 for m in found.values())


@pytest.mark.parametrize("fault", [{"w1": W1 * np.float32(1.004)}, {"symmetric": True}])
def test_integer_weights_on_another_grid_are_found(tmp_path, fault):
    found = odds(measured(trial(tmp_path, quantised(**fault), "w8a8", SCALES)))
    assert found["a1"].value > 3


def test_a_layer_of_the_compilers_own_is_not_replayed_and_never_a_pass(tmp_path):
    dumps = built(w2=W2 * np.float32(1.01))
    order = {"x": dumps["x"], "a1": dumps["a1"], "r": dumps["r"], "own": X, "y": dumps["y"]}
    held = trial(tmp_path, order, unmatched={"own": "no reference tensor has 7 elements"})
    found = list(measured(held))
    assert "y" not in odds(found)
    (left,) = [m for m in found if m.metric == "not_replayed"]
    assert left.value == 1 and "own" in left.note


def test_power_is_of_the_order_of_the_format(tmp_path):
    fine = {m.metric: m.value for m in measured(trial(tmp_path, built())) if m.grain == "power"}
    coarse = {m.metric: m.value for m in measured(trial(tmp_path, quantised(), "w8a8", SCALES)) if m.grain == "power"}
    assert set(fine) == {"gain", "bias", "channel", "element"}
    assert fine["gain"] < 1e-3 < coarse["gain"] < 0.1  # 2^-11 is 5e-4; a step is 0.05 of an rms near 1.5


def test_a_factor_behind_a_product_is_folded_before_weights_are_rounded(tmp_path):
    graph = cuttable(model(tmp_path / "s.onnx", scaled=True))
    region = graph.region("a1", {"a1", "x"})
    made = ready(graph, region, Rounding("fp16"), {"x": np.dtype(np.float32)})
    exact = made({"x": half(X).astype(np.float32)}).exact
    folded = half(X) @ half(W1 * np.float32(0.37)) + B1
    assert np.abs(exact - folded).max() < 1e-5
    assert np.abs(exact - (half(X) @ half(W1) * 0.37 + B1)).max() > 1e-4


def test_regions_are_cut_at_what_is_held_and_name_what_cannot_be_foretold(tmp_path):
    graph = cuttable(model(tmp_path / "m.onnx"))
    assert graph.region("y", {"r", "y"}).cut == ("r",) and graph.region("y", {"y"}).cut == ("x",)
    assert graph.region("y", {"r"}).ops == ("MatMul", "Add")
    graph.model.graph.node[2].op_type = "RandomNormalLike"
    with pytest.raises(Missing, match="cannot be foretold"):
        dataclasses.replace(graph, producers={o: n for n in graph.model.graph.node for o in n.output}).region(
            "y", {"a1"}
        )


def test_formats():
    assert list(ulp(np.array([1.0, 1.5, 2.0, 0.0, 1e-9, 65504.0]), "fp16")) == [
        2.0**-10, 2.0**-10, 2.0**-9, 2.0**-24, 2.0**-24, 32.0,
    ]  # fmt: skip
    assert to_float(np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8]), "bf16").tolist() == [1.0, 1 + 2.0**-6]  # ties to even
    assert GRIDS["a1"].round(np.array([1e9, -1e9])).tolist() == list(GRIDS["a1"].ends)[::-1]
    weight = np.array([[-1.0, 0.0], [1.55, 2.55]])
    held, _ = by_channel(weight, 1)
    assert channel_steps(weight, 1).reshape(-1).tolist() == pytest.approx([0.01, 0.01])
    assert held[:, 1].tolist() == pytest.approx([0.0, 2.55])  # zero belongs to every range
    assert by_channel(np.array([[0.005], [2.55]]), 1)[1][0, 0] != 0  # half a step: either code


def test_the_bound_on_a_count_is_never_less_than_the_exact_chance():
    scipy = pytest.importorskip("scipy.stats")  # the vendor's toolkit needs it, so it is there wherever builds are
    for n, k in ((64, 3), (4096, 30), (100, 100), (1000, 2)):
        decades = isolated._decades(k, n, 1e-3)
        assert 0 < decades <= -np.log10(scipy.binom.sf(k - 1, n, 1e-3)) + 1e-9
    assert surprise(Isolated(np.zeros(10), (0, 0), (0, 0), "ulp"), EXACT)[0] == 0


def test_overflow_of_the_format_is_replayed():
    exact = np.array([1e5, 1.0])
    same = judge(Replayed(exact, np.zeros(2)), np.array([np.inf, 1.0]), None, "fp16")
    assert same.excess.tolist() == [0, 0]
    assert np.isinf(judge(Replayed(exact, np.zeros(2)), np.array([6e4, 1.0]), None, "fp16").excess[0])


def test_a_layer_behind_a_fault_is_named_by_value_else_by_name_and_never_twice(tmp_path):
    graph = info.read(model(tmp_path / "m.onnx"))
    honest, wrong = built(), built(w1=W1 * np.float32(1.3))
    dumps = {"x": wrong["x"], "m1_mm": wrong["a1"], "y-rs": RNG.standard_normal((64, 16))}
    match = {"x": Match("x", "x", (64, 48), (0, 1), (), (64, 48))}
    reference = {**honest, "m1": honest["x"] @ W1, "m2": honest["r"] @ W2}
    found = assume(graph, match, [reference], [dumps])
    assert found["m1_mm"].tensor == "a1"  # named after the bare product, holds the sum
    assert "y-rs" not in found  # unrelated values, and no layer of this shape was seen
    taken = {**match, "other": Match("other", "a1", (64, 32), (0, 1), ("m1",), (64, 32))}
    assert "m1_mm" not in assume(graph, taken, [reference], [{**dumps, "other": honest["a1"]}])


def test_a_layer_that_bears_an_outputs_name_is_that_output(tmp_path):
    """The right values lie in a layer before it, and something wrong was done to them behind."""
    graph, honest = info.read(model(tmp_path / "m.onnx")), built()
    match = {"added": Match("added", "y", (64, 16), (0, 1), (), (64, 16))}
    dumps = {"added": honest["y"], "y": honest["y"] * 1.01, "y_int8": honest["y"] * 1.01}
    assert {n: m.tensor for n, m in assume(graph, match, [honest], [dumps]).items()} == {"y": "y"}


def test_saturation_is_the_builds_own(tmp_path):
    exact = np.array([[0.0, 100.0, -100.0]])
    got = GRIDS["a1"].round(exact)
    assert judge(Replayed(exact, np.zeros((1, 3))), got, GRIDS["a1"], "fp16").excess.max() == 0


def test_odds_are_corrected_for_the_number_of_tests_and_no_more(tmp_path):
    found = odds(measured(trial(tmp_path, built(b1=B1 + np.float32(3)))))["a1"]  # every element is beyond
    alone = isolated._decades(64 * 32, 64 * 32, 1e-3)
    assert found.value == pytest.approx(alone - np.log10(found.null["cells"])) and found.null["cells"] > 100
    few = Isolated(np.full((4, 1), 1.0), (0, 0), (0, 0), "ulp")
    assert few.cells == 5 and surprise(few, EXACT)[0] == pytest.approx(16)  # four of four at a rate of 1e-4
