"""K runs of the rewritten reference, and of each only sums of squares: what an honest build's error is drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from verify.core import Array, Missing, NotComparable, Tensors, UsageError
from verify.floor import noise, weights
from verify.floor.grids import MODELLED, Grid, Integer, Split

K = 32
SEED = 20240229  # any; fixed, so that a second run draws the same


@dataclass(frozen=True)
class Sample:
    """Mean squared errors of one tensor in one case, in units of `scale` squared: `axes` maps an axis to an array of
    shape (K, extent); `tensor` has shape (K,). `size` is the number of elements, `resolution` half a unit of the format
    in the same units: what one element may be off where every draw is exact."""

    tensor: Array
    axes: Mapping[int, Array]
    scale: float
    size: int = 1
    resolution: float = 0.0


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
    return Sample(square.mean()[None], axes, scale, square.size)


#: Bits of a precision's significand; integers of 8 bits resolve as much of their range.
BITS = {"fp32": 24, "fp16": 11, "bf16": 8, "w8a8": 8}
#: Operators that draw at random, or whose inner graphs the rewriting does not reach.
OPAQUE = frozenset(
    "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial If Loop Scan "
    "SequenceMap".split()
)
#: Operators whose result jumps where an input moves a little: below them a ratio says nothing.
JUMPS = frozenset(
    "ArgMax ArgMin TopK Round Floor Ceil Sign Greater GreaterOrEqual Less LessOrEqual Equal Mod NonZero Unique "
    "NonMaxSuppression Compress Hardmax".split()
)


def without(graph: Any, floats: set[str]) -> dict[str, str]:
    """The tensors of a GraphProto that have no floor, with the reason: what is opaque or jumps, and all behind it."""
    constants = {tensor.name for tensor in graph.initializer}
    moves = {item.name for item in graph.input if item.name in floats and item.name not in constants}
    found: dict[str, str] = {}
    for node in graph.node:
        why = next((found[name] for name in node.input if name in found), "")
        moving = [name for name in node.input if name in moves]
        casts = node.op_type == "Cast" and not any(name in floats for name in node.output)
        if node.op_type in OPAQUE:
            why = why or f"behind {node.op_type} {node.name}, which has no model"
        elif (node.op_type in JUMPS or casts) and moving:
            why = why or f"behind the discontinuity of {node.op_type} {node.name}"
        if why and node.op_type not in ("Shape", "Size"):
            found.update(dict.fromkeys(node.output, why))
        # results of weights alone move as well, by what the build makes of them; shapes and integers do not
        moves.update(name for name in node.output if name in floats)
    return found


def model_of(
    path: Path, precision: str, scales: Any, points: Mapping[str, Grid], splits: Any
) -> tuple[Any, noise.Writer, set[str], dict[str, str]]:
    """The rewritten model, its writer, the names of its float32 tensors, those without a floor; raises Missing."""
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
    opaque = without(model.graph, floats)
    opset = next((held.version for held in model.opset_import if held.domain in ("", "ai.onnx")), 17)
    if precision == "fp32":
        to = noise.accumulating(model.graph, frozenset(floats), opset)
    else:
        weights.as_built(model.graph, precision, scales, points)
        to = noise.rounding(model.graph, points, opset, splits)
    del model.graph.value_info[:]
    return model, to, floats, opaque


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

    model, to, floats, opaque = model_of(path, precision, scales, points, splits)
    absent: dict[str, str] = {}
    wanted: dict[str, tuple[tuple[int, ...], float]] = {}
    for name in cases[0][2]:
        held = [np.asarray(reference[name]) for _, _, reference in cases]
        if name in opaque:
            absent[name] = opaque[name]
        elif name not in floats or any(value.dtype != np.float32 for value in held):
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
            fixed = {
                **{n: _fed(value, points.get(n)) for n, value in feeds.items()},
                **{f"{noise.OWN}ref/{name}": np.asarray(reference[name]) for name in wanted},
            }
            runs = [session.run(names, {**fixed, **_scalars(to, rng)}) for _ in range(k)]
            found = dict(zip(names, zip(*runs, strict=True), strict=True)) if names else {}
            for name, (shape, scale) in wanted.items():
                half = _half(points.get(name), precision, scale)
                samples[case, name] = _sample(sums[name], shape, scale, half, found)
    except (UsageError, NotComparable, ValueError) as error:
        raise Missing(f"the rewritten graph does not run: {error}", str(path)) from None
    except Exception as error:  # onnxruntime's exceptions have no common base
        raise Missing(f"the rewritten graph does not run: {_ort.short(error)}", str(path)) from None
    for (_, name), sample in samples.items():
        if not np.isfinite(sample.tensor).all():
            absent[name] = "the draws overflow"
    return Drawn({place: sample for place, sample in samples.items() if place[1] not in absent}, absent, k)


def _half(grid: Grid | None, precision: str, scale: float) -> float:
    return grid.scale / 2 / scale if isinstance(grid, Integer) else 2.0 ** -BITS[precision]


def _fed(value: Array, grid: Grid | None) -> Array:
    return weights.onto(value, grid) if grid is not None and value.dtype == np.float32 else value


def _scalars(to: noise.Writer, rng: Any) -> dict[str, Array]:
    ranges = {"phase": lambda u: u - 0.5, "factor": lambda u: 2.0 ** (u - 1)}
    return {name: np.array(ranges[kind](rng.random()), np.float32) for name, kind in to.fed.items()}


def _sample(sums: Sequence[tuple[str, int]], shape: tuple[int, ...], scale: float, half: float, found: Any) -> Sample:
    size = int(np.prod(shape)) if shape else 1
    axes, whole = {}, None
    for name, axis in sums:
        held = np.array(found[name], np.float64).reshape(len(found[name]), -1)
        whole = held.sum(1) / size if whole is None else whole
        if axis >= 0:
            axes[axis] = held / (size // shape[axis])
    assert whole is not None  # every tensor has one sum at least
    return Sample(whole, axes, scale, size, half)
