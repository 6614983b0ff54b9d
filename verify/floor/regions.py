"""Every region of a build, replayed on the candidate's own inputs, from one capture."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from verify.core import Array, Recording, Tensors, VerifyError, Where
from verify.floor.formats import Grid, grid
from verify.floor.isolated import OFF_GRID, Isolated, judge
from verify.floor.replay import Replayed, ready
from verify.floor.rounding import Rounding, rounding
from verify.graphs.align import Match, restore
from verify.graphs.regions import LINEAR, Cuttable, Region, cuttable
from verify.trial import Trial

LEG = "graph~simulator"


@dataclass(frozen=True)
class RegionError:
    """One region in one case: `kind` names what it computes, `nodes` are the ONNX nodes in it."""

    where: Where
    kind: str
    nodes: tuple[str, ...]
    layer: str
    found: Isolated
    replayed: Replayed
    grid: Grid | None
    precision: str
    foreign: str = ""  # a layer of the compiler's own in it: what is beyond is then not known to be wrong


@dataclass(frozen=True)
class Unreplayed:
    """A compiled layer without a replay, and why."""

    tensor: str
    layer: str
    why: str


def kind_of(region: Region, constants: Collection[str]) -> str:
    """What a region computes, as far as its allowance depends on it."""
    ops = set(region.ops)
    if not ops:
        return "moved"
    if "Softmax" in ops:
        return "attention" if ops & LINEAR else "softmax"
    if ops & LINEAR:
        if not any(set(n.input) & set(constants) for n in region.nodes if n.op_type in LINEAR):
            return "product"
        return "linear" if ops <= LINEAR | {"Add", "Mul", "Div", "Sub", "Relu", "Clip"} else "fused"
    if ops & {"LayerNormalization", "InstanceNormalization", "GroupNormalization", "LpNormalization"} or (
        ops & {"ReduceMean", "ReduceL2"} and ops & {"Sqrt", "Div"}
    ):
        return "norm"
    if any(op.startswith(("Reduce", "Global", "AveragePool")) for op in ops):
        return "reduced"
    return "pointwise"


@dataclass(frozen=True)
class _Dumps:
    """The simulator's dumps of one trial and which tensor each holds."""

    trial: Trial
    matched: Mapping[str, Match]
    first: Recording

    @property
    def order(self) -> tuple[str, ...]:
        return tuple(self.first.layers)

    @cached_property
    def copies(self) -> Mapping[str, tuple[str, ...]]:
        """The layers that hold each tensor, in the compiled order."""
        held: dict[str, tuple[str, ...]] = {}
        for layer in self.order:
            if layer in self.matched:
                name = self.matched[layer].tensor
                held[name] = (*held.get(name, ()), layer)
        return held

    @cached_property
    def floats(self) -> frozenset[str]:
        """Layers that the build left in float16 although it states a scale for them: their dumps are off that grid."""
        kept = [layer for layer in self.trial.candidate.variant.keep_float if layer in self.matched]
        return frozenset(layer for layer in kept if not self._lies(layer))

    def _lies(self, layer: str) -> bool:
        held = self._stated(layer)
        value = np.asarray(self.first.layers[layer], np.float64) / held.step if held and layer in self.order else None
        return value is not None and bool(np.quantile(np.abs(value - np.rint(value)), 0.9) <= OFF_GRID)

    def _stated(self, layer: str) -> Grid | None:
        return grid(self.trial.build.scales.get(layer)) if self.trial.build else None

    def grid(self, layer: str) -> Grid | None:
        """The grid that a layer is rounded to; that of a layer in float for what a conversion makes of it."""
        base = layer.removesuffix("__int8")
        return None if layer in self.floats else self._stated(layer) or (self._stated(base) if base != layer else None)

    def read(self, tensor: str, quantised: bool) -> str:
        """The copy of a tensor that a consumer reads: one in float where the consumer computes in float."""
        copies = self.copies[tensor]
        alike = [layer for layer in copies if (self.grid(layer) is not None) == quantised]
        return (alike[0] if quantised else alike[-1]) if alike else copies[0]

    def foreign(self, layer: str) -> list[str]:
        """The layers of the compiler's own between this one and the last that holds a tensor of the graph."""
        found: list[str] = []
        for earlier in reversed(self.order[: self.order.index(layer)]):
            if earlier in self.matched:
                break
            why = self.trial.unmatched.get(earlier, "")
            if not why.startswith("named after"):
                found.append(earlier)
        return found


def errors(trial: Trial) -> Iterator[RegionError | Unreplayed]:
    """Every region of every layer case, in the graph's order; nothing where the build has no dumps.

    One region at a time is held in memory. Raises nothing for a region that cannot be replayed: it says so.
    """
    recordings = [r for r in trial.recordings.get("simulator", ()) if r.layers]
    references = [g for g in trial.recordings.get("graph", ()) if g.case in {r.case for r in recordings}]
    if trial.build is None or "graph" not in trial.facts or not recordings or len(references) < len(recordings):
        return
    dumps = _Dumps(trial, {**trial.alignment, **trial.assumed}, recordings[0])
    shown = [{**_fed(g), **g.layers, **g.outputs} for g in references]
    graph = cuttable(trial.facts["graph"].path)
    known = rounding(trial.candidate.variant.precision, trial.build, dumps.matched, trial.graph, graph, shown)
    for tensor in sorted(dumps.copies, key=lambda t: trial.graph.position.get(t, -1)):
        if tensor in graph.producers and shown[0][tensor].dtype.kind == "f":
            yield from _of(dumps, graph, known, tensor, recordings, shown)


def _of(
    dumps: _Dumps, graph: Cuttable, known: Rounding, tensor: str, recordings: Sequence[Recording],
    shown: Sequence[Tensors],
) -> Iterator[RegionError | Unreplayed]:  # fmt: skip
    layer = dumps.copies[tensor][0]
    quantised = dumps.grid(layer) is not None
    known = replace(known, precision="fp16", grids={}) if layer in dumps.floats else known
    node = dumps.trial.graph.producer[tensor]
    foreign = dumps.foreign(layer)
    try:
        region = graph.region(tensor, dumps.copies)
        replay = ready(graph, region, known, {n: shown[0][n].dtype for n in region.cut})
        for recording, values in zip(recordings, shown, strict=True):
            feeds = {n: _own(dumps, recording, values, n, quantised) for n in region.cut}
            where = Where(tensor, recording.case, LEG, "", node.op, node.name)
            replayed, held = replay(feeds), dumps.grid(layer)
            found = judge(replayed, _value(dumps, recording, layer), held, known.unit)
            kind = kind_of(region, graph.constants)
            yield RegionError(where, kind, region.names, layer, found, replayed, held, known.unit, *foreign[:1])
            yield from _moved(dumps, known, tensor, recording, where)
    except (VerifyError, ValueError, KeyError) as error:  # onnxruntime, or a tensor that the reference does not show
        yield Unreplayed(tensor, layer, str(error))


def _moved(dumps: _Dumps, known: Rounding, tensor: str, recording: Recording, where: Where) -> Iterator[RegionError]:
    """Further layers that hold the same tensor: what moves values must not change them."""
    copies = dumps.copies[tensor]
    for before, after in zip(copies, copies[1:], strict=False):
        if after not in dumps.trial.assumed:
            value = np.asarray(_value(dumps, recording, before), np.float64)
            held, same = dumps.grid(after), Replayed(value, np.zeros(value.shape))
            found = judge(same, _value(dumps, recording, after), held, known.unit)
            yield RegionError(where, "moved", (where.node,), after, found, same, held, known.unit)


def _own(dumps: _Dumps, recording: Recording, values: Tensors, name: str, quantised: bool) -> Array:
    """The candidate's own value of a region's input, in the graph's dtype; the case's where it has none of its own."""
    if name in dumps.copies:
        return np.asarray(_value(dumps, recording, dumps.read(name, quantised)), values[name].dtype)
    return np.asarray(values[name])


def _value(dumps: _Dumps, recording: Recording, layer: str) -> Array:
    return restore(recording.layers[layer], dumps.matched[layer])


def _fed(recording: Recording) -> Tensors:
    fed: Tensors = recording.integrity.get("inputs", {})
    return fed
