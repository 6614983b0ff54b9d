"""Which tensor a compiled layer holds where its values do not say so: by its name, once something upstream is wrong.

A fault that was compiled in changes the build's own float run from there on, so nothing after it is found by value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from verify.core import Array, Tensors
from verify.graphs.align import Match
from verify.graphs.info import GraphInfo
from verify.graphs.layouts import layouts

#: Two candidates for one layer are told apart by value if one is this much nearer (house choice; a bias that is lost
#: moves its layer by 2 % and more in the fixtures).
NEARER = 1.02
Shape: TypeAlias = tuple[int, ...]
#: By the shapes of a dump and of its tensor, how often each (view, order) was seen.
Orders: TypeAlias = dict[tuple[Shape, Shape], Counter[tuple[Shape, Shape]]]


def assume(
    graph: GraphInfo, matched: Mapping[str, Match], references: Sequence[Tensors], dumps: Sequence[Tensors]
) -> dict[str, Match]:
    """Matches for layers that no value identified and whose name does, where no other layer holds that tensor.

    `references` and `dumps` are the reference's and the candidate's tensors of the same cases. Empty where every
    tensor that a layer is named after is held by some layer.
    """
    taken = {match.tensor for match in matched.values()} | {a for m in matched.values() for a in m.aliases}
    orders = _orders(matched, dumps)
    found: dict[str, Match] = {}
    for layer in dumps[0] if dumps else ():
        if layer in matched or any(layer not in dump for dump in dumps):
            continue
        named = [t for t in _named(graph, layer) if t in references[0]]
        free = [t for t in named if t not in taken and references[0][t].size == dumps[0][layer].size]
        if not free:
            continue
        held = {t: m for t in free if (m := _match(layer, t, references, dumps, orders)) is not None}
        if held:
            best = _nearest(held, free, references, dumps, layer)
            found[layer] = held[best]
    return found


def _named(graph: GraphInfo, layer: str) -> list[str]:
    """The tensor that a layer is named after, or whose node it is, and the same with a constant added."""
    names = [t for t in graph.producer if layer.startswith(t) and not layer[len(t) :][:1].isalnum()]
    nodes = [n for n in graph.nodes if layer.startswith(n.name + "#") or layer == n.name]
    longest = max([(len(t), t) for t in names] + [(len(n.name), n.outputs[0]) for n in nodes], default=(0, ""))[1]
    if not longest:
        return []
    readers = [n for n in graph.nodes if longest in n.inputs]
    added = [n.outputs[0] for n in readers if n.op == "Add" and _constant(graph, n.inputs, longest)]
    return [*(added if len(readers) == 1 else []), longest]


def _constant(graph: GraphInfo, inputs: Sequence[str], but: str) -> bool:
    others = [name for name in inputs if name != but]
    return bool(others) and all(n not in graph.inputs and graph.op(n) in ("", "Constant") for n in others)


def _orders(matched: Mapping[str, Match], dumps: Sequence[Tensors]) -> Orders:
    """How layers of one shape hold tensors of another, as often as it was seen."""
    seen: Orders = {}
    for layer, match in matched.items():
        if dumps and layer in dumps[0]:
            key = (dumps[0][layer].shape, match.shape)
            seen.setdefault(key, Counter())[(match.view, match.permutation)] += 1
    return seen


def _match(
    layer: str, tensor: str, references: Sequence[Tensors], dumps: Sequence[Tensors], orders: Orders
) -> Match | None:
    """The layout in which the dump is nearest to the tensor, or where none is near, the usual one."""
    wanted, dump = references[0][tensor], dumps[0][layer]
    usual = orders.get((dump.shape, wanted.shape), Counter())
    best = None
    for view, order in layouts(dump.shape, wanted.shape):
        match = Match(layer, tensor, wanted.shape, tuple(order), (), tuple(view))
        off = max(apart(match, r[tensor], d[layer]) for r, d in zip(references, dumps, strict=True))
        rank = (off if off < 0.9 else 1.0, -usual[(match.view, match.permutation)])  # beyond: as good as unrelated
        if best is None or rank < best[0]:
            best = rank, match
    return best[1] if best else None


def apart(match: Match, wanted: Array, dump: Array) -> float:
    """Relative L2 distance of a dump, laid out as the tensor, from it."""
    got = np.asarray(dump, np.float64).reshape(match.view).transpose(match.permutation).reshape(match.shape)
    size = float(np.linalg.norm(np.asarray(wanted, np.float64)))
    return float(np.linalg.norm(got - wanted)) / size if size > 0 else np.inf


def _nearest(
    held: Mapping[str, Match], order: Sequence[str], references: Sequence[Tensors], dumps: Sequence[Tensors], layer: str
) -> str:
    """The first of `order` unless another one is clearly nearer by value."""
    names = [name for name in order if name in held]
    off = {n: max(apart(held[n], r[n], d[layer]) for r, d in zip(references, dumps, strict=True)) for n in names}
    best = min(names, key=lambda n: off[n])
    return best if off[best] * NEARER < off[names[0]] else names[0]
