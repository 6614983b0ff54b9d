"""What goes wrong before the first layer: normalised twice, another layout, another order of colours."""

from __future__ import annotations

import pytest
from onnx import helper

from tests.cases.kit import checked, outcome, own
from tests.small import FLOAT, normal, save
from verify.core import Outcome

DECLARED = """
[input.x]
layout = "nchw"
mean = [10, 20, 30]
std = [255, 255, 255]
"""
IMAGES = """
import onnxruntime
from pathlib import Path

HELD = onnxruntime.InferenceSession(str(Path(__file__).with_name("m.onnx")))
MEAN = np.array([10, 20, 30], np.float32).reshape(1, 3, 1, 1)

def run(x):
    return dict(zip("y", HELD.run(None, {{"x": np.ascontiguousarray(x, np.float32)}})))

def right(x):
    return (x.astype(np.float32) - MEAN) / 255

def device(feeds):
    return run({fed})

def cases():
    random = np.random.default_rng
    return [Case(f"c{{i}}", {{"x": random(i).integers(0, 256, (1, 3, {h}, 3)).astype(np.uint8)}}) for i in range(2)]
"""


def image(folder, fed: str, h: int = 3, more: str = DECLARED, build: str = IMAGES):
    node = helper.make_node("Conv", ["x", "w"], ["c"], name="conv")
    end = helper.make_node("Relu", ["c"], ["y"], name="relu")
    shapes = [("x", FLOAT, [1, 3, h, 3])], [("y", FLOAT, [1, 2, h, 3])]
    save(folder / "m.onnx", [node, end], *shapes, {"w": normal(4, 2, 3, 1, 1)})
    return checked(folder, own("fp16", more), build.format(fed=fed, h=h))


def test_the_declared_preprocessing_applied_once_holds(tmp_path):
    verdict = image(tmp_path, 'right(feeds["x"])')
    assert outcome(verdict, "graph~device") is Outcome.PASSED and verdict.blame == ()


@pytest.mark.parametrize(
    ("fed", "said"),
    [
        ('right(right(feeds["x"]))', "normalised once more by mean and std (scale factor 255)"),
        ('feeds["x"]', "not normalised by mean and std (scale factor 255)"),
        ('right(feeds["x"])[:, ::-1]', "colours in the other order"),
        ('right(feeds["x"]).transpose(0, 3, 1, 2)', "read as nhwc although it is nchw"),
        ('right(feeds["x"]) / 255', "divided by 255 once more"),
    ],
)
def test_a_misfed_input_is_named_and_no_node_is_blamed(tmp_path, fed, said):
    verdict = image(tmp_path, fed)
    assert outcome(verdict, "graph~device") is Outcome.FAILED
    assert verdict.blame == ("input",)
    assert verdict.first_divergent == {"node": "x", "op": "Input", "tensor": "x", "leg": "graph~device"}
    assert said in verdict.next_steps[0] and "the device" in verdict.next_steps[0]


def test_a_layout_is_seen_where_the_shape_is_no_cube_too(tmp_path):
    verdict = image(tmp_path, 'right(feeds["x"]).reshape(1, 5, 3, 3).transpose(0, 3, 1, 2)', h=5)
    assert verdict.blame == ("input",) and "nhwc" in verdict.next_steps[0]


@pytest.mark.parametrize(
    "fault", ["* np.float32([[[[1]], [[-1]]]])", "* np.float32(0.01)", "* 0 + normal(0, 1, 2, 3, 3)"]
)
def test_another_fault_is_no_misfed_input(tmp_path, fault):
    build = IMAGES.replace("return run({fed})", 'return {{"y": run(right(feeds["x"]))["y"] {fed}}}')
    verdict = image(tmp_path, fault, build=build)
    assert outcome(verdict, "graph~device") is Outcome.FAILED and "input" not in verdict.blame


def test_a_source_that_normalises_what_is_declared_already_is_named(tmp_path):
    toml = own("fp16", DECLARED).replace('source = "m.onnx"', 'source = "build.py:source"')
    image(tmp_path, 'right(feeds["x"])')
    build = (
        IMAGES.format(fed='right(feeds["x"])', h=3)
        + "\ndef source():\n    return lambda feeds: run(right(feeds['x']))\n"
    )
    verdict = checked(tmp_path, toml, build)
    assert outcome(verdict, "source~graph") is Outcome.FAILED and verdict.blame == ("input",)
    assert "the source has it normalised once more" in verdict.next_steps[0]


def test_noise_is_not_taken_for_colours_in_the_other_order_where_both_are_alike(tmp_path):
    build = IMAGES.replace(
        "return run({fed})",
        """
    y = run(right(feeds["x"]))["y"]
    return {{"y": y + {fed} * normal(0, *y.shape) * np.sqrt((y**2).mean())}}""",
    ).replace("random(i).integers(0, 256, (1, 3, {h}, 3))", "random(i).integers(0, 256, (1, 1, {h}, 3)).repeat(3, 1)")
    verdict = image(tmp_path, "0.3", build=build, more=DECLARED.replace("10, 20, 30", "10, 10, 10"))
    assert outcome(verdict, "graph~device") is Outcome.FAILED and "input" not in verdict.blame
