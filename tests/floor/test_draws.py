"""Draws of small graphs: an honest candidate is at the floor, a fault of 2 % far beyond it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from onnx import helper

from tests import small
from verify.backends import _ort
from verify.core import Artifact, Missing, Recording
from verify.floor import draws, kept
from verify.floor.grids import FP16
from verify.floor.weights import onto
from verify.store import Store

W1, W2 = small.normal(1, 64, 128) / 8, small.normal(2, 128, 32) / 11
X = small.normal(3, 40, 64)


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["y"]),
    ]
    path = tmp_path_factory.mktemp("net") / "m.onnx"
    return small.save(path, nodes, [("x", small.FLOAT, [40, 64])], [("y", small.FLOAT, [40, 32])], {"a": W1, "b": W2})


def reference() -> dict:
    h = X @ W1
    return {"h": h, "y": np.maximum(h, 0) @ W2}


def build(gain: float = 1.0):
    """What a float16 build computes: weights and tensors rounded, sums wide."""
    h = onto(X @ onto(W1, FP16), FP16)
    return onto(np.maximum(h, 0) @ onto(W2 * np.float32(gain), FP16), FP16)


def test_an_honest_build_is_at_the_floor_and_a_fault_is_not(net) -> None:
    points = {"h": FP16, "y": FP16}
    drawn = draws.draw(net, "fp16", {}, points, [("c", {"x": X}, reference())])
    held = drawn.samples["c", "y"]
    size = [float(np.sqrt(draws.errors(reference()["y"], build(g), held.scale).tensor[0])) for g in (1.0, 1.02)]
    floor = float(np.sqrt(held.tensor.mean()))
    assert 0.9 < size[0] / floor < 1.1 and size[1] / floor > 20
    again = draws.draw(net, "fp16", {}, points, [("c", {"x": X}, reference())])
    np.testing.assert_array_equal(again.samples["c", "y"].axes[1], held.axes[1])
    assert held.axes[0].shape == (32, 40) and held.axes[1].shape == (32, 32)
    assert held.axes[0].mean(1) == pytest.approx(held.tensor, rel=1e-5)


def test_float32_fused_is_at_the_floor(net) -> None:
    off = _ort.session(net, _ort.options("off"), "t").run({"x": X})
    drawn = draws.draw(net, "fp32", {}, {}, [("c", {"x": X}, off)])
    floor = float(np.sqrt(drawn.samples["c", "y"].tensor.mean()))
    other = np.maximum(X.astype(float) @ W1, 0) @ W2
    ratio = float(np.sqrt(draws.errors(off["y"], other, drawn.samples["c", "y"].scale).tensor[0])) / floor
    assert 0.2 < ratio < 1.5


def test_what_has_no_floor_says_why(tmp_path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("TopK", ["r", "k"], ["v", "i"], axis=-1),
        helper.make_node("Neg", ["v"], ["y"]),
        helper.make_node("RandomUniformLike", ["x"], ["u"]),
        helper.make_node("Log", ["r"], ["l"]),
    ]
    outputs = [(name, small.FLOAT, None) for name in "ryul"]
    path = small.save(tmp_path / "m.onnx", nodes, [("x", small.FLOAT, [1, 4])], outputs, {"k": np.int64([2])})
    x = np.float32([[1, -2, 3, 4]])
    held = {n: np.ones((1, 2) if n == "y" else (1, 4), np.float32) for n in "ryu"}
    with np.errstate(divide="ignore"):
        held["l"] = np.log(np.maximum(x, 0))
    drawn = draws.draw(path, "fp16", {}, {}, [("c", {"x": x}, held)])
    assert set(drawn.samples) == {("c", "r")}
    assert "TopK" in drawn.absent["y"] and "RandomUniformLike" in drawn.absent["u"]
    assert drawn.absent["l"] == "the reference is not finite"
    with pytest.raises(Missing, match="no model of w4a16"):
        draws.draw(path, "w4a16", {}, {}, [("c", {"x": x}, held)])


def test_a_second_run_does_not_draw_again(net, tmp_path, monkeypatch) -> None:
    from verify.reports.progress import quiet

    outputs = {"y": reference()["y"]}
    recordings = {
        "graph": (Recording("graph", "c", outputs, {}, {"inputs": {"x": X}}),),
        "device": (Recording("device", "c", outputs),),
    }
    candidate = SimpleNamespace(variant=SimpleNamespace(precision="fp32"))

    def stage(number: int):
        work = tmp_path / str(number)
        work.mkdir()
        store = Store(tmp_path / "store")
        return SimpleNamespace(
            candidate=candidate, recordings=recordings, facts={}, progress=quiet(), work=work, store=store
        )

    graph = Artifact("graph", net, "")
    first = kept.floor(stage(0), graph, None, "key")
    monkeypatch.setattr(draws, "draw", lambda *a, **k: pytest.fail("drawn again"))
    second = kept.floor(stage(1), graph, None, "key")
    assert second.nulls == first.nulls and set(second.nulls) == {"tensor", "axis"}
    np.testing.assert_allclose(second.drawn.samples["c", "y"].axes[0], first.drawn.samples["c", "y"].axes[0], rtol=1e-6)
    with pytest.raises(pytest.fail.Exception):
        kept.floor(stage(2), graph, None, "another")
