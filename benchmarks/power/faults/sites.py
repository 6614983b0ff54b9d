"""Where operators are, and how their attributes are changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from power.net import Net

Put = Callable[[Net, Any], set[str]]


def ops(*kinds: str) -> Callable[[Net], Sequence[Any]]:
    return lambda net: [n for n in net.ops(*kinds) if n.output[0] in net.values]


def set_attribute(node: Any, name: str, value: Any) -> None:
    from onnx import helper

    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def attribute(node: Any, name: str, default: Any) -> Any:
    from onnx import helper

    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def replace(net: Net, site: Any, made: list[Any], names: set[str]) -> set[str]:
    index = net.nodes.index(site)
    net.model.graph.node.remove(site)
    for i, node in enumerate(made):
        net.model.graph.node.insert(index + i, node)
    return names


def rolled(net: Net, site: Any, axis: int, keep: set[str] = frozenset()) -> set[str]:  # type: ignore[assignment]
    tensor = site.output[0]
    size = net.values[tensor].shape[axis]
    net.beside |= {user.name for user in net.users(tensor)}
    site.output[0] = raw = f"{tensor}_raw"
    whole, ax = [net.add(np.array([v], np.int64)) for v in (size, axis)]
    one, zero = [net.add(np.array([v], np.int64)) for v in (1, 0)]
    made = [
        net.node("Slice", [raw, one, whole, ax], raw + "_a"),
        net.node("Slice", [raw, zero, one, ax], raw + "_b"),
        net.node("Concat", [raw + "_a", raw + "_b"], tensor, axis=axis),
    ]
    at = net.nodes.index(site) + 1
    for i, node in enumerate(made):
        net.model.graph.node.insert(at + i, node)
    return {site.name, *keep}
