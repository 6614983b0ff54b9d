"""Narrow arithmetic: saturation, sums and results rounded where they should not be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from power.faults import Fault
from power.faults.coherent import ends
from power.faults.sites import Put, replace
from power.net import Linear, Net, linears


def _behind(*steps: Callable[[Net, Any], tuple[Any, ...]]) -> Put:
    """A chain behind the site's result; each step is made from the net and the value that the result has."""

    def put(net: Net, site: Any) -> set[str]:
        value = net.values[site.output[0]]
        net.after(site.output[0], *(step(net, value) for step in steps))
        return {site.name}

    return put


def _clip(low: float, high: float) -> Callable[[Net, Any], tuple[Any, ...]]:
    """Bounds as shares of the smallest and the largest value."""

    def step(net: Net, value: Any) -> tuple[Any, ...]:
        return "Clip", [np.float32(low * value.min()), np.float32(high * value.max())], {}

    return step


def _pieces(net: Net, site: Linear) -> set[str]:
    """A sum over K in four pieces, each rounded to what the build keeps of a tensor."""
    size = site.weight.shape[site.into]
    if site.node.op_type != "MatMul" or size % 4 or size < 16:
        return set()
    node, tensor, value = site.node, site.node.output[0], net.values[site.node.input[0]]
    axis = net.add(np.array([value.ndim - 1], np.int64))
    made, sums = [], ""
    for i in range(4):
        lo, hi = i * size // 4, (i + 1) * size // 4
        ends = [net.add(np.array([v], np.int64)) for v in (lo, hi)]
        part = f"{tensor}_part{i}"
        made.append(net.node("Slice", [node.input[0], *ends, axis], f"{part}_x"))
        made.append(net.node("MatMul", [f"{part}_x", net.add(np.ascontiguousarray(site.weight[lo:hi]))], part))
        if i:
            made.append(net.node("Add", [sums or f"{tensor}_part0", part], tensor if i == 3 else f"{tensor}_sum{i}"))
            sums = f"{tensor}_sum{i}"
    return replace(net, node, made, {node.name})


def _half(net: Net, value: Any) -> tuple[Any, ...]:
    return "Cast", [], {"to": 10}


def _single(net: Net, value: Any) -> tuple[Any, ...]:
    return "Cast", [], {"to": 1}


def _eight_bits(net: Net, site: Any) -> set[str]:
    """Dekker's split, c = (2^s + 1) x, y = c - (c - x), in fp16 arithmetic: 8 of 11 bits stay, as in bfloat16."""
    tensor = site.output[0]
    net.beside |= {user.name for user in net.users(tensor)}
    site.output[0] = raw = f"{tensor}_raw"
    made = [
        net.node("Mul", [raw, net.add(np.float32(9.0))], raw + "_c"),
        net.node("Sub", [raw + "_c", raw], raw + "_d"),
        net.node("Sub", [raw + "_c", raw + "_d"], tensor),
    ]
    at = net.nodes.index(site) + 1
    for i, node in enumerate(made):
        net.model.graph.node.insert(at + i, node)
    return {site.name}


def _truncated(net: Net, site: Any) -> set[str]:
    """Half a step of the tensor's 8-bit grid lower: rounding then gives what truncation would."""
    value = net.values[site.output[0]]
    step = (max(float(value.max()), 0.0) - min(float(value.min()), 0.0)) / 255
    net.after(site.output[0], ("Add", [np.float32(-step / 2)], {}))
    return {site.name}


FAULTS = [
    Fault(name, "operators", sites, put)
    for name, sites, put in (
        ("sum in four pieces", linears, _pieces),
        ("saturated at 0.5", ends, _behind(_clip(0.5, 0.5))),
        ("saturated at 0.9", ends, _behind(_clip(0.9, 0.9))),
        ("rounded to fp16", ends, _behind(_half, _single)),
        ("rounded to 8 bits", ends, _eight_bits),
        ("truncated", ends, _truncated),
    )
]
