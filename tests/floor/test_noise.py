"""Rounding at a phase, written as ONNX operators, against numpy's own rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from verify.backends import _ort
from verify.floor import noise
from verify.floor.grids import BF16, FP16, Grid, Integer
from verify.floor.weights import onto

RNG = np.random.default_rng(0)
SPREAD = (RNG.standard_normal(4000) * 10.0 ** RNG.uniform(-8, 4.5, 4000)).astype(np.float32)


def graph(*nodes: Any, weights: Any = None, shape: Any = ("n",)) -> Any:
    return helper.make_graph(
        nodes or [helper.make_node("Identity", ["x"], ["h"]), helper.make_node("Neg", ["h"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )


def run(held: Any, to: noise.Writer, x: Any, value: float) -> Any:
    model = helper.make_model(held, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = _ort.load(model.SerializeToString(), _ort.options("off"), "test")
    (found,) = session.run(["y"], {"x": x, **dict.fromkeys(to.fed, np.array(value, np.float32))})
    return found


def rounded(x: Any, grid: Grid, phase: float = 0.0) -> Any:
    """x on the grid, through a node that negates -x."""
    held = graph()
    to = noise.rounding(held, {"y": grid})
    return run(held, to, -x, phase)


@pytest.mark.parametrize("grid", [FP16, BF16])
def test_without_a_phase_it_is_the_formats_own_rounding(grid: Grid) -> None:
    x = np.concatenate([SPREAD, np.float32([0, 65519, 65520, 1e6, -1e9, np.inf, 6e-8, 2.9e-8, 6.1e-5])])
    wanted = onto(x, grid)
    if grid == FP16:
        assert np.isinf(wanted).any() and (np.abs(wanted[wanted != 0]).min() < 2.0**-14)
    np.testing.assert_array_equal(rounded(x, grid), wanted)


def test_a_phase_errs_by_half_a_unit_at_the_elements_own_exponent() -> None:
    x = SPREAD[np.abs(SPREAD) < 60000]
    unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(x), 2.0**-14))) - 10)
    errors = np.stack([(rounded(x, FP16, phase) - x.astype(float)) / unit for phase in np.linspace(-0.49, 0.49, 33)])
    # a carry into the next power of two has twice the unit there
    assert np.abs(errors).max() <= 1.02 and np.mean(np.abs(errors) > 0.502) < 1e-3
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(12**-0.5, rel=0.02)
    assert np.sqrt(np.mean(errors**2, 0)).min() > 0.2  # every element, whatever its own fraction


def test_integers_saturate_where_the_build_does_at_every_phase() -> None:
    grid = Integer(0.1, -100, 155)
    x = np.linspace(-30, 30, 5001, dtype=np.float32)
    np.testing.assert_allclose(rounded(x, grid), onto(x, grid), atol=1e-5)
    for phase in (-0.4, 0.3):
        y = rounded(x, grid, phase)
        assert y.min() == pytest.approx(-10) and y.max() == pytest.approx(15.5)
        inside = (x > -9.9) & (x < 15.4)
        assert np.abs(y - x)[inside].max() <= 0.0501
    assert np.ptp(rounded(np.full(100, 1.23, np.float32), grid, 0.2)) == 0  # equal values err alike


def test_what_passes_values_on_does_not_round_them_again() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    once, other = Integer(0.1, -128, 127), Integer(0.07, -128, 127)
    assert len(noise.rounding(graph(*nodes), {"h": once, "y": once}).fed) == 1
    assert len(noise.rounding(graph(*nodes), {"h": once, "y": other}).fed) == 2
    x = np.linspace(-3, 3, 601, dtype=np.float32)
    held = graph(*nodes)
    y = run(held, noise.rounding(held, {"h": once, "y": once}), x, 0.3)
    assert np.abs(y - np.maximum(-x, 0)).max() <= 0.0801  # a phase moves the grid, which Relu then cuts at 0


def test_float32_rounds_anew_and_leaves_exact_numbers_alone() -> None:
    held = graph(helper.make_node("Tanh", ["x"], ["y"]))
    to = noise.accumulating(held, frozenset({"x", "y"}))
    x = np.append(RNG.standard_normal(1000), 0).astype(np.float32)
    y = run(held, to, x, 0.7123)
    assert 0 < np.abs(y / np.tanh(x, where=x != 0, out=np.ones_like(x)) - 1)[:-1].max() < 2.0**-21
    assert y[-1] == 0


def test_a_sum_of_products_keeps_its_value_and_its_bias() -> None:
    weights = {"w": RNG.standard_normal((300, 5)).astype(np.float32), "b": np.ones(5, np.float32)}
    held = graph(helper.make_node("Gemm", ["x", "w", "b"], ["y"]), weights=weights, shape=("n", 300))
    to = noise.accumulating(held, frozenset({"x", "y", "w", "b"}))
    x = RNG.standard_normal((7, 300)).astype(np.float32)
    found = [run(held, to, x, factor) for factor in (0.51, 0.77)]
    exact = x.astype(float) @ weights["w"] + 1
    assert 0 < np.abs(found[0] - found[1]).max() and np.abs(found[0] - exact).max() < 1e-4
