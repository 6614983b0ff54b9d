"""A region run again on the candidate's own values in onnxruntime, every known rounding replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from verify.backends import _ort
from verify.core import Array, Missing, Tensors
from verify.floor.formats import Grid, channel_steps
from verify.floor.rounding import Rounding, channel_axis
from verify.graphs.info import LAYOUT
from verify.graphs.regions import LINEAR, Cuttable, Region

#: Runs in which what is not known (inner roundings, weights on a tie) is drawn.
DRAWS = 6
#: One draw's largest error of an element times this is what is admitted: of 10,000 normal errors 8 are beyond three
#: times the largest of six others.
WIDER = 3.0
#: Sums of n products in binary32, in any order: 2.4 x 2^-24 of the sum of magnitudes covered 99.9 % of the vendor
#: simulator's elements, eight times that all of them (fixtures, float16 builds).
SUMS = 8 * 2.4 * 2.0**-24
#: A mean is compiled in binary16 as a product with 1 / n, rounded, in one step or two (gain 0.99967 for n = 48,
#: rknn-toolkit2 2.5.0): a departure that is admitted, not a fault.
MEANS, MEAN = frozenset({"ReduceMean", "GlobalAveragePool", "AveragePool"}), 2 * 2.0**-11


@dataclass(frozen=True)
class Replayed:
    """What the region should give, `exact` before its last rounding, and what an honest one may be off (`slack`).

    Both float64, of the tensor's shape.
    """

    exact: Array
    slack: Array


@dataclass(frozen=True)
class Replay:
    """A region made ready: `plain` runs it, `drawn` randomises what is unknown, `sums` gives its sums of magnitudes."""

    region: Region
    plain: Any
    drawn: Any
    scalars: tuple[str, ...]
    tied: tuple[str, ...]
    sums: Any
    ties: Any
    mean: bool = False
    biased: Any = None

    def __call__(self, feeds: Tensors, seed: int = 0) -> Replayed:
        """Run on values of one case; raises VerifyError where onnxruntime cannot."""
        feeds = {name: feeds[name] for name in self.region.cut}
        (exact,) = self.plain.fetch(feeds, (self.region.tensor,))
        exact = np.asarray(exact, np.float64)
        slack = np.zeros(exact.shape)
        if self.drawn is not None:
            rng = np.random.default_rng(seed)
            for _ in range(DRAWS):
                held = {n: np.asarray(2.0 ** -rng.uniform(0, 1), np.float32) for n in self.scalars}
                held |= {n: np.asarray(rng.integers(0, 2), np.float32) for n in self.tied}
                (value,) = self.drawn.fetch({**feeds, **held}, (self.region.tensor,))
                slack = np.fmax(slack, np.abs(np.asarray(value, np.float64) - exact))
            slack *= WIDER
        if self.biased is not None:
            (value,) = self.biased.fetch(feeds, (self.region.tensor,))
            slack += np.abs(np.asarray(value, np.float64) - exact)
        sizes = {name: np.abs(value) for name, value in feeds.items()}
        if self.sums is not None:
            slack += SUMS * np.asarray(self.sums.fetch(sizes, (self.region.tensor,))[0], np.float64)
        if self.ties is not None:
            slack += np.asarray(self.ties.fetch(sizes, (self.region.tensor,))[0], np.float64)
        if self.mean:
            slack += MEAN * np.abs(exact)
        return Replayed(exact, slack)


def ready(graph: Cuttable, region: Region, known: Rounding, dtypes: Mapping[str, Any]) -> Replay:
    """Make a region's models; `dtypes` are those of its inputs. Raises Missing where a rounding of it is not known."""
    region, constants, ties, halves = _constants(graph, region, known)
    inner = [o for n in region.nodes for o in n.output if o and o != region.tensor]
    computed = [o for n in region.nodes if n.op_type not in LAYOUT for o in n.output if o in inner]
    grids = {name: known.grids[name] for name in inner if name in known.grids}
    linear = any(n.op_type in LINEAR for n in region.nodes)
    sums_only = linear and all(n.op_type in (*LINEAR, "Add", "Constant", *LAYOUT) for n in region.nodes)
    make = partial(_model, graph, region, dtypes)
    drawn = sums = ties_model = None
    unknown: list[str] = []
    tied: list[str] = []
    if sums_only:
        sums = make({n: _size(v) for n, v in constants.items()}, {})
        if ties:
            zero = {n: np.zeros_like(v) if v.dtype.kind == "f" else v for n, v in constants.items()}
            ties_model = make({**zero, **{n: _size(v) for n, v in ties.items()}}, {})
    else:
        tied = list(ties)
        loose: dict[str, Array] = {}
        if not known.integer:
            unknown = [n for n in computed if n in graph.floating and n not in grids]
            # constants may have been folded before they were rounded; where sums are all there is, nothing was
            folds = not linear or any(
                n.op_type in ("Mul", "Div") and set(n.input) & set(constants) for n in region.nodes
            )
            if unknown and folds:
                loose = {n: graph.constants[n] for n, v in constants.items() if v.dtype.kind == "f" and v.size > 1}
        if unknown or tied:
            unknown += loose
            drawn = make({**constants, **loose}, grids, unknown, {n: ties[n] for n in tied})
    biased = make({**constants, **{n: constants[n] + half for n, half in halves.items()}}, grids) if halves else None
    mean = known.unit == "fp16" and bool(region.ops) and set(region.ops) <= MEANS
    scalars, sides = (tuple(f"{n}@{end}" for n in names) for names, end in ((unknown, "c"), (tied, "t")))
    return Replay(region, make(constants, grids), drawn, scalars, sides, sums, ties_model, mean, biased)


def _size(value: Array) -> Array:
    return np.asarray(np.abs(value)) if value.dtype.kind == "f" else value


def _constants(
    graph: Cuttable, region: Region, known: Rounding
) -> tuple[Region, dict[str, Array], dict[str, Array], dict[str, Array]]:
    """The region, its constants as built, for those with weights on a tie what may be added, and half a unit of biases.

    Those of an integer build are rounded to whole products of an input's and a weight's step.

    A constant factor behind a linear node is multiplied into its weights before they are rounded, as compilers do.
    """
    held: dict[str, Array] = {}
    ties: dict[str, Array] = {}
    halves: dict[str, Array] = {}
    summed: dict[str, tuple[Any, str]] = {}  # results of linear nodes, however laid out: the node and its weight
    nodes = list(region.nodes)
    for at, node in enumerate(region.nodes):
        if node.op_type in LINEAR:
            summed[node.output[0]] = node, node.input[1]
        elif node.op_type in LAYOUT and node.input and node.input[0] in summed:
            summed[node.output[0]] = summed[node.input[0]]
        before = next((summed[name] for name in node.input if name in summed), None)
        constant = next((name for name in node.input if name in graph.constants), "")
        if node.op_type == "Mul" and before and constant and before[1] in held and not known.integer:
            scaled = _folded(graph, known, before, graph.constants[constant])
            if scaled is not None:
                held.update(scaled)
                nodes[at] = _passed(node, next(n for n in node.input if n != constant))
                summed[node.output[0]] = before
                continue
        bias = node.op_type == "Add" and before is not None
        for index, name in enumerate(node.input):
            if name not in graph.constants:
                continue
            value, tied = known.constant(name, graph.constants[name], node, index, bias)
            if name in held and not np.array_equal(held[name], value):
                raise Missing(f"{name} is rounded in two ways", node.name)
            held[name] = value
            linear = before if bias else (node, node.input[1]) if node.op_type in LINEAR and index == 2 else None
            if linear and known.integer and value.dtype.kind == "f":
                half = _half(graph, known, linear, value)
                halves.update({name: half} if half is not None else {})
            if tied is not None:
                ties[name] = -tied
    return replace(region, nodes=tuple(nodes)), held, ties, halves


def _half(graph: Cuttable, known: Rounding, linear: tuple[Any, str], bias: Array) -> Array | None:
    """Half the unit that a bias is rounded to, of its shape, float32; None where a step is not known."""
    node, name = linear
    fed = known.grids.get(node.input[0])
    if fed is None or name not in graph.constants:
        return None
    weight = graph.constants[name]
    steps = channel_steps(weight, channel_axis(node, weight)).reshape(-1)
    return (
        np.asarray(np.broadcast_to(0.5 * fed.step * steps, bias.shape), np.float32) if bias.size == steps.size else None
    )


def _folded(graph: Cuttable, known: Rounding, linear: tuple[Any, str], factor: Array) -> dict[str, Array] | None:
    """Weight and bias times a factor for each output channel, rounded as built; None for a factor of another shape."""
    node, name = linear
    weight, bias = graph.constants[name], [n for n in node.input[2:] if n]
    axis = channel_axis(node, weight)
    if factor.size not in (1, weight.shape[axis]) or any(n not in graph.constants for n in bias):
        return None
    shape = [weight.shape[axis] if i == axis and factor.size > 1 else 1 for i in range(weight.ndim)]
    scaled = {n: np.asarray(graph.constants[n] * factor.reshape(-1), np.float32) for n in bias}
    return {name: known.constant(name, weight * factor.reshape(shape), node, 1)[0], **scaled}


def _passed(node: Any, source: str) -> Any:
    from onnx import helper

    return helper.make_node("Identity", [source], list(node.output), name=node.name)


def _model(
    graph: Cuttable,
    region: Region,
    dtypes: Mapping[str, Any],
    constants: Mapping[str, Array],
    grids: Mapping[str, Grid],
    drawn: list[str] | None = None,
    ties: Mapping[str, Array] | None = None,
) -> Any:
    """A session of the region: inner tensors on their grids, those of `drawn` rounded to binary16 at a random scale."""
    from onnx import TensorProto, helper, numpy_helper

    drawn, ties = drawn or [], ties or {}
    nodes, held = [], dict(constants)
    kinds = {n: helper.np_dtype_to_tensor_dtype(np.dtype(dtypes[n])) for n in region.cut}
    inputs = [helper.make_tensor_value_info(n, kind, None) for n, kind in kinds.items()]
    for name, step in ties.items():
        inputs.append(helper.make_tensor_value_info(f"{name}@t", TensorProto.FLOAT, []))
        held[f"{name}@w"], held[f"{name}@s"] = held.pop(name), step
        nodes.append(helper.make_node("Mul", [f"{name}@s", f"{name}@t"], [f"{name}@d"]))
        nodes.append(helper.make_node("Add", [f"{name}@w", f"{name}@d"], [name]))
    for name in drawn:
        if name in held:
            held[f"{name}@raw"] = held.pop(name)
            nodes += _scattered(helper, inputs, name)
    for node in region.nodes:
        if node.op_type == "Constant" and node.output[0] in constants:
            continue
        copied = type(node)()
        copied.CopyFrom(node)
        nodes.append(copied)
        for i, name in enumerate(node.output):
            if name in grids:
                copied.output[i] = f"{name}@raw"
                nodes += _on_grid(helper, name, grids[name], held)
            elif name in drawn:
                copied.output[i] = f"{name}@raw"
                nodes += _scattered(helper, inputs, name)
    weights = [numpy_helper.from_array(np.ascontiguousarray(v).reshape(v.shape), n) for n, v in held.items()]
    outputs = [helper.make_empty_tensor_value_info(region.tensor)]
    made = helper.make_graph(nodes, "region", inputs, outputs, weights)
    model = helper.make_model(made, opset_imports=graph.model.opset_import, ir_version=graph.model.ir_version)
    model.functions.extend(graph.model.functions)
    return _ort.session(model.SerializeToString(), _ort.options("off"), f"region {region.tensor}")


def _scattered(helper: Any, inputs: list[Any], name: str) -> list[Any]:
    """ "NAME@raw" rounded to binary16 at the scale "NAME@c", an input: another rounding error with each scale."""
    inputs.append(helper.make_tensor_value_info(f"{name}@c", 1, []))
    return [
        helper.make_node("Mul", [f"{name}@raw", f"{name}@c"], [f"{name}@m"]),
        helper.make_node("Cast", [f"{name}@m"], [f"{name}@h"], to=10),  # onnx.TensorProto.FLOAT16
        helper.make_node("Cast", [f"{name}@h"], [f"{name}@f"], to=1),
        helper.make_node("Div", [f"{name}@f", f"{name}@c"], [name]),
    ]


def _on_grid(helper: Any, name: str, grid: Grid, held: dict[str, Array]) -> list[Any]:
    low, high = grid.low - grid.zero, grid.high - grid.zero
    for part, number in (("step", grid.step), ("low", low), ("high", high)):
        held[f"{name}@{part}"] = np.asarray(number, np.float32)
    return [
        helper.make_node("Div", [f"{name}@raw", f"{name}@step"], [f"{name}@q"]),
        helper.make_node("Round", [f"{name}@q"], [f"{name}@r"]),
        helper.make_node("Clip", [f"{name}@r", f"{name}@low", f"{name}@high"], [f"{name}@k"]),
        helper.make_node("Mul", [f"{name}@k", f"{name}@step"], [name]),
    ]
