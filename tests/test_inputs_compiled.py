"""Layout, mean and std declared once and applied once, through the vendor's compiler and simulator."""

from __future__ import annotations

import json

import pytest
from onnx import helper

from tests.small import FLOAT, candidate, normal, save
from verify.cli import main

pytest.importorskip("rknn")

TOML = """
model = "m"
target = "rk3588"
source = "m.onnx"
graph = "m.onnx"
cases = "build.py:cases"
[input.x]
layout = "nhwc"
mean = [123, 116, 20]
std = [58, 57, 200]
shape = [1, 4, 4, 3]
[variant.fp16]
precision = "fp16"
[variant.int8]
precision = "w8a8"
calibration = "build.py:cases"
"""
BUILD = """
import numpy as np
def cases():
    for i in range(4):
        random = np.random.default_rng(i)
        pixels = random.integers(0, 256, (1, 4, 4, 3)).astype(np.uint8)
        yield {"x": pixels, "e": random.normal(size=(1, 5)).astype(np.float32)}
"""


@pytest.mark.parametrize(("variant", "within"), [("fp16", 2e-3), ("int8", 0.1)])
def test_an_image_of_bytes_in_the_applications_layout_reaches_the_simulator_right(tmp_path, capfd, variant, within):
    """A second normalisation would be a factor of about 100, a wrong layout an error of the signal's size.

    The input that is not declared comes first in the graph, and has five channels.
    """
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
        helper.make_node("MatMul", ["e", "v"], ["z"]),
    ]
    inputs = [("e", FLOAT, [1, 5]), ("x", FLOAT, [1, 3, "h", "w_"])]
    weights = {"w": normal(0, 4, 3, 1, 1), "v": normal(1, 5, 2)}
    save(tmp_path / "m.onnx", nodes, inputs, [("y", FLOAT, None), ("z", FLOAT, None)], weights)
    candidate(tmp_path, TOML, BUILD, variant)
    command = ["check", str(tmp_path / "candidate.toml"), "--variant", variant, "--cache", str(tmp_path / "c")]
    assert main([*command, "--quiet", "--json", "-"]) == 0
    report = json.loads(capfd.readouterr().out)
    errors = {
        (m["where"]["case"], m["where"]["tensor"]): float(m["value"])
        for m in report["measurements"]
        if m["metric"] == "relative_l2" and m["where"]["leg"] == "graph~simulator" and m["where"]["tensor"] in "yz"
    }
    assert len(errors) == 8 and all(0 < value < within for value in errors.values()), errors
