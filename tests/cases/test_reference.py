"""When the reference itself is wrong, when it agrees with a wrong device, and when float32 does not decide."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.cases.kit import TORCH, checked, failing, leg, outcome, own
from tests.small import FLOAT, save
from verify.core import Outcome, Tier

GRAPH = TORCH.replace("build.py:export", "m.onnx")
POOL = """
import torch

def source():
    return torch.nn.Sequential(torch.nn.ReLU(), torch.nn.AvgPool2d(3, 2, 1, ceil_mode=True)).eval()

def cases():
    return [Case("ramp", {"x": np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6) / 36}),
            Case("noise", {"x": normal(0, 1, 1, 6, 6)})]
"""


def pool(folder) -> None:
    """After a Relu, and with an Identity behind it, so that the culprit is neither the first node nor the last."""
    average = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4, "ceil_mode": 1, "count_include_pad": 1}
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node("AveragePool", ["a"], ["p"], name="pool", **average),
        helper.make_node("Identity", ["p"], ["y"], name="end"),
    ]
    save(folder / "m.onnx", nodes, [("x", FLOAT, [1, 1, 6, 6])], [("y", FLOAT, [1, 1, 4, 4])])


@pytest.mark.parametrize("declared", ["", '[input.x]\nlayout = "nchw"\nmean = [-3]\nstd = [7]\n'])
def test_an_average_pool_that_the_runtime_gets_wrong_is_not_blamed_on_anybody_else(tmp_path, declared):
    """onnxruntime divides a ceil-mode window by its full size before opset 19, even without optimisation."""
    pool(tmp_path)
    verdict = checked(tmp_path, GRAPH.replace("[variant", declared + "[variant"), POOL)
    assert outcome(verdict, "source~graph") is Outcome.FAILED and verdict.blame == ("reference",)
    assert verdict.first_divergent == {"node": "pool", "op": "AveragePool", "tensor": "p", "leg": "source~graph"}
    held = leg(verdict, "graph~device")  # the device is the same runtime, and agrees
    assert held.outcome is Outcome.INCONCLUSIVE and "its reference is wrong" in held.reason
    assert any("in float64 agrees with the source" in note for note in verdict.notes)


def test_a_device_that_agrees_with_the_source_is_said_to(tmp_path):
    pool(tmp_path)
    toml = own("fp16").replace('source = "m.onnx"', 'source = "build.py:source"')
    device = "def device(feeds):\n    return {'y': source()(torch.tensor(feeds['x'])).numpy()}\n"
    verdict = checked(tmp_path, toml, POOL + device)
    assert verdict.blame == ("reference",) and not failing(verdict, "layers")
    assert "source and device are 0 apart" in leg(verdict, "graph~device").reason


NORM = """
import torch

def source():
    return torch.nn.LayerNorm(4).eval()

def cases():
    x = np.array([[1e4, 1e4 + 1, 1e4 + 2, 1e4 + 3]], np.float32)
    return [Case("up", {"x": x}), Case("down", {"x": x[:, ::-1].copy()})]
"""


def test_a_cancelling_layer_norm_is_the_runtimes(tmp_path):
    weights = {"g": np.ones(4, np.float32), "b": np.zeros(4, np.float32)}
    node = helper.make_node("LayerNormalization", ["x", "g", "b"], ["y"], name="ln", epsilon=1e-5)
    save(tmp_path / "m.onnx", [node], [("x", FLOAT, [1, 4])], [("y", FLOAT, [1, 4])], weights)
    verdict = checked(tmp_path, GRAPH, NORM)
    assert verdict.blame == ("reference",) and verdict.first_divergent["node"] == "ln"
    assert "export otherwise" in " ".join(verdict.next_steps)


def test_a_correct_graph_that_the_optimiser_fuses_wrongly_fails_on_the_device(tmp_path):
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mu"], axes=[-1]),
        helper.make_node("Sub", ["x", "mu"], ["d"]),
        helper.make_node("Pow", ["d", "two"], ["d2"]),
        helper.make_node("ReduceMean", ["d2"], ["v"], axes=[-1]),
        helper.make_node("Add", ["v", "e"], ["ve"]),
        helper.make_node("Sqrt", ["ve"], ["sd"]),
        helper.make_node("Div", ["d", "sd"], ["n"]),
        helper.make_node("Mul", ["n", "g"], ["ng"]),
        helper.make_node("Add", ["ng", "b"], ["y"], name="last"),
    ]
    weights = {"two": np.float32(2), "e": np.float32(1e-5), "g": np.ones(4, "f"), "b": np.zeros(4, "f")}
    save(tmp_path / "m.onnx", nodes, [("x", FLOAT, [1, 4])], [("y", FLOAT, [1, 4])], weights)
    verdict = checked(tmp_path, GRAPH, NORM)
    assert outcome(verdict, "source~graph") is Outcome.PASSED and verdict.blame == ("compiler",)
    assert outcome(verdict, "graph~device") is Outcome.FAILED
    assert "nothing inside this leg was compared" in str(verdict)  # the last node is only where it shows


@pytest.mark.parametrize(("sign", "wanted"), [(-1, Outcome.FAILED), (1, Outcome.PASSED)])
def test_a_zero_pad_folded_into_a_max_pool_is_the_compilers(tmp_path, sign, wanted):
    """The padding of a MaxPool means minus infinity, a Pad wrote zeros."""
    nodes = [
        helper.make_node("Pad", ["x", "p"], ["a"], name="pad", mode="constant"),
        helper.make_node("MaxPool", ["a"], ["y"], name="maxpool", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    weights = {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)}
    save(tmp_path / "m.onnx", nodes, [("x", FLOAT, [1, 1, 4, 4])], [("y", FLOAT, [1, 1, 3, 3])], weights)
    build = f"""
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.max_pool2d(torch.nn.functional.pad(x, (1, 1, 1, 1)), 2, 2)

def source():
    return Model().eval()

def cases():
    ramp = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)
    return [Case("a", {{"x": {sign} * ramp}}), Case("b", {{"x": {sign} * ramp * 2}})]
"""
    verdict = checked(tmp_path, GRAPH, build)
    assert outcome(verdict, "source~graph") is Outcome.PASSED  # no optimisation there
    assert outcome(verdict, "graph~device") is wanted
    if wanted is Outcome.FAILED:
        assert verdict.blame == ("compiler",) and verdict.first_divergent["node"] == "maxpool"


CHAOS = """
import torch

W = [np.random.default_rng(i).standard_normal((32, 32)).astype("f") * 1.9 / 32**0.5 for i in range(LAYERS)]

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.ParameterList([torch.nn.Parameter(torch.tensor(w), requires_grad=False) for w in W])

    def forward(self, x):
        for w in self.w:
            x = torch.tanh(x @ w) * 1.5
        return x

def source():
    return Model().eval()

def export(path):
    traced(Model(), np.zeros((64, 32), np.float32), path)

def cases():
    return [Case(f"c{i}", {"x": normal(i, 64, 32)}) for i in range(2)]

def scored():
    return [Case(f"s{i}", {"x": normal(100 + i, 64, 32)}) for i in range(40)]

def half(x):
    return x.astype(np.float16)

def device(feeds):
    x = feeds["x"]
    for w in W:
        x = half(np.tanh((half(x) @ half(w)).astype("f")) * np.float32(1.5)).astype("f")
    return {"y": x}
"""


def test_an_ill_conditioned_model_leaves_tier_1_open_and_fails_at_the_end(tmp_path):
    score = '[accuracy]\nscore = "classification"\ncases = "build.py:scored"\n'
    toml = own("fp16", score).replace('"m.onnx"', '"build.py:source"', 1).replace('"m.onnx"', '"build.py:export"')
    verdict = checked(tmp_path, toml, "LAYERS = 30\n" + CHAOS)
    held = leg(verdict, "source~graph")
    assert held.outcome is Outcome.INCONCLUSIVE and "float32 rounding alone" in held.reason
    assert verdict.tiers[Tier.END_TO_END].outcome is Outcome.FAILED and failing(verdict, "accuracy")
    assert "export" not in verdict.blame and "reference" not in verdict.blame


def test_a_shallow_one_of_the_same_kind_holds(tmp_path):
    toml = own("fp16").replace('"m.onnx"', '"build.py:source"', 1).replace('"m.onnx"', '"build.py:export"')
    verdict = checked(tmp_path, toml, "LAYERS = 2\n" + CHAOS)
    assert outcome(verdict, "source~graph") is Outcome.PASSED
    assert outcome(verdict, "graph~device") is Outcome.PASSED
