"""Wrong activations: another function, another slope, a coarse table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from power.faults import Fault
from power.faults.sites import Put, attribute, ops, replace, set_attribute
from power.net import Net


def gelu(net: Net, erf: Any) -> set[str]:
    """The nodes of x / 2 (1 + erf(x / sqrt 2)) around an Erf."""
    add = net.users(erf.output[0])[0]
    mul = net.users(add.output[0])[0]
    rest = net.users(mul.output[0])[:1]
    return {n.name for n in (net.producer(erf.input[0]), erf, add, mul, *rest) if n is not None}


def _tanh_gelu(net: Net, site: Any) -> set[str]:
    """erf(u) by tanh(1.12838 u + 0.100909 u^3): sqrt(2 / pi) (x + 0.044715 x^3) with x = sqrt(2) u."""
    u, result = site.input[0], site.output[0]
    a = np.float32(np.sqrt(2 / np.pi) * np.sqrt(2))
    b = np.float32(np.sqrt(2 / np.pi) * 0.044715 * 2 * np.sqrt(2))
    names = gelu(net, site)
    made = [
        net.node("Mul", [u, u], result + "_sq"),
        net.node("Mul", [result + "_sq", net.add(b)], result + "_b"),
        net.node("Add", [result + "_b", net.add(a)], result + "_ab"),
        net.node("Mul", [result + "_ab", u], result + "_arg"),
        net.node("Tanh", [result + "_arg"], result),
    ]
    return replace(net, site, made, names)


def _relu_gelu(net: Net, site: Any) -> set[str]:
    """erf(u) by clip(1e4 u, -1, 1), that is relu for gelu."""
    u, result, names = site.input[0], site.output[0], gelu(net, site)
    made = [
        net.node("Mul", [u, net.add(np.float32(1e4))], result + "_far"),
        net.node("Clip", [result + "_far", net.add(np.float32(-1)), net.add(np.float32(1))], result),
    ]
    return replace(net, site, made, names)


def _activation_lost(net: Net, site: Any) -> set[str]:
    site.op_type = "Identity"
    del site.attribute[:]
    del site.input[1:]
    return {site.name}


def _hard_slope(net: Net, site: Any) -> set[str]:
    """A hard sigmoid of slope 1/6 for 0.2, or the other way; where it is written out, x / 6 becomes x / 5."""
    if site.op_type == "HardSigmoid":
        set_attribute(site, "alpha", 1 / 6 if abs(attribute(site, "alpha", 0.2) - 0.2) < 0.01 else 0.2)
        return {site.name}
    net.feed(site, 1, np.full_like(net.constant(site.input[1]), 5.0))
    return {site.name}


def _slopes(net: Net) -> Sequence[Any]:
    six = [n for n in net.ops("Div") if (c := net.constant(n.input[1])) is not None and c.size == 1 and c.item() == 6.0]
    return [*net.ops("HardSigmoid"), *six]


def _table(entries: int) -> Put:
    """An activation looked up in a table: its input rounded to so many values."""

    def put(net: Net, site: Any) -> set[str]:
        tensor = site.input[0]
        value = net.values.get(tensor)
        if value is None:
            return set()
        net.beside |= {n.name for n in [net.producer(tensor)] if n is not None}
        step = np.float32((value.max() - value.min()) / entries)
        net.fresh += 1
        name = f"{tensor}_table{net.fresh}"
        made = [
            net.node("Mul", [tensor, net.add(np.float32(1 / step))], name + "_a"),
            net.node("Floor", [name + "_a"], name + "_b"),
            net.node("Mul", [name + "_b", net.add(step)], name),
        ]
        at = net.nodes.index(site)
        for i, node in enumerate(made):
            net.model.graph.node.insert(at + i, node)
        site.input[:] = [name if i == tensor else i for i in site.input]
        return {site.name} if site.op_type != "Erf" else gelu(net, site)

    return put


ACTIVATIONS = ops("Erf", "Sigmoid", "Softmax", "Tanh", "HardSigmoid", "Relu")
FAULTS = [
    Fault(name, "operators", sites, put)
    for name, sites, put in (
        ("tanh for erf GELU", ops("Erf"), _tanh_gelu),
        ("relu for GELU", ops("Erf"), _relu_gelu),
        ("activation lost", ops("Relu", "Sigmoid", "HardSigmoid"), _activation_lost),
        ("hard sigmoid's slope", _slopes, _hard_slope),
        ("table of 16 entries", ACTIVATIONS, _table(16)),
        ("table of 64 entries", ACTIVATIONS, _table(64)),
    )
]
