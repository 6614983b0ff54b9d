"""The right build of a model, that every fault is held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from power.faults import DEPTHS
from power.faults.memory import Memory
from power.models import Subject
from power.plugin import Kept
from verify.build.rknn import RknnDump
from verify.cases import digest_tensors
from verify.core import Tensors
from verify.graphs.info import GraphInfo
from verify.trial import Trial


@dataclass(frozen=True)
class Honest:
    """`alignment` maps a compiled layer to its match, `errors` an output to its relative L2 error in the worst case."""

    subject: Subject
    variant: str
    alignment: Mapping[str, Any]
    graph: GraphInfo
    cases: Sequence[tuple[str, Tensors]]  # name, feeds
    outputs: Sequence[Tensors]
    layers: Sequence[Tensors]
    build: Kept
    errors: Mapping[str, float]

    def region(self, nodes: set[str], layers: set[str]) -> set[str]:
        """The tensors at which a fault in these nodes first shows in dumps of these layers."""
        matches = [match for name, match in self.alignment.items() if name in layers]
        seen = {t for m in matches for t in (m.tensor, *m.aliases)} | set(self.graph.outputs)
        found, known = set(), set()
        todo = [o for n in self.graph.nodes if n.name in nodes for o in n.outputs]
        while todo:
            tensor = todo.pop()
            if tensor in seen:
                found.add(tensor)
            elif tensor not in known:
                known.add(tensor)
                todo += [o for n in self.graph.nodes if tensor in n.inputs for o in n.outputs]
        return found

    def right(self, node: str, tensor: str, nodes: set[str], region: set[str]) -> bool:
        """Whether a place is a faulty node, or where a fault in it first shows."""
        return (
            node in nodes
            or tensor in region
            or any(n.name == node and set(n.outputs) & region for n in self.graph.nodes)
        )

    def same(self, trial: Trial) -> bool:
        """Whether nothing that was recorded differs from this build's."""
        for recording, outputs, layers in zip(trial.recordings["simulator"], self.outputs, self.layers, strict=True):
            for held, mine in ((recording.outputs, outputs), (recording.layers, layers)):
                if any(n in held and not np.array_equal(held[n], v, equal_nan=True) for n, v in mine.items()):
                    return False
        return True

    def corrupted(self, fault: Memory, depth: str) -> tuple[str, Kept | None, float]:
        """(tensor, the build that returns it with the fault in every case, relative L2 change of the worst output)."""
        position = self.graph.position
        order = sorted(self.alignment, key=lambda name: position.get(self.alignment[name].tensor, -1))
        order = [n for n in order if all(n in held for held in self.layers) and self.layers[0][n].size >= 64]
        output = depth == "output"
        if output:
            tensor = place = self.graph.outputs[0]
        else:
            place = order[min(int(DEPTHS[depth] * len(order)), len(order) - 1)]
            tensor = self.alignment[place].tensor
        held = self.outputs if output else self.layers
        changed = []
        for i, mine in enumerate(held):
            value = np.array(mine[place])
            other = np.asarray(held[(i + 1) % len(held)][place])
            made = fault.put(value.copy(), other, np.random.default_rng(i))
            if made is None or np.array_equal(made, value):
                return tensor, None, 0.0
            changed.append({**mine, place: made})
        moved = 0.0
        if output:
            moved = max(relative(a[place], b[place]) for a, b in zip(self.outputs, changed, strict=True))
        outputs, layers = (changed, self.layers) if output else (self.outputs, changed)
        fed = {digest_tensors(feeds).hex(): dict(out) for (_, feeds), out in zip(self.cases, outputs, strict=True)}
        dumps = {
            name: replace(self.golden(name), simulated=dict(found))
            for (name, _), found in zip(self.cases, layers, strict=True)
        }
        return tensor, replace(self.build, outputs=fed, dumps=dumps), moved

    def golden(self, case: str) -> RknnDump:
        found: RknnDump = self.build.dumps[case]
        return found


def right(model: Subject, variant: str, trial: Trial) -> Honest:
    """What a trial of the right build leaves."""
    from power import plugin

    graphs, simulated = trial.recordings["graph"], trial.recordings["simulator"]
    errors: dict[str, float] = {}
    for a, b in zip(graphs, simulated, strict=True):
        for name, value in a.outputs.items():
            errors[name] = max(errors.get(name, 0.0), relative(value, b.outputs[name]))
    cases = [(r.case, dict(r.integrity["inputs"])) for r in graphs]
    layers = [{n: np.array(v) for n, v in r.layers.items()} for r in simulated]
    return Honest(
        model,
        variant,
        trial.alignment,
        trial.graph,
        cases,
        [dict(r.outputs) for r in simulated],
        layers,
        plugin.LAST[0],
        errors,
    )


def relative(wanted: Any, got: Any) -> float:
    """|got - wanted| / |wanted| in float64; NaN anywhere gives infinity."""
    wanted, got = np.asarray(wanted, np.float64), np.asarray(got, np.float64)
    size, apart = float(np.linalg.norm(wanted)), float(np.linalg.norm(got - wanted))
    return float("inf") if apart != apart else apart / size if size else float(apart > 0)
