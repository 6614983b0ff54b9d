"""What an ONNX graph declares of its inputs and outputs: names, dtypes, shapes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verify.core import UsageError


@dataclass(frozen=True)
class Port:
    """One input or output: `dtype` is numpy's name ("str" for text), or "" for a sequence, map or optional.

    `shape` holds an int where the axis is fixed and its symbol (or "?") where it is not; None means any rank.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None

    def __str__(self) -> str:
        axes = "any shape" if self.shape is None else "(" + ", ".join(str(axis) for axis in self.shape) + ")"
        return f"{self.name} {self.dtype or 'not a tensor'} {axes}"


@dataclass(frozen=True)
class Signature:
    """Inputs without the weights, and outputs, both in the graph's order; `external` are its files of weights."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    external: tuple[Path, ...] = ()


_HELD: dict[tuple[Path, int, int], Signature] = {}  # by path, time and size: a file is parsed once for each state


def signature(path: Path) -> Signature:
    """The signature of an ONNX file, its weights not loaded; raises UsageError if it is missing or unusable."""
    state = _state(path)
    if state not in _HELD:
        _HELD[state] = _read(path)
    return _HELD[state]


def _state(path: Path) -> tuple[Path, int, int]:
    try:
        stat = path.stat()
    except OSError:
        raise UsageError("no such file", str(path), "name an existing .onnx file") from None
    return path, stat.st_mtime_ns, stat.st_size


def to_document(held: Signature, folder: Path) -> dict[str, Any]:
    """The signature as JSON-like data, its files of weights relative to the graph's folder."""
    return {**asdict(held), "external": [str(file.relative_to(folder)) for file in held.external]}


def recalled(path: Path, document: Mapping[str, Any]) -> Signature:
    """Take what `to_document` wrote as the signature of `path`, whose bytes the caller has compared with those of then.

    To parse 90 MB of MiniLM takes 0.2 s with the import of onnx (an EPYC core). Raises UsageError for a missing file.
    """
    inputs, outputs = (
        tuple(Port(p["name"], p["dtype"], None if p["shape"] is None else tuple(p["shape"])) for p in document[name])
        for name in ("inputs", "outputs")
    )
    external = tuple(path.parent / name for name in document["external"])
    return _HELD.setdefault(_state(path), Signature(inputs, outputs, external))


def _read(path: Path) -> Signature:
    import onnx
    from onnx.external_data_helper import _get_all_tensors, uses_external_data

    do = "export it again; it may be truncated"
    if path.suffix != ".onnx":
        function = f', or a function of it: "{path.name}:function"' if path.suffix == ".py" else ""
        do = f"name an .onnx file{function}"
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf raises its own kinds for truncated files
        raise UsageError(f"not a readable ONNX file ({type(error).__name__})", str(path), do) from None
    if not model.ir_version or not model.graph.output:  # an empty file parses as an empty model
        raise UsageError("not an ONNX file: it holds no graph", str(path), do)
    external = set()
    for tensor in _get_all_tensors(model):
        if uses_external_data(tensor):
            held = {entry.key: entry.value for entry in tensor.external_data}
            file = path.parent / held.get("location", "")
            inside = Path(os.path.abspath(file)).is_relative_to(os.path.abspath(path.parent))
            if not inside:  # a link that lies inside may lead anywhere
                do = "save the model again with its weights beside it: a graph is read with its folder only"
                raise UsageError(f"its weights lie elsewhere, in {held.get('location')}", str(path), do)
            wanted = int(held.get("offset", 0) or 0) + int(held.get("length", 0) or 0)
            if not file.is_file() or file.stat().st_size < wanted:
                state = "is truncated" if file.is_file() else "is missing"
                raise UsageError(f"its file of weights {file.name} {state}", str(path), "put the whole file beside it")
            external.add(file)
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = _ports([i for i in model.graph.input if i.name not in weights])
    return Signature(inputs, _ports(model.graph.output), tuple(sorted(external)))


def _ports(values: Sequence[Any]) -> tuple[Port, ...]:
    import onnx

    ports = []
    for item in values:
        if not item.type.HasField("tensor_type"):
            ports.append(Port(item.name, "", None))
            continue
        held = item.type.tensor_type
        text = held.elem_type == onnx.TensorProto.STRING
        dtype = "str" if text else str(onnx.helper.tensor_dtype_to_np_dtype(held.elem_type)) if held.elem_type else ""
        shape: tuple[int | str, ...] | None = None
        if held.HasField("shape"):
            shape = tuple(
                d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else d.dim_param or "?"
                for d in held.shape.dim
            )
        ports.append(Port(item.name, dtype, shape))
    return tuple(ports)
