"""What the vendor's real compiler and simulator do wrong with every return code 0."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
from onnx import helper

from tests.cases.kit import checked, failing, leg, outcome
from tests.cases.test_reference import CHAOS
from tests.small import FLOAT, normal, save
from verify.compare import compare_files
from verify.core import Outcome

TOML = """
model = "m"
target = "rk3588"
source = "m.onnx"
graph = "m.onnx"
cases = "build.py:cases"
[input.x]
layout = "nchw"
[variant.v]
"""
FP16 = TOML + 'precision = "fp16"\n'
INT8 = TOML + 'precision = "w8a8"\ncalibration = "build.py:calibration"\n'
CASES = """
def cases():
    return [Case(f"c{{i}}", {{"x": {value}}}) for i in range(2)]

calibration = cases
"""


def test_a_zero_pad_before_a_max_pool_is_folded_away(tmp_path):
    nodes = [
        helper.make_node("Pad", ["x", "p"], ["a"], name="pad", mode="constant"),
        helper.make_node("MaxPool", ["a"], ["y"], name="maxpool", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    weights = {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)}
    save(tmp_path / "m.onnx", nodes, [("x", FLOAT, [1, 1, 4, 4])], [("y", FLOAT, [1, 1, 3, 3])], weights)
    value = "-np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4) * (i + 1)"
    verdict = checked(tmp_path, FP16, CASES.format(value=value))
    assert outcome(verdict, "graph~simulator") is Outcome.FAILED and verdict.blame == ("compiler",)
    assert verdict.first_divergent["node"] == "maxpool"


def detector(folder) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "wb"], ["b0"], name="convb"),
        helper.make_node("Relu", ["b0"], ["b1"], name="relu"),
        helper.make_node("Mul", ["b1", "k"], ["b"], name="boxmul"),
        helper.make_node("Conv", ["x", "ws"], ["s0"], name="convs"),
        helper.make_node("Sigmoid", ["s0"], ["s"], name="sig"),
        helper.make_node("Concat", ["b", "s"], ["y"], name="cat", axis=1),
    ]
    weights = {"wb": np.abs(normal(1, 4, 4, 1, 1)), "ws": normal(2, 2, 4, 1, 1), "k": np.float32(160)}
    save(folder / "m.onnx", nodes, [("x", FLOAT, [1, 4, 8, 8])], [("y", FLOAT, [1, 6, 8, 8])], weights)


def test_scores_that_share_a_scale_with_pixels_are_all_zero(tmp_path):
    detector(tmp_path)
    verdict = checked(tmp_path, INT8, CASES.format(value="normal(i, 1, 4, 8, 8)"))
    assert verdict.first_divergent["node"] == "cat" and verdict.blame[0] == "quantiser"
    assert "the block from s is 0 everywhere" in failing(verdict, "diversity")[0].message
    assert any("0 of 128 elements are non-zero" in f.message for f in failing(verdict, "range"))


def test_an_intermediate_beyond_65504_is_found_where_it_arises(tmp_path):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="c1"),
        helper.make_node("Relu", ["a"], ["r"], name="r1"),
        helper.make_node("Conv", ["r", "w2"], ["y"], name="c2"),
    ]
    weights = {"w": np.abs(normal(1, 4, 4, 1, 1)) * 3e4, "w2": normal(2, 2, 4, 1, 1) * 1e-4}
    weights = {name: value.astype(np.float32) for name, value in weights.items()}
    save(tmp_path / "m.onnx", nodes, [("x", FLOAT, [1, 4, 6, 6])], [("y", FLOAT, [1, 2, 6, 6])], weights)
    verdict = checked(tmp_path, FP16, CASES.format(value="normal(i, 1, 4, 6, 6)"))
    assert verdict.first_divergent["node"] in ("c1", "r1") and verdict.blame == ("precision",)
    assert leg(verdict, "graph~simulator").worst["metric"] == "nonfinite"  # and no finite error in its place
    assert any(f.metric == "over_65504" for f in verdict.findings)


def test_settings_that_normalise_what_is_normalised_already(tmp_path):
    save(tmp_path / "m.onnx", [helper.make_node("Conv", ["x", "w"], ["y"], name="conv")], [("x", FLOAT, [1, 3, 8, 8])],
         [("y", FLOAT, [1, 2, 8, 8])], {"w": normal(0, 2, 3, 1, 1)})  # fmt: skip
    more = "[variant.v.rknn]\nmean_values = [[0, 0, 0]]\nstd_values = [[255, 255, 255]]\n"
    verdict = checked(tmp_path, FP16 + more, CASES.format(value="np.abs(normal(i, 1, 3, 8, 8))"))
    assert verdict.blame == ("input",) and verdict.first_divergent["node"] == "x"
    assert "scale factor 255" in verdict.next_steps[0]


def test_an_error_that_only_grows_is_blamed_on_no_layer(tmp_path):
    toml = FP16.replace('[input.x]\nlayout = "nchw"\n', "").replace('"m.onnx"', '"build.py:source"', 1)
    verdict = checked(tmp_path, toml.replace('"m.onnx"', '"build.py:export"'), "LAYERS = 24\n" + CHAOS)
    assert outcome(verdict, "graph~simulator") is Outcome.FAILED and verdict.blame == ("precision",)
    assert "no layer is wrong by itself" in verdict.next_steps[0]
    assert int(verdict.first_divergent["node"].rpartition("_")[2]) > 9  # where it crosses the limit, not where it began


RESIZED = """
def cases():
    return [Case(f"c{i}", {"x": normal(i, 1, 4, 6, 6)}) for i in range(2)]
"""


def resized(path, mode: str) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name="conv1"),
        helper.make_node("Resize", ["a", "", "", "size"], ["u"], name="up", mode="linear",
                         coordinate_transformation_mode=mode),
        helper.make_node("Conv", ["u", "w2"], ["y"], name="conv2"),
    ]  # fmt: skip
    weights = {"w1": normal(1, 4, 4, 1, 1), "w2": normal(2, 2, 4, 1, 1), "size": np.array([1, 4, 12, 12], np.int64)}
    save(path, nodes, [("x", FLOAT, [1, 4, 6, 6])], [("y", FLOAT, [1, 2, 12, 12])], weights)


def ran(path, inner: bool, feeds):
    from verify.backends.graph import GraphBackend
    from verify.core import Candidate, Variant

    held = Candidate("m", Variant("v", "cpu"), path.parent, "", str(path), "")
    from tests.small import artifact

    with GraphBackend(instrument=True).open(held, artifact(path)) as session:
        outputs, found = session.run_all(feeds)
    return {**found, **outputs} if inner else outputs


def test_a_board_that_resizes_otherwise_is_blamed_and_its_simulator_is_not(tmp_path, monkeypatch):
    """The board is made up (asymmetric instead of half-pixel sampling); without it, nothing is proven."""
    resized(tmp_path / "m.onnx", "half_pixel")
    alone = checked(tmp_path, FP16, RESIZED)
    assert (
        outcome(alone, "graph~simulator") is Outcome.PASSED and outcome(alone, "graph~device") is Outcome.INCONCLUSIVE
    )
    assert any("no board" in item for item in alone.not_proven)
    resized(tmp_path / "board.onnx", "asymmetric")

    class Board:
        def run(self, feeds):
            return ran(tmp_path / "board.onnx", False, feeds)

    @contextmanager
    def board(stage, build):
        yield Board(), "hardware"

    monkeypatch.setattr("verify.capture.device", board)
    verdict = checked(tmp_path, FP16, RESIZED)
    assert outcome(verdict, "graph~simulator") is Outcome.PASSED and verdict.blame == ("board",)
    assert outcome(verdict, "graph~device") is outcome(verdict, "simulator~device") is Outcome.FAILED
    assert "nothing inside this leg was compared" in str(verdict)


@pytest.mark.parametrize("order", [("a", "u", "y"), ("y", "u", "a")])
def test_dumped_inner_tensors_name_the_first_divergent_node(tmp_path, order):
    feeds = {"x": normal(0, 1, 4, 6, 6)}
    for name, mode in (("m", "half_pixel"), ("board", "asymmetric")):
        resized(tmp_path / f"{name}.onnx", mode)
        held = ran(tmp_path / f"{name}.onnx", True, feeds)
        np.savez(tmp_path / f"{name}.npz", **{key: held[key] for key in order})
    found = compare_files(tmp_path / "m.npz", tmp_path / "board.npz", "fp16", tmp_path / "m.onnx")
    assert not found.within and "first divergent node: up [Resize], its output: u" in str(found)
