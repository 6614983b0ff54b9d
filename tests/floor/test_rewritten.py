"""The toolkit's float32 run of its optimised graph: rounding is admitted, a rewrite of 0.05 % is not."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from tests import made
from tests.floor.test_isolated import B1, B2, W1, W2, X, model
from verify.core import Where
from verify.diagnose.first import origin
from verify.floor import rewritten
from verify.floor.kept import Floor
from verify.graphs.align import Match
from verify.judge import judge_one
from verify.limits import limit
from verify.policy import Policy

TODAY = datetime.date(2026, 1, 1)
BOUND = limit("layers", "rewritten").value


def tensors(gain=1.0, dtype=np.float64):
    """Every tensor of the graph, the first sum scaled by a factor: what a toolkit that rewrote it would compute."""
    x, w1, b1, w2, b2 = (v.astype(dtype) for v in (X, W1, B1, W2, B2))
    a1 = (x @ w1 + b1) * dtype(gain)
    r = np.maximum(a1, 0)
    return {"a1": a1, "r": r, "y": r @ w2 + b2}


def ratios(tmp_path, goldens, references=None):
    references = references or {n: v.astype(np.float32) for n, v in tensors().items()}
    matches = {n: Match(n, n, v.shape, (1, 0), (), v.shape[::-1]) for n, v in references.items()}
    laid = {n: np.ascontiguousarray(v.T) for n, v in goldens.items()}  # dumps have an order of axes of their own
    single = rewritten.single(model(tmp_path / "m.onnx"), [("c0", {"x": X}, references)])
    moved = rewritten.moved(matches, references, laid)
    found = [m for n in moved for m in rewritten.rewritten(Floor(single=single), moved, Where(n, "c0"), n)]
    return {m.where.tensor: m for m in found}


def test_sums_in_another_order_are_rounding(tmp_path):
    order = np.random.default_rng(3).permutation(48)
    a1 = sum(np.outer(X[:, k], W1[k]) for k in order) + B1
    r = np.maximum(a1, 0)
    found = ratios(tmp_path, {"a1": a1, "r": r, "y": r @ W2 + B2})
    assert set(found) == {"a1", "r", "y"} and all(0 < m.value < 10 for m in found.values())


@pytest.mark.parametrize("gain", [1.0005, 1 - 1e-4])
def test_a_small_gain_of_one_layer_is_plain_from_there_on(tmp_path, gain):
    found = ratios(tmp_path, tensors(gain))
    assert all(m.value > BOUND for m in found.values())
    assert found["a1"].unit == "x float32 rounding" and "is 0.0005 away" in found["a1"].note or gain < 1


def test_another_element_that_is_not_finite_is_infinitely_far(tmp_path):
    golden = tensors()
    golden["r"][3, 4] = np.nan
    found = ratios(tmp_path, golden)
    assert found["r"].value == np.inf and found["y"].value < BOUND


def test_elements_that_are_infinite_in_the_reference_too_do_not_count():
    wanted = np.array([1.0, np.inf, 2.0], np.float32)
    match = {"t": Match("t", "t", (3,), (0,), (), (3,))}
    assert rewritten.moved(match, {"t": wanted}, {"t": wanted.copy()}) == {"t": 0.0}


def test_no_floor_and_no_run_measure_nothing(tmp_path):
    assert list(rewritten.rewritten(None, {"a1": 0.5}, Where("a1", "c0"), "a1")) == []
    assert list(rewritten.rewritten(Floor(), {"a1": 0.5}, Where("a1", "c0"), "a1")) == []
    assert list(rewritten.rewritten(Floor(single={("c0", "a1"): 1e-7}), {}, Where("a1", "c0"), "a1")) == []


def test_what_comes_first_in_the_graph_is_named_be_it_a_rewrite_or_a_kernel():
    leg = "graph~simulator"

    def said(tensor, metric, grain, value):
        return made.measured("layers", leg, metric, value, tensor, grain=grain, node=f"/{tensor}", op="MatMul")

    held = [said("b", "isolated_worst", "region", 5.0), said("c", "isolated_worst", "region", 5.0)]
    held += [said(t, "relative_l2", "layer", 0.01) for t in "abcd"]
    for early, node in (("a", "/a"), ("d", "/b")):
        run = made.run("int8", "rk3588", "w8a8", made.NPU_LEGS, [*held, said(early, "rewritten", "rewrite", 1e4)])
        judged = [judge_one(m, run, Policy(), TODAY) for m in run.measurements]
        place, why = origin(judged, run)
        assert place["node"] == node
        assert ("float32 run" in why) == (early == "a")
