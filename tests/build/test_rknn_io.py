"""Inputs and outputs of the simulator, held against what the graph declares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import rknn_models as models
from onnx import TensorProto, helper

from verify.build.rknn_io import Signature, Tensor, feed, outputs, signature
from verify.core import Candidate, NotComparable, UsageError, Variant


def declared(dtype: Any, shape: Any, *more: Tensor) -> Signature:
    return Signature((Tensor("x", np.dtype(dtype), shape),), (Tensor("x", np.dtype(dtype), shape), *more), {})


def test_the_signature_leaves_initialisers_out_and_keeps_the_order(tmp_path: Path) -> None:
    path = models.tokens(tmp_path / "tokens.onnx")
    held = signature(path, Candidate("m", Variant("v", "rk3588"), tmp_path, "", "", ""))
    assert [(t.name, t.dtype, t.shape) for t in held.inputs] == [
        ("ids", np.int64, (1, 8)),
        ("mask", np.float32, (1, 8)),
    ]
    assert [(t.name, t.dtype, t.shape) for t in held.outputs][1:] == [
        ("mean", np.float32, ()),
        ("best", np.int64, (1, 8)),
    ]
    assert held.fixed == {}


def test_an_input_of_unknown_rank_needs_a_shape(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    path = tmp_path / "rank.onnx"
    onnx.save(helper.make_model(helper.make_graph([node], "rank", values[:1], values[1:])), str(path))
    with pytest.raises(UsageError, match="open axes"):
        signature(path, Candidate("m", Variant("v", "rk3588"), tmp_path, "", "", ""))


@pytest.mark.parametrize(
    ("dtype", "value", "wanted"),
    [
        ("float32", np.array([0.1], np.float64), np.array([0.1], np.float32)),
        ("float32", np.array([255], np.uint8), np.array([255], np.float32)),
        ("int64", np.array([7], np.int32), np.array([7], np.int64)),
        ("int32", np.array([7], np.int64), np.array([7], np.int32)),
        ("int64", np.array([True]), np.array([1], np.int64)),
    ],
)
def test_dtypes_become_the_declared_one_where_no_value_changes(dtype: str, value: Any, wanted: Any) -> None:
    (got,) = feed(declared(dtype, (1,)), {"x": value})
    assert got.dtype == wanted.dtype and got == wanted


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int64", np.array([1.0], np.float32)),
        ("int32", np.array([2**40], np.int64)),
        ("float32", np.array([2**24 + 1], np.int64)),
        ("uint8", np.array([-1], np.int8)),
        ("float64", np.array([2**53 + 1], np.int64)),
    ],
)
def test_a_dtype_that_would_change_a_value_is_refused(dtype: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"the graph states {dtype}"):
        feed(declared(dtype, (1,)), {"x": value})


def test_arrays_are_handed_over_contiguous_and_keep_their_rank() -> None:
    (got,) = feed(declared("float32", (2, 3)), {"x": np.arange(6, dtype=np.float32).reshape(3, 2).T})
    assert got.flags.c_contiguous and got.tolist() == [[0, 2, 4], [1, 3, 5]]
    (scalar,) = feed(declared("float32", ()), {"x": np.float32(3)})
    assert scalar.shape == ()


def test_missing_and_extra_inputs_are_refused() -> None:
    for feeds in ({}, {"y": np.zeros(1)}, {"x": np.zeros(1), "y": np.zeros(1)}):
        with pytest.raises(UsageError, match=r"the graph has \['x'\]"):
            feed(declared("float32", (1,)), feeds)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_outputs_are_counted(count: int) -> None:
    two = declared("float32", (1,), Tensor("y", np.dtype("float32"), (1,)))
    with pytest.raises(NotComparable, match=rf"{count} of 2 outputs came back \(x, y\)") as caught:
        outputs(two, [np.zeros(1, np.float32)] * count)
    assert caught.value.where == "graph~simulator"


def test_whole_numbers_get_the_declared_dtype_and_nothing_else_changes() -> None:
    def back(dtype: str, value: Any, shape: Any = (2,)) -> Any:
        return outputs(declared(dtype, shape), [value])["x"]

    assert back("int64", np.array([3.0, 4.0], np.float32)).dtype == np.int64
    assert back("int64", np.array([3, 4], np.int32)).dtype == np.int64
    for value in ([3.5, 4.0], [np.nan, 4.0], [np.inf, 4.0], [1e30, 0.0], [2.0**63, 0.0]):
        held = np.array(value, np.float32)
        assert back("int64", held).dtype == np.float32 and np.array_equal(back("int64", held), held, equal_nan=True)
    assert back("float32", np.zeros(2, np.float16)).dtype == np.float16
    assert back("float32", np.zeros((1, 2), np.float32)).shape == (1, 2)  # for the structure checker to judge
    assert back("float32", np.zeros(1, np.float32), ()).shape == ()
    assert back("float32", np.zeros(2, np.float32), ()).shape == (2,)
