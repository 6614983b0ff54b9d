"""Rewrites after which a graph computes the same, but for the order of its sums."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from power.net import Net, linears

Rewrite = Callable[[Net, np.random.Generator], bool]


def reweighted(net: Net, rng: np.random.Generator) -> bool:
    """Other weights: every matrix, kernel and vector of the model with its elements in another order."""
    from onnx import numpy_helper

    for held in net.model.graph.initializer:
        value = numpy_helper.to_array(held)
        if value.dtype == np.float32 and value.size > 8 and value.ndim != 3:  # of 3 axes: coordinates, not weights
            held.CopyFrom(numpy_helper.from_array(rng.permutation(value.reshape(-1)).reshape(value.shape), held.name))
    return True


def reordered(net: Net, rng: np.random.Generator) -> bool:
    """The hidden units between two linear nodes in another order: the second sums the same numbers otherwise."""
    found, done = linears(net), False
    for first in found:
        tensor, between = first.bias[0].output[0] if first.bias else first.node.output[0], 0
        while True:  # through elementwise nodes
            users = net.users(tensor)
            second = next((s for s in found if len(users) == 1 and s.node is users[0]), None)
            if second is not None or between > 8:
                break
            tensor, between = _through(net, tensor), between + 1
            if not tensor:
                break
        if second is None or between > 8 or second.weight.shape[second.into] != first.weight.shape[first.out]:
            continue
        order = rng.permutation(first.weight.shape[first.out])
        net.feed(first.node, 1, np.take(net.constant(first.node.input[1]), order, first.out))
        if first.bias:
            node, index = first.bias
            net.feed(node, index, net.constant(node.input[index])[order])
        net.feed(second.node, 1, np.take(net.constant(second.node.input[1]), order, second.into))
        done = True
    return done


def _through(net: Net, tensor: str) -> str:
    """Past an activation: one elementwise node, or a GELU that is written out; "" at anything else."""
    users = net.users(tensor)
    if len(users) == 1 and users[0].op_type in ("Relu", "Sigmoid", "Tanh"):
        return str(users[0].output[0])
    if len(users) == 2 and {u.op_type for u in users} == {"Div", "Mul"}:
        product = next(u for u in users if u.op_type == "Mul")
        halved = net.users(product.output[0])
        if len(halved) == 1 and halved[0].op_type == "Mul" and net.constant(halved[0].input[1]) is not None:
            return str(halved[0].output[0])
    return ""


def unfused(net: Net, rng: np.random.Generator) -> bool:
    """Every LayerNormalization written out: the source is this one, the graph has the fused operator."""
    found = net.ops("LayerNormalization")
    for node in found:
        x, y = node.input[0], node.output[0]
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
        made = [
            net.node("ReduceMean", [x], y + "_mean", axes=[-1], keepdims=1),
            net.node("Sub", [x, y + "_mean"], y + "_centred"),
            net.node("Mul", [y + "_centred", y + "_centred"], y + "_squares"),
            net.node("ReduceMean", [y + "_squares"], y + "_variance", axes=[-1], keepdims=1),
            net.node("Add", [y + "_variance", net.add(np.float32(epsilon))], y + "_plus"),
            net.node("Sqrt", [y + "_plus"], y + "_deviation"),
            net.node("Div", [y + "_centred", y + "_deviation"], y + "_normed"),
            net.node("Mul", [y + "_normed", node.input[1]], y + "_scaled"),
            net.node("Add", [y + "_scaled", node.input[2]], y),
        ]
        at = net.nodes.index(node)
        net.model.graph.node.remove(node)
        for i, new in enumerate(made):
            net.model.graph.node.insert(at + i, new)
    return bool(found)


def inverted(net: Net, rng: np.random.Generator) -> bool:
    """Division by a constant as multiplication by its inverse."""
    done = False
    for node in net.ops("Div"):
        value = net.constant(node.input[1])
        if value is not None and value.dtype == np.float32:
            net.feed(node, 1, (1 / value.astype(np.float64)).astype(np.float32))
            node.op_type, done = "Mul", True
    return done


def slimmed(net: Net, rng: np.random.Generator) -> bool:
    """What onnxslim makes of it."""
    import onnxslim

    net.model = onnxslim.slim(net.model)
    return True
