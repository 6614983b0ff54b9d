"""Layout, mean and std of the inputs: declared once in candidate.toml, applied once, here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from verify.core import Array, Candidate, InputSpec, Tensors, UsageError

if TYPE_CHECKING:
    from pathlib import Path

#: A graph's image input is (n, c, h, w); an application may feed (n, h, w, c).
TO_NCHW = (0, 3, 1, 2)


def laid_out(candidate: Candidate, inputs: Tensors) -> Tensors:
    """The inputs in the graph's layout (nchw), values and dtypes untouched: for a model that normalises by itself."""
    return {name: _nchw(candidate.inputs.get(name), value) for name, value in inputs.items()}


def graph_shape(spec: InputSpec | None) -> tuple[int, ...] | None:
    """The declared shape in the graph's layout: candidate.toml states it as the application feeds it."""
    if spec is None or spec.shape is None or spec.layout != "nhwc" or len(spec.shape) != 4:
        return spec.shape if spec else None
    return tuple(spec.shape[axis] for axis in TO_NCHW)


def _nchw(spec: InputSpec | None, value: Array) -> Array:
    import numpy as np

    if spec is None or spec.layout != "nhwc":
        return value
    return np.ascontiguousarray(value.transpose(TO_NCHW))


def prepare(candidate: Candidate, inputs: Tensors) -> Tensors:
    """What the graph itself is fed, from what the application feeds: nchw, and (x - mean) / std per channel in float32.

    Inputs without a declared mean and std keep values and dtype; half-precision inputs come back in half precision.
    """
    import numpy as np

    fed = {}
    for name, value in laid_out(candidate, inputs).items():
        spec = candidate.inputs.get(name)
        if spec is None or not spec.mean:
            fed[name] = value
            continue
        mean, std = (np.asarray(held, np.float32).reshape(1, -1, 1, 1) for held in (spec.mean, spec.std))
        out = (value.astype(np.float32) - mean) / std
        fed[name] = out.astype(value.dtype) if value.dtype == np.float16 else out
    return fed


def rknn_input_settings(candidate: Candidate, graph: Path | None = None) -> Mapping[str, Any]:
    """The toolkit's `mean_values` and `std_values`: a list per input in the graph's order, {} if none is declared.

    Inputs without a declaration get what changes nothing, zeros and ones. `graph` (the ONNX file) is needed where the
    model has more inputs than are declared.
    """
    declared = {name: spec for name, spec in candidate.inputs.items() if spec.mean}
    if not declared:
        return {}
    means, stds = [], []
    for name, width in _widths(candidate, graph):
        spec = declared.get(name, InputSpec(name))
        means.append(list(spec.mean) or [0.0] * width)
        stds.append(list(spec.std) or [1.0] * width)
    return {"mean_values": means, "std_values": stds}


def _widths(candidate: Candidate, graph: Path | None) -> list[tuple[str, int]]:
    """Name and number of channels (axis 1) of every input, in the graph's order."""
    from verify.graphs.signature import signature
    from verify.usercode import is_reference

    if graph is None:
        declared = candidate.variant.graph or candidate.graph
        if is_reference(declared):
            return [(name, len(spec.mean) or 1) for name, spec in candidate.inputs.items()]
        graph = candidate.folder / declared
    found = []
    for port in signature(graph).inputs:
        spec = candidate.inputs.get(port.name)
        shape = graph_shape(spec) or port.shape or ()
        axis = shape[1] if len(shape) > 1 else 1
        if not isinstance(axis, int) and not (spec and spec.mean):
            do = f"fix it with [input.{port.name}] shape"
            raise UsageError(f"input {port.name} has no fixed number of channels", str(graph), do)
        found.append((port.name, axis if isinstance(axis, int) else 1))
    return found
