"""Tensor files as others write them, and as they are when damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verify.core import UsageError
from verify.formats_in import load

VALUE = np.arange(6, dtype=np.float32).reshape(2, 3)


def safetensors(path: Path, dtype: str, raw: bytes, shape: list[int], **more: Any) -> Path:
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [0, len(raw)], **more}
    header = json.dumps({"__metadata__": {"format": "pt"}, "y": entry}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + raw)
    return path


def test_safetensors(tmp_path: Path) -> None:
    held = load(safetensors(tmp_path / "a.safetensors", "F32", VALUE.tobytes(), [2, 3]))
    np.testing.assert_array_equal(held.tensors["y"], VALUE)
    upper = (VALUE.view(np.uint32) >> 16).astype(np.uint16)  # small integers lose nothing in bf16
    held = load(safetensors(tmp_path / "b.safetensors", "BF16", upper.tobytes(), [2, 3]))
    np.testing.assert_array_equal(held.tensors["y"], VALUE)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda p: safetensors(p, "F32", VALUE.tobytes()[:-4], [2, 3]),
        lambda p: safetensors(p, "F32", VALUE.tobytes(), [2, 3], data_offsets=[0, 400]),
        lambda p: safetensors(p, "F32", VALUE.tobytes(), [2, 3], data_offsets=[-8, 16]),
        lambda p: safetensors(p, "F8_E4M3", b"123456", [2, 3]),
        lambda p: p.write_bytes(b"123"),
        lambda p: p.write_bytes(b"\xff" * 64),
        lambda p: p.write_bytes((4).to_bytes(8, "little") + b"nope"),
    ],
)
def test_damaged_safetensors(tmp_path: Path, spoil: Any) -> None:
    spoil(tmp_path / "a.safetensors")
    with pytest.raises(UsageError):
        load(tmp_path / "a.safetensors")


def test_onnx_test_data(tmp_path: Path) -> None:
    from onnx import numpy_helper

    for case in range(2):
        folder = tmp_path / f"test_data_set_{case}"
        folder.mkdir()
        for i in range(11):
            (folder / f"output_{i}.pb").write_bytes(numpy_helper.from_array(VALUE + i, f"t{i}").SerializeToString())
        (folder / "input_0.pb").write_bytes(numpy_helper.from_array(-VALUE, "x").SerializeToString())
    held = load(tmp_path / "test_data_set_0")
    assert list(held.tensors) == [f"t{i}" for i in range(11)]  # output_10 after output_9
    assert list(load(tmp_path / "test_data_set_0", "input").tensors) == ["x"]
    assert set(load(tmp_path).tensors) == {f"test_data_set_{c}/t{i}" for c in range(2) for i in range(11)}
    np.testing.assert_array_equal(load(tmp_path / "test_data_set_1" / "output_3.pb").tensors["t3"], VALUE + 3)


def test_nameless_onnx_tensors_keep_their_position(tmp_path: Path) -> None:
    from onnx import numpy_helper

    for i in range(2):
        (tmp_path / f"output_{i}.pb").write_bytes(numpy_helper.from_array(VALUE + i).SerializeToString())
    held = load(tmp_path)
    assert list(held.tensors) == ["output_0", "output_1"] and not held.named


def test_bfloat16(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    made = helper.make_tensor("y", TensorProto.BFLOAT16, [2, 3], VALUE.reshape(-1).tolist())
    (tmp_path / "y.pb").write_bytes(made.SerializeToString())
    np.testing.assert_array_equal(load(tmp_path / "y.pb").tensors["y"], VALUE)


def test_small_floats_are_refused_not_read_as_their_bits(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    made = helper.make_tensor("y", TensorProto.FLOAT8E4M3FN, [2, 3], VALUE.reshape(-1).tolist())
    (tmp_path / "y.pb").write_bytes(made.SerializeToString())
    with pytest.raises(UsageError, match="FLOAT8E4M3FN"):
        load(tmp_path / "y.pb")


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", y=np.array([{"a": 1}], object))
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], object))
    for name in ("a.npz", "a.npy"):
        with pytest.raises(UsageError):
            load(tmp_path / name)


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".pb"])
@pytest.mark.parametrize("content", [b"", b"garbage that is no file of any kind", None])
def test_damaged_files(tmp_path: Path, suffix: str, content: bytes | None) -> None:
    path = tmp_path / f"a{suffix}"
    if content is None:  # truncated
        whole = tmp_path / "whole.npz"
        np.savez(whole, y=VALUE)
        content = whole.read_bytes()[:150]
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_what_is_no_tensor_file(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    for name in ("a.onnx", "empty", "missing.npz"):
        with pytest.raises(UsageError):
            load(tmp_path / name)
