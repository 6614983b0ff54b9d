"""Numbers that look good and hide the fault, and one that looks bad and is none."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.kit import TORCH, checked, failing, leg, outcome, own
from tests.small import FLOAT, INT64, save
from verify.core import Outcome

SCALED = """
NOISE = np.random.default_rng(9)

def device(feeds):
    y = feeds["x"] * np.float32(1.5)
    {fault}
    return {{"y": y}}

def cases():
    return [Case(f"c{{i}}", {{"x": normal(i, 1, 10000)}}) for i in range(2)]
"""


def multiplied(tmp_path, fault: str, precision: str = "fp16"):
    from onnx import helper

    nodes = [helper.make_node("Mul", ["x", "k"], ["y"], name="mul")]
    shape = [1, 10000]
    save(tmp_path / "m.onnx", nodes, [("x", FLOAT, shape)], [("y", FLOAT, shape)], {"k": np.float32(1.5)})
    return checked(tmp_path, own(precision), SCALED.format(fault=fault))


@pytest.mark.parametrize("precision", ["fp16", "w8a8"])
def test_a_scale_with_cosine_1_fails_at_any_precision_and_is_named(tmp_path, precision):
    verdict = multiplied(tmp_path, "y *= np.float32(1.25)", precision)
    assert outcome(verdict, "graph~device") is Outcome.FAILED
    assert "precision" not in verdict.blame
    (found, *_) = (f for f in failing(verdict, "layers") if f.metric == "factor")
    assert "about 1.25 times the reference" in found.message and found.value == pytest.approx(0.25, abs=1e-6)


def test_three_ruined_elements_of_ten_thousand_fail(tmp_path):
    verdict = multiplied(tmp_path, "y[0, [10, 5000, 9999]] += 5")
    assert {f.metric for f in failing(verdict, "layers")} == {"max_over_peak"}
    assert "5 apart" in failing(verdict, "layers")[0].message


def test_noise_of_one_part_in_a_thousand_passes(tmp_path):
    verdict = multiplied(tmp_path, "y += 1e-3 * NOISE.standard_normal(y.shape).astype(np.float32)")
    assert outcome(verdict, "graph~device") is Outcome.PASSED


TIES = """
def top(x):
    return np.argsort(-x, 1, kind="stable")[:, :3]

def device(feeds):
    i = top(feeds["x"])
    {fault}
    return {{"y": i}}

def cases():
    return [Case("ties", {{"x": np.array([[1, 3, 3, 2, 3]], np.float32)}}), Case("none", {{"x": normal(0, 1, 5)}})]
"""


def ranked(tmp_path, fault: str):
    from onnx import helper

    nodes = [helper.make_node("TopK", ["x", "k"], ["v", "y"], name="topk", axis=1)]
    weights = {"k": np.array([3], np.int64)}
    save(tmp_path / "m.onnx", nodes, [("x", FLOAT, [1, 5])], [("y", INT64, [1, 3])], weights)
    return checked(tmp_path, own("fp32"), TIES.format(fault=fault))


def test_the_order_of_ties_is_free_in_every_tier(tmp_path):
    verdict = ranked(tmp_path, "i[0] = i[0, ::-1] if len(set(feeds['x'][0, i[0]])) == 1 else i[0]")
    assert outcome(verdict, "graph~device") is Outcome.PASSED
    assert "device 1.0000" in leg(verdict, "source~device").reason  # the score does not suffer either


def test_an_index_of_a_smaller_value_fails(tmp_path):
    verdict = ranked(tmp_path, "i[0, 2] = np.argmin(feeds['x'])")
    assert outcome(verdict, "graph~device") is Outcome.FAILED and verdict.first_divergent["node"] == "topk"
    assert "device 0.6667" in leg(verdict, "source~device").reason


def test_torch_and_the_runtime_may_order_ties_each_their_own_way(tmp_path):
    build = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.topk(3)[1]

def source():
    return Model().eval()

def export(path):
    traced(Model(), np.array([[1, 3, 3, 2, 3]], np.float32), path)

def cases():
    return [Case("ties", {"x": np.array([[1, 3, 3, 2, 3]], np.float32)}), Case("none", {"x": normal(0, 1, 5)})]
"""
    verdict = checked(tmp_path, TORCH, build)
    assert outcome(verdict, "source~graph") is Outcome.PASSED
    assert "device 1.0000" in leg(verdict, "source~device").reason
