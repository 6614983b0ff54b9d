from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.small import FLOAT, candidate, save
from verify.core import UsageError
from verify.inputs import graph_shape, laid_out, prepare, rknn_input_settings

HEAD = """
model = "m"
target = "rk3588"
source = "m.onnx"
graph = "m.onnx"
cases = "build.py:cases"
[variant.a]
precision = "fp16"
"""
IMAGE = '[input.x]\nlayout = "LAYOUT"\nmean = [10, 20, 30]\nstd = [2, 4, 8]\n'


def image(folder, layout="nchw"):
    return candidate(folder, HEAD + IMAGE.replace("LAYOUT", layout))


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_mean_and_std_apply_to_the_channels_of_either_layout(tmp_path, layout, dtype):
    fed = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).astype(dtype)
    given = fed if layout == "nchw" else np.ascontiguousarray(fed.transpose(0, 2, 3, 1))
    out = prepare(image(tmp_path, layout), {"x": given})["x"]
    for channel, (mean, std) in enumerate(((10, 2), (20, 4), (30, 8))):
        np.testing.assert_array_equal(out[:, channel], (fed[:, channel].astype(np.float32) - mean) / std)
    assert out.dtype == np.float32 and out.flags.c_contiguous


def test_a_model_that_normalises_by_itself_is_only_laid_out(tmp_path):
    given = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    out = laid_out(image(tmp_path, "nhwc"), {"x": given})["x"]
    assert out.dtype == np.uint8 and np.array_equal(out, given.transpose(0, 3, 1, 2))


def test_what_is_not_declared_is_fed_as_it_is(tmp_path):
    ids = np.array([[1, 2]])
    assert prepare(image(tmp_path), {"ids": ids, "x": np.zeros((1, 3, 1, 1), np.float32)})["ids"] is ids


def test_half_precision_inputs_come_back_in_half_precision(tmp_path):
    assert prepare(image(tmp_path), {"x": np.zeros((1, 3, 1, 1), np.float16)})["x"].dtype == np.float16


def test_a_declared_shape_is_turned_to_the_graphs_layout(tmp_path):
    held = candidate(tmp_path, HEAD + '[input.x]\nlayout = "nhwc"\nshape = [1, 8, 9, 3]')
    assert graph_shape(held.inputs["x"]) == (1, 3, 8, 9)
    assert graph_shape(None) is None


def two_inputs(folder):
    """A graph whose first input is the one that is not declared, with four channels."""
    nodes = [helper.make_node("ReduceMean", ["e"], ["a"], axes=[1]), helper.make_node("Relu", ["x"], ["y"])]
    inputs = [("e", FLOAT, [1, 4]), ("x", FLOAT, [1, 3, 8, 8])]
    return save(folder / "m.onnx", nodes, inputs, [("a", FLOAT, None), ("y", FLOAT, None)])


def test_the_toolkit_gets_a_list_per_input_in_the_graphs_order(tmp_path):
    path = two_inputs(tmp_path)
    wanted = {
        "mean_values": [[0.0] * 4, [10.0, 20.0, 30.0]],
        "std_values": [[1.0] * 4, [2.0, 4.0, 8.0]],
    }
    assert rknn_input_settings(image(tmp_path), path) == wanted
    assert rknn_input_settings(image(tmp_path)) == wanted, "the candidate's own graph is looked at"


def test_nothing_declared_sets_nothing(tmp_path):
    assert rknn_input_settings(candidate(tmp_path, HEAD)) == {}


def test_an_open_number_of_channels_is_refused(tmp_path):
    nodes = [helper.make_node("Relu", ["e"], ["a"]), helper.make_node("Relu", ["x"], ["y"])]
    inputs = [("e", FLOAT, [1, "n"]), ("x", FLOAT, [1, 3, 8, 8])]
    save(tmp_path / "m.onnx", nodes, inputs, [("a", FLOAT, None), ("y", FLOAT, None)])
    with pytest.raises(UsageError, match=r"input e has no fixed number of channels; .*\[input\.e\] shape"):
        rknn_input_settings(image(tmp_path))
    fixed = candidate(tmp_path, HEAD + IMAGE.replace("LAYOUT", "nchw") + "[input.e]\nshape = [1, 2]")
    assert rknn_input_settings(fixed)["mean_values"] == [[0.0, 0.0], [10.0, 20.0, 30.0]]
