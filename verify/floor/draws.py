"""K runs of the rewritten reference, and of each only sums of squares: what an honest build's error is drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from verify.core import Array, Missing, NotComparable, Tensors, UsageError
from verify.floor import noise, weights
from verify.floor.grids import MODELLED, Grid, Split

K = 32
SEED = 20240229  # any; fixed, so that a second run draws the same


@dataclass(frozen=True)
class Sample:
    """Mean squared errors of one tensor in one case, in units of `scale` squared: `axes` maps an axis to an array of
    shape (K, extent); `tensor` has shape (K,)."""

    tensor: Array
    axes: Mapping[int, Array]
    scale: float


@dataclass(frozen=True)
class Drawn:
    """Samples by case and tensor; `absent` maps a tensor to the reason why it has no floor."""

    samples: Mapping[tuple[str, str], Sample]
    absent: Mapping[str, str] = field(default_factory=dict)
    k: int = K


def scale_of(reference: Array) -> float:
    """The rms of a reference tensor, or 1 where it has none."""
    size = float(np.sqrt(np.mean(np.square(reference, dtype=np.float64)))) if reference.size else 0.0
    return size if 0 < size < 1e30 else 1.0


def errors(reference: Array, got: Array, scale: float) -> Sample:
    """The candidate's own figures, as those of the draws: K is 1. float64."""
    square = np.square((got.astype(np.float64) - reference) / scale)
    axes = {a: square.mean(tuple(i for i in range(square.ndim) if i != a))[None] for a in noise.grained(square.shape)}
    return Sample(square.mean()[None], axes, scale)


def model_of(path: Path, precision: str, scales: Any, points: Mapping[str, Grid], splits: Any) -> tuple[Any, noise.Writer, set[str]]:
    """The rewritten model without outputs, its writer and the names of its float32 tensors; raises Missing."""
    import onnx

    if precision not in MODELLED:
        raise Missing(f"no model of {precision}: how it rounds is not documented", str(path))
    try:
        model = onnx.load(str(path))
        types = onnx.shape_inference.infer_shapes(model).graph
    except Exception as error:  # protobuf's own kinds, and its limit of 2 GB
        raise Missing(f"the graph cannot be rewritten ({type(error).__name__})", str(path)) from None
    floats = {
        item.name
        for item in (*types.input, *types.value_info, *types.output)
        if item.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    }
    opset = next((held.version for held in model.opset_import if held.domain in ("", "ai.onnx")), 17)
    if precision == "fp32":
        to = noise.accumulating(model.graph, frozenset(floats), opset)
    else:
        weights.as_built(model.graph, precision, scales, points)
        to = noise.rounding(model.graph, points, opset, splits)
    del model.graph.value_info[:]
    return model, to, floats


def draw(
    path: Path,
    precision: str,
    scales: Mapping[str, Mapping[str, Any]],
    points: Mapping[str, Grid],
    cases: Sequence[tuple[str, Tensors, Tensors]],
    k: int = K,
    splits: Mapping[str, Split] | None = None,
) -> Drawn:
    """Draw K times for each case (name, feeds, reference tensors by name); the reference's tensors are those drawn.

    Raises Missing where the precision or the graph has no model.
    """
    from verify.backends import _ort

    model, to, floats = model_of(path, precision, scales, points, splits)
    absent: dict[str, str] = {}
    wanted: dict[str, tuple[tuple[int, ...], float]] = {}
    for name in cases[0][2]:
        held = [np.asarray(reference[name]) for _, _, reference in cases]
        if name not in floats or any(value.dtype != np.float32 for value in held):
            absent[name] = "not float32"
        elif not all(np.isfinite(value).all() for value in held):
            absent[name] = "the reference is not finite"
        elif len({value.shape for value in held}) > 1 or not held[0].size:
            absent[name] = "its shape differs between the cases"
        else:
            wanted[name] = held[0].shape, scale_of(held[0])
    sums = noise.measured(to, wanted)
    names = [output for held in sums.values() for output, _ in held]
    samples: dict[tuple[str, str], Sample] = {}
    try:
        session = _ort.load(model.SerializeToString(), _ort.options("off"), str(path))
        del model
        for case, feeds, reference in cases:
            rng = np.random.default_rng(SEED)  # the same phases in every case: a draw is one build
            fixed = {**{n: _fed(value, points.get(n)) for n, value in feeds.items()}, **{f"{noise.OWN}ref/{name}": np.asarray(reference[name]) for name in wanted}}
            runs = [session.run(names, {**fixed, **_scalars(to, rng)}) for _ in range(k)]
            found = dict(zip(names, zip(*runs, strict=True), strict=True)) if names else {}
            for name, (shape, scale) in wanted.items():
                samples[case, name] = _sample(sums[name], shape, scale, found)
    except (UsageError, NotComparable, ValueError) as error:
        raise Missing(f"the rewritten graph does not run: {error}", str(path)) from None
    except Exception as error:  # onnxruntime's exceptions have no common base
        raise Missing(f"the rewritten graph does not run: {_ort.short(error)}", str(path)) from None
    return Drawn(samples, absent, k)


def _fed(value: Array, grid: Grid | None) -> Array:
    return weights.onto(value, grid) if grid is not None and value.dtype == np.float32 else value


def _scalars(to: noise.Writer, rng: Any) -> dict[str, Array]:
    ranges = {"phase": lambda u: u - 0.5, "factor": lambda u: 2.0 ** (u - 1)}
    return {name: np.array(ranges[kind](rng.random()), np.float32) for name, kind in to.fed.items()}


def _sample(sums: Sequence[tuple[str, int]], shape: tuple[int, ...], scale: float, found: Mapping[str, Any]) -> Sample:
    size = int(np.prod(shape)) if shape else 1
    axes, whole = {}, None
    for name, axis in sums:
        held = np.array(found[name], np.float64).reshape(len(found[name]), -1)
        whole = held.sum(1) / size if whole is None else whole
        if axis >= 0:
            axes[axis] = held / (size // shape[axis])
    assert whole is not None  # every tensor has one sum at least
    return Sample(whole, axes, scale)
