"""Whether a case fits the graph that it is to be fed to; nothing is cast or reshaped to make it fit."""

from __future__ import annotations

from verify.core import Array, Candidate, Case, InputSpec, UsageError
from verify.graphs.signature import Port, Signature
from verify.toml import nearest


def checked(case: Case, candidate: Candidate, graph: Signature, source: str) -> Case:
    """The case with its inputs as arrays in the graph's order; UsageError for a name, dtype or shape that is wrong."""
    import numpy as np

    where, known = f"{source}, case {case.name}", [port.name for port in graph.inputs]
    for name in (*candidate.inputs, *case.inputs):
        if name not in known:
            at = where if name in case.inputs else "candidate.toml, [input]"
            raise UsageError(f"the graph has no input {name!r}", at, nearest(str(name), known))
    inputs = {}
    for port in graph.inputs:
        if port.name not in case.inputs:
            raise UsageError(f"input {port.name!r} is missing", where, f"the graph wants {port}")
        if not port.dtype:
            raise UsageError(f"input {port.name!r} is not a tensor", where, "sequences and optionals cannot be fed yet")
        value = np.array(case.inputs[port.name])  # a copy: a generator may fill one buffer again and again
        spec = candidate.inputs.get(port.name)
        _dtype(port, spec, value, where)
        _shape(port, spec, value, where)
        inputs[port.name] = value
    expected = None if case.expected is None else {k: np.array(v) for k, v in case.expected.items()}
    return Case(case.name, inputs, expected)


def _dtype(port: Port, spec: InputSpec | None, value: Array, where: str) -> None:
    if port.dtype == "str":
        fits = value.dtype.kind in "OUS"
    else:  # an image may be fed as it comes from the camera where it is normalised anyway
        camera = bool(spec and spec.mean) and port.dtype == "float32" and value.dtype == "uint8"
        fits = value.dtype == port.dtype or camera
    if not fits:
        do = f"make it {port.dtype}: values are never cast on the way"
        raise UsageError(f"input {port.name!r} is {value.dtype}, the graph wants {port.dtype}", where, do)


def _shape(port: Port, spec: InputSpec | None, value: Array, where: str) -> None:
    layout, wanted = spec.layout if spec else "", port.shape
    if layout and value.ndim != 4:
        do = "feed (n, c, h, w) or (n, h, w, c), or remove the layout"
        raise UsageError(f"input {port.name!r} has the layout {layout} but {value.ndim} axes", where, do)
    if layout == "nhwc" and wanted is not None and len(wanted) == 4:
        wanted = (wanted[0], wanted[2], wanted[3], wanted[1])
    if wanted is not None:
        fits = len(wanted) == value.ndim and all(
            isinstance(w, str) or w == got for w, got in zip(wanted, value.shape, strict=True)
        )
        if not fits:
            axes = ", ".join(str(axis) for axis in wanted)
            declared = f", as {layout}, which candidate.toml declares" if layout else ""
            do = f"the graph wants ({axes}){declared}"
            raise UsageError(f"input {port.name!r} has the shape {value.shape}", where, do)
    if spec and spec.shape and value.shape != spec.shape:
        do = f"candidate.toml fixes it to {spec.shape}"
        raise UsageError(f"input {port.name!r} has the shape {value.shape}", where, do)
    if spec and spec.mean:
        channels = value.shape[3 if layout == "nhwc" else 1]
        if channels != len(spec.mean):
            do = f"write {channels} of each in [input.{port.name}]"
            raise UsageError(f"input {port.name!r} has {channels} channels but {len(spec.mean)} means", where, do)


def finite(case: Case, source: str) -> None:
    """Raise UsageError when an input holds NaN or Inf: a quantiser's ranges would be meaningless."""
    import numpy as np

    for name, value in case.inputs.items():
        if value.dtype.kind in "fc" and not np.isfinite(value).all():
            count = int(value.size - np.isfinite(value).sum())
            what = f"input {name!r} holds {count} values that are NaN or Inf"
            raise UsageError(what, f"{source}, case {case.name}", "take that case out of the calibration, or mend it")
