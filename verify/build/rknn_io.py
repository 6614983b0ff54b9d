"""What goes into the toolkit's simulator and what comes out, held against what the ONNX graph declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from verify.core import Array, Candidate, NotComparable, Tensors, UsageError
from verify.inputs import graph_shape

if TYPE_CHECKING:
    from verify.core import Dtype


@dataclass(frozen=True)
class Tensor:
    """A graph input or output: `shape` has None where it is not static, and is None when the rank is unknown."""

    name: str
    dtype: Dtype
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs in the graph's order; `fixed` are load_onnx's options where the graph leaves axes open."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    fixed: Mapping[str, Any]


def signature(path: Path, candidate: Candidate) -> Signature:
    """The Signature of an ONNX file; raises UsageError if it is unreadable or an open axis is not declared."""
    import onnx

    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except Exception as error:  # protobuf raises its own kinds for truncated files
        raise UsageError(f"not a readable ONNX file ({type(error).__name__})", str(path), "export it again") from error
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [_tensor(value) for value in graph.input if value.name not in constants]
    held = []
    for tensor in inputs:
        shape = tensor.shape
        declared = graph_shape(candidate.inputs.get(tensor.name))
        if shape is None or None in shape:
            if declared is None:
                do = f"state [input.{tensor.name}] shape = [...] in candidate.toml: the NPU needs fixed shapes"
                raise UsageError(f"input {tensor.name} has open axes {shape}", str(path), do)
            held.append(Tensor(tensor.name, tensor.dtype, declared))
        else:
            held.append(tensor)
    fixed: dict[str, Any] = {}
    if held != inputs:
        fixed = {"inputs": [t.name for t in held], "input_size_list": [list(t.shape or ()) for t in held]}
    return Signature(tuple(held), tuple(_tensor(value) for value in graph.output), fixed)


def _tensor(value: Any) -> Tensor:
    from onnx.helper import tensor_dtype_to_np_dtype

    kind = value.type.tensor_type
    shape = None
    if kind.HasField("shape"):
        shape = tuple(d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim)
    return Tensor(value.name, np.dtype(tensor_dtype_to_np_dtype(kind.elem_type)), shape)


def feed(declared: Signature, feeds: Tensors) -> list[Array]:
    """Arrays in the graph's order and of its dtypes; raises UsageError for other names, shapes and lossy dtypes.

    The toolkit itself ignores extra inputs, answers None to float64, and takes any layout that fits.
    """
    names = [tensor.name for tensor in declared.inputs]
    if set(feeds) != set(names):
        what = f"inputs {sorted(feeds)} were fed, the graph has {sorted(names)}"
        raise UsageError(what, "case", "feed each input by its name and nothing else")
    out = []
    for tensor in declared.inputs:
        value = np.asarray(feeds[tensor.name])
        if value.shape != tensor.shape:
            raise UsageError(f"shape {value.shape}, the graph states {tensor.shape}", f"input {tensor.name}")
        out.append(np.ascontiguousarray(_cast(tensor, value)).reshape(value.shape))
    return out


def _cast(tensor: Tensor, value: Array) -> Array:
    """float64 becomes the declared float32; integers change their width or become float only where no value changes."""
    if value.dtype == tensor.dtype:
        return value
    floats = value.dtype.kind == "f" and tensor.dtype.kind == "f"
    if not floats and not (
        value.dtype.kind in "iub" and tensor.dtype.kind in "iubf" and _lossless(value, tensor.dtype)
    ):
        what = f"dtype {value.dtype}, the graph states {tensor.dtype}"
        raise UsageError(what, f"input {tensor.name}", "feed the graph's own dtype")
    return value.astype(tensor.dtype)


def _lossless(value: Array, dtype: Dtype) -> bool:
    with np.errstate(invalid="ignore"):  # a cast out of range is what is being looked for
        cast = value.astype(dtype)
        # both: int8 -1 survives the way to uint8 and back, int64 2^53 + 1 equals its float64 when compared as such
        return np.array_equal(cast, value) and np.array_equal(cast.astype(value.dtype), value)


def outputs(declared: Signature, found: Sequence[Array]) -> dict[str, Array]:
    """Outputs by name; raises NotComparable when fewer or more came back than the graph has.

    Which ones are missing cannot be known: those behind a dropped output move up silently.
    """
    names = [tensor.name for tensor in declared.outputs]
    if len(found) != len(names):
        what = f"{len(found)} of {len(names)} outputs came back ({', '.join(names)})"
        do = "the compiler dropped one: make each output the last node of its branch, or leave it out of the graph"
        raise NotComparable(what, "graph~simulator", do)
    return {tensor.name: _restored(tensor, value) for tensor, value in zip(declared.outputs, found, strict=True)}


def _restored(tensor: Tensor, value: Array) -> Array:
    """A 0-d output comes back as (1,). Whole numbers come back as int64 or as float32: they get the declared integer
    dtype where that changes no value. Anything else is handed on for the structure checker to judge.
    """
    if tensor.shape == () and value.shape == (1,):
        value = value.reshape(())
    if tensor.dtype.kind in "iub" and value.dtype != tensor.dtype and _lossless(value, tensor.dtype):
        return value.astype(tensor.dtype)
    return value
