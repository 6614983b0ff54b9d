"""Faults that the vendor's real toolkit compiles: found at their node, by each way of looking, and blamed on it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.small import artifact, candidate
from verify.build.rknn import RknnBuilder
from verify.core import Outcome
from verify.gating import check
from verify.judge import judge
from verify.policy import REQUIRED, Policy
from verify.store import Store

POLICY = Policy("no score", tuple(name for name in REQUIRED if name not in ("accuracy", "agreement")))
LEG = "graph~simulator"
TOML = """
model = "block"
target = "rk3588"
source = "model.onnx"
graph = "model.onnx"
cases = "build.py:cases"
[variant.int8]
precision = "w8a8"
calibration = "build.py:cases"
[variant.fp16]
precision = "fp16"
"""
BUILD = """
import numpy as np

def cases():
    rng = np.random.default_rng(1)
    for _ in range(2):
        yield {"x": rng.standard_normal((1, 32, 64)).astype(np.float32)}
"""
RNG = np.random.default_rng(7)
HELD = {
    "g": 1 + RNG.standard_normal(64) / 8, "o": RNG.standard_normal(64) / 8, "b": RNG.standard_normal(96) / 4,
    "a": RNG.standard_normal((64, 96)) / 8, "c": RNG.standard_normal((96, 64)) / 10, "d": RNG.standard_normal(64) / 4,
}  # fmt: skip


def block(path, epsilon=1e-5, **other):
    """y = (relu(LN(x) a + b) c + d) + x, of 32 tokens."""
    nodes = [
        helper.make_node("LayerNormalization", ["x", "g", "o"], ["n"], name="/norm", axis=-1, epsilon=epsilon),
        helper.make_node("MatMul", ["n", "a"], ["na"], name="/up"),
        helper.make_node("Add", ["na", "b"], ["h"], name="/up_bias"),
        helper.make_node("Relu", ["h"], ["r"], name="/relu"),
        helper.make_node("MatMul", ["r", "c"], ["rc"], name="/down"),
        helper.make_node("Add", ["rc", "d"], ["e"], name="/down_bias"),
        helper.make_node("Add", ["e", "x"], ["y"], name="/residual"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 32, 64)) for name in ("x", "y")]
    held = [numpy_helper.from_array({**HELD, **other}[n].astype(np.float32), n) for n in HELD]
    graph = helper.make_graph(nodes, "block", values[:1], values[1:], held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(made.SerializeToString())
    return path


def scaled(name, channel, by):
    value = HELD[name].copy()
    value[..., channel] *= by
    return {name: value}


FAULTS = {
    "none": ({}, None),
    "one channel 1 % off": (scaled("c", 5, 1.01), {"/down", "/down_bias"}),
    "a bias lost": ({"b": HELD["b"] * 0}, {"/up_bias", "/relu"}),
    "a layer's gain 0.3 % off": ({"c": HELD["c"] * 1.003}, {"/down", "/down_bias"}),
    "epsilon 1e-3": ({"epsilon": 1e-3}, {"/norm"}),
}


@pytest.mark.parametrize("variant", ["fp16", "int8"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_at_its_node(tmp_path, monkeypatch, fault, variant):
    other, nodes = FAULTS[fault]
    block(tmp_path / "model.onnx")
    compiled = artifact(block(tmp_path / "compiled.onnx", **other))
    real = RknnBuilder.open
    monkeypatch.setattr(RknnBuilder, "open", lambda self, held, graph, *rest: real(self, held, compiled, *rest))
    held = candidate(tmp_path, TOML, BUILD, variant)
    verdict = check(held, POLICY, store=Store(tmp_path / "store"), run=tmp_path / "run")
    outcome = next(leg.outcome for tier in verdict.tiers.values() for leg in tier.legs if leg.name == LEG)
    ratios = [m.value for m in verdict.measurements if m.metric == "rewritten"]
    assert len(ratios) >= 8
    if nodes is None:
        assert outcome is Outcome.PASSED and verdict.first_divergent is None and not verdict.blame
        assert 0.1 < max(ratios) < 10  # float32 rounding, and not nothing
        return
    assert outcome is Outcome.FAILED and verdict.blame == ("compiler",)
    assert verdict.first_divergent["node"] in nodes and verdict.first_divergent["leg"] == LEG
    simulated = _without_golden(tmp_path / "run")
    assert simulated.first_divergent["node"] in nodes and simulated.blame == ("compiler",)


def _without_golden(folder):
    """The verdict by simulated values alone: a wrong kernel shows in nothing else."""
    import json

    from verify.stored import from_document

    run = from_document(json.loads((folder / "run.json").read_text()))
    return judge(dataclasses.replace(run, measurements=[m for m in run.measurements if m.grain != "rewrite"]), POLICY)
