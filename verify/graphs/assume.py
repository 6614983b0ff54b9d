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
from verify.graphs.info import LAYOUT, GraphInfo
from verify.graphs.layouts import layouts

#: Two candidates for one layer are told apart by value if one is this much nearer (house choice; a bias that is lost
#: moves its layer by 2 % and more in the fixtures).
NEARER = 1.02
#: Tensors as far apart as this are not related: independent ones of one size are 1.41 apart (relative L2).
UNRELATED = 0.9
Shape: TypeAlias = tuple[int, ...]
#: By the shapes of a dump and of its tensor, how often each (view, order) was seen.
Orders: TypeAlias = dict[tuple[Shape, Shape], Counter[tuple[Shape, Shape]]]


def assume(
    graph: GraphInfo, matched: Mapping[str, Match], references: Sequence[Tensors], dumps: Sequence[Tensors]
) -> dict[str, Match]:
    """Matches for layers that no value identified and whose name does, where no other layer holds that tensor.

    A layer that bears a graph output's very name is that output, whoever else holds its values.

    `references` and `dumps` are the reference's and the candidate's tensors of the same cases. Empty where every
    tensor that a layer is named after is held by some layer.
    """
    taken = {match.tensor for match in matched.values()} | {a for m in matched.values() for a in m.aliases}
    orders = _orders(matched, dumps)
    found: dict[str, Match] = {}
    for layer in dumps[0] if dumps else ():
        if layer in matched or any(layer not in dump for dump in dumps):
            continue
        named = [t for t in _named(graph, layer) if t not in taken or (t == layer and t in graph.outputs)]
        if named:
            wide = [*named, *(t for name in named for t in _moved(graph, name) if t not in taken)]
            fits = [t for t in wide if t in references[0] and references[0][t].size == dumps[0][layer].size]
            match = _match(layer, fits, named, references, dumps, orders)
            found.update({layer: match} if match else {})
    return found


def _moved(graph: GraphInfo, tensor: str) -> list[str]:
    """What layout operators make of a tensor: a compiled layer may hold it in an order that only those have."""
    out: list[str] = []
    todo = [tensor]
    while todo:
        name = todo.pop()
        made = [o for n in graph.nodes if n.op in LAYOUT and n.inputs[:1] == (name,) for o in n.outputs]
        out += made
        todo += made
    return out


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
    layer: str, tensors: Sequence[str], named: Sequence[str], references: Sequence[Tensors], dumps: Sequence[Tensors],
    orders: Orders,
) -> Match | None:  # fmt: skip
    """The nearest of the tensors in its nearest layout; where none is near, one that is named, in the usual layout."""
    held: list[tuple[float, Match]] = []
    shape = dumps[0][layer].shape
    for tensor in tensors:
        wanted = references[0][tensor].shape
        found = [Match(layer, tensor, wanted, tuple(o), (), tuple(v)) for v, o in layouts(shape, wanted)]
        off = [max(apart(m, r[tensor], d[layer]) for r, d in zip(references, dumps, strict=True)) for m in found]
        if found:
            held.append((min(off), found[int(np.argmin(off))]))
    near = min((off for off, _ in held), default=np.inf)
    if near < UNRELATED:
        return next(match for off, match in held if off <= NEARER * near)
    for tensor in (t for t in tensors if t in named):
        usual = orders.get((shape, references[0][tensor].shape))
        if usual:
            view, order = usual.most_common(1)[0][0]
            return Match(layer, tensor, references[0][tensor].shape, order, (), view)
    return None


def apart(match: Match, wanted: Array, dump: Array) -> float:
    """Relative L2 distance of a dump, laid out as the tensor, from it."""
    got = np.asarray(dump, np.float64).reshape(match.view).transpose(match.permutation).reshape(match.shape)
    size = float(np.linalg.norm(np.asarray(wanted, np.float64)))
    return float(np.linalg.norm(got - wanted)) / size if size > 0 else np.inf
