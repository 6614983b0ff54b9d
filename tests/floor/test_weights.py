"""Constants as a build holds them."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.floor.test_noise import graph
from verify.floor.grids import FP16
from verify.floor.weights import as_built, constants, onto, per_channel

RNG = np.random.default_rng(1)
W = RNG.standard_normal((6, 4)).astype(np.float32)
B = RNG.standard_normal(4).astype(np.float32)


def test_int8_weights_are_asymmetric_per_channel() -> None:
    w = np.float32([[0.0, -1.0], [2.55, 1.0], [1.004, 0.5]])
    got = per_channel(w, 1)
    np.testing.assert_allclose(got[:, 0], [0, 2.55, 1.0], atol=1e-6)  # the step is 0.01, and zero is kept
    step = 2 / 255
    assert np.abs(got[:, 1] - w[:, 1]).max() <= step / 2 + 1e-6
    assert not np.allclose(per_channel(w, 0), got)
    assert (per_channel(np.zeros((2, 2), np.float32), 0) == 0).all()


def test_fp16_weights_are_rounded_biases_are_not_and_other_constants_are() -> None:
    held = graph(
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["h"]),
        helper.make_node("Mul", ["h", "c"], ["y"]),
        weights={"w": W, "b": B, "c": B},
        shape=("n", 6),
    )
    as_built(held, "fp16", {}, {"h": FP16, "y": FP16})
    now = constants(held)
    matmul, add, mul = held.node
    np.testing.assert_array_equal(now[matmul.input[1]], W.astype(np.float16))
    np.testing.assert_array_equal(now[add.input[1]], B)
    np.testing.assert_array_equal(now[mul.input[1]], B.astype(np.float16))
    assert np.array_equal(now["w"], W)  # what else reads it keeps it


def test_what_scales_a_result_before_it_is_rounded_is_folded_into_its_weights() -> None:
    c = np.float32([1.1, 0.3, -2.7, 5.0])
    held = graph(
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Mul", ["m", "c"], ["y"]),
        weights={"w": W, "c": c},
        shape=("n", 6),
    )
    as_built(held, "fp16", {}, {"y": FP16})
    now = constants(held)
    np.testing.assert_allclose(now[held.node[0].input[1]] * c, onto(W * c, FP16), rtol=1e-6)
    np.testing.assert_array_equal(now[held.node[1].input[1]], c)
    between = graph(*held.node, weights={"w": W, "c": c}, shape=("n", 6))
    between.node[0].input[1], between.node[1].input[1] = "w", "c"
    as_built(between, "fp16", {}, {"m": FP16, "y": FP16})  # the product is rounded by itself: nothing is folded
    np.testing.assert_array_equal(constants(between)[between.node[0].input[1]], W.astype(np.float16))


def test_a_stated_grid_is_used_unless_the_compiler_changed_the_constant_first() -> None:
    held = graph(helper.make_node("Mul", ["x", "c"], ["y"]), weights={"c": B}, shape=("n", 4))
    entry = {"scale": float(np.ptp(B)) / 255, "zero_point": 0, "dtype": "int8"}
    as_built(held, "w8a8", {"c": {**entry, "scale": 0.05}}, {})
    codes = constants(held)[held.node[0].input[1]] / 0.05
    np.testing.assert_allclose(codes, np.round(codes), atol=1e-4)
    folded = graph(helper.make_node("Mul", ["x", "c"], ["y"]), weights={"c": B}, shape=("n", 4))
    as_built(folded, "w8a8", {"c": {**entry, "scale": 1e-4}}, {})
    np.testing.assert_array_equal(constants(folded)[folded.node[0].input[1]], B)
