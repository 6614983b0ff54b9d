"""Outputs that come back in another order or shape, and one slot of a batch that is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.cases.kit import TORCH, checked, failing, leg, outcome, own
from tests.small import FLOAT, normal, save
from verify.core import Outcome

HEADS = """
W = [normal(i, 4, 4) for i in range(3)]

def device(feeds):
    heads = [feeds["x"] @ w for w in W]
    return {{f"o{{k}}": heads[i] for k, i in enumerate({order})}}

def cases():
    return [Case(f"c{{i}}", {{"x": normal(9 + i, 1, 4)}}) for i in range(2)]
"""


def heads(path, order) -> None:
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"o{k}"], name=f"head{i}") for k, i in enumerate(order)]
    weights = {f"w{i}": normal(i, 4, 4) for i in range(3)}
    save(path, nodes, [("x", FLOAT, [1, 4])], [(f"o{k}", FLOAT, [1, 4]) for k in range(3)], weights)


SAID = "outputs are permuted (by value): the candidate's o0, o1, o2 are the reference's o2, o0, o1"


def test_a_device_that_permutes_its_outputs_is_told_which(tmp_path):
    heads(tmp_path / "m.onnx", [0, 1, 2])
    verdict = checked(tmp_path, own("fp32"), HEADS.format(order=[2, 0, 1]))
    assert leg(verdict, "graph~device").reason == SAID and outcome(verdict, "graph~device") is Outcome.FAILED
    assert {f.checker for f in verdict.findings if f.leg == "graph~device"} == {"structure"}  # and not three errors
    assert verdict.first_divergent is None  # all outputs together are no node
    assert "do not pair" in leg(verdict, "source~device").reason  # no score is formed of what is foreign


def test_a_conversion_that_permutes_them_leaves_the_device_out_of_it(tmp_path):
    heads(tmp_path / "s.onnx", [0, 1, 2])
    heads(tmp_path / "m.onnx", [2, 0, 1])
    toml = TORCH.replace("build.py:source", "s.onnx").replace("build.py:export", "m.onnx")
    verdict = checked(tmp_path, toml, HEADS.format(order=[0, 1, 2]))
    assert leg(verdict, "source~graph").reason == SAID and verdict.blame == ("export",)
    assert outcome(verdict, "graph~device") is Outcome.PASSED  # it does what the graph does


@pytest.mark.parametrize(
    ("shaped", "said"),
    [
        ("y.reshape(1, 1, 1, 4)", "output y: rank 2 vs 4 (shape (1, 4) vs (1, 1, 1, 4))"),
        ("np.full((4, 1), y[0, 0])", "output y: shape (1, 4) vs (4, 1)"),
        ("y[:, :0]", "output y: shape (1, 4) vs (1, 0)"),
    ],
)
def test_another_rank_or_shape_is_refused_and_never_broadcast(tmp_path, shaped, said):
    node = helper.make_node("Mul", ["x", "k"], ["y"], name="mul")
    save(tmp_path / "m.onnx", [node], [("x", FLOAT, [1, 4])], [("y", FLOAT, [1, 4])], {"k": np.float32(7)})
    build = f"""
def device(feeds):
    y = feeds["x"] * np.float32(7)
    return {{"y": {shaped}}}

def cases():
    return [Case(f"c{{i}}", {{"x": np.ones((1, 4), np.float32)}}) for i in range(2)]
"""
    verdict = checked(tmp_path, own("fp32"), build)
    assert leg(verdict, "graph~device").reason == said
    assert not failing(verdict, "layers") and not failing(verdict, "agreement")


def test_the_slot_of_a_batch_that_is_wrong_is_named(tmp_path):
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", pads=[1] * 4)
    save(tmp_path / "m.onnx", [node], [("x", FLOAT, [3, 3, 8, 8])], [("y", FLOAT, [3, 4, 8, 8])],
         {"w": normal(0, 4, 3, 3, 3)})  # fmt: skip
    build = """
import onnxruntime
from pathlib import Path

HELD = onnxruntime.InferenceSession(str(Path(__file__).with_name("m.onnx")))

def device(feeds):
    y = HELD.run(None, dict(feeds))[0]
    y += 0.01 * normal(5, *y.shape)
    y[1] = np.clip(y[1], -2, 2)  # a range that was calibrated on slot 0
    return {"y": y}

def cases():
    out = []
    for i in range(2):
        x = normal(i, 3, 3, 8, 8)
        x[1] *= 3
        out.append(Case(f"c{i}", {"x": x}))
    return out
"""
    verdict = checked(tmp_path, own("w8a8"), build)
    assert outcome(verdict, "graph~device") is Outcome.FAILED
    assert {f.where for f in failing(verdict, "layers")} == {"y[slot 1]"}
