"""Wrong operators: axes, constants, paddings, order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from power.faults import Fault
from power.faults.coherent import ends
from power.faults.sites import attribute, ops, rolled, set_attribute
from power.net import Net


def _softmax_axis(net: Net, site: Any) -> set[str]:
    if net.values[site.output[0]].ndim < 3:
        return set()
    set_attribute(site, "axis", -2)
    return {site.name}


def _norm_axis(net: Net, site: Any) -> set[str]:
    """Mean and variance over all tokens together."""
    shape = net.values[site.output[0]].shape
    if len(shape) != 3:
        return set()
    set_attribute(site, "axis", 1)
    for index in range(1, len(site.input)):
        net.feed(site, index, np.ascontiguousarray(np.broadcast_to(net.constant(site.input[index]), shape[1:])))
    return {site.name}


def _epsilon(net: Net, site: Any) -> set[str]:
    set_attribute(site, "epsilon", 1e-3)
    return {site.name}


def _mask(net: Net) -> Sequence[Any]:
    """The product that makes an additive mask: large and negative, or zero."""
    return [n for n in net.ops("Mul") if n.output[0] in net.values and np.min(net.values[n.output[0]]) <= -1000]


def _mask_off(net: Net, site: Any) -> set[str]:
    """The mask moved by one token: the first is no longer looked at, the last padding is."""
    return rolled(net, site, net.values[site.output[0]].ndim - 1, keep={n.name for n in net.users(site.output[0])})


def _rows_off(net: Net, site: Any) -> set[str]:
    value = net.values[site.output[0]]
    return rolled(net, site, value.ndim - 2) if value.ndim >= 3 and value.shape[-2] > 1 else set()


def _residuals(net: Net) -> Sequence[Any]:
    """Sums of two computed tensors of one shape."""
    return [
        n
        for n in net.ops("Add")
        if all(i in net.values and net.constant(i) is None for i in n.input)
        and net.values[n.input[0]].shape == net.values[n.input[1]].shape
        and net.values[n.output[0]].dtype.kind == "f"
    ]


def _residual_lost(net: Net, site: Any) -> set[str]:
    """Only what was computed last stays."""
    order = [o for n in net.nodes for o in n.output]
    kept = max(site.input, key=lambda i: order.index(i) if i in order else -1)
    site.op_type = "Identity"
    site.input[:] = [kept]
    return {site.name}


def _scalings(net: Net) -> Sequence[Any]:
    """A Div or Mul by one number on the way into a Softmax."""
    found = []
    for softmax in net.ops("Softmax"):
        node = net.producer(softmax.input[0])
        for _ in range(3):
            if node is None:
                break
            if node.op_type in ("Div", "Mul") and (c := net.constant(node.input[1])) is not None and c.size == 1:
                found.append(node)
                break
            node = net.producer(node.input[0]) if node.input else None
    return found


def _scaling(net: Net, site: Any) -> set[str]:
    """As if heads were twice as wide."""
    net.feed(site, 1, net.constant(site.input[1]) * np.float32(np.sqrt(2)))
    return {site.name}


def _divisor(net: Net, site: Any) -> set[str]:
    """A mean that divides by one number more than it sums."""
    count = net.values[site.input[0]].size / max(1, net.values[site.output[0]].size)
    if not count > 1:
        return set()
    net.after(site.output[0], ("Mul", [np.float32(count / (count + 1))], {}))
    return {site.name}


def _padded(net: Net) -> Sequence[Any]:
    return [n for n in net.ops("Conv") if n.input[0] in net.values and any(attribute(n, "pads", []))]


def _pad_value(net: Net, site: Any) -> set[str]:
    """Padded with a tenth of the rms instead of zero."""
    value = net.values[site.input[0]]
    top, left, bottom, right = attribute(site, "pads", [0, 0, 0, 0])
    pads = net.add(np.array([0, 0, top, left, 0, 0, bottom, right], np.int64))
    wrong = net.add(np.float32(0.1 * np.sqrt((value.astype(np.float64) ** 2).mean())))
    made = net.node("Pad", [site.input[0], pads, wrong], site.input[0] + "_padded")
    net.model.graph.node.insert(net.nodes.index(site), made)
    site.input[0] += "_padded"
    set_attribute(site, "pads", [0, 0, 0, 0])
    return {site.name}


def _resize(net: Net, site: Any) -> set[str]:
    nearest = attribute(site, "mode", b"nearest") in (b"nearest", "nearest")
    set_attribute(site, "mode", "linear" if nearest else "nearest")
    set_attribute(site, "coordinate_transformation_mode", "half_pixel" if nearest else "asymmetric")
    return {site.name}


def _concat(net: Net) -> Sequence[Any]:
    found = []
    for n in net.ops("Concat"):
        shapes = [net.values[i].shape if i in net.values else None for i in n.input]
        if len(shapes) > 1 and shapes[0] is not None and shapes[0] == shapes[1] and len(shapes[0]) > 1:
            found.append(n)
    return found


def _concat_swapped(net: Net, site: Any) -> set[str]:
    site.input[0], site.input[1] = site.input[1], site.input[0]
    return {site.name}


FAULTS = [
    Fault(name, "operators", sites, put)
    for name, sites, put in (
        ("softmax over the wrong axis", ops("Softmax"), _softmax_axis),
        ("LayerNorm over two axes", ops("LayerNormalization"), _norm_axis),
        ("epsilon 1e-3", ops("LayerNormalization"), _epsilon),
        ("mask off by one", _mask, _mask_off),
        ("rows off by one", ends, _rows_off),
        ("residual lost", _residuals, _residual_lost),
        ("attention's scale", _scalings, _scaling),
        ("mean's divisor", ops("GlobalAveragePool", "AveragePool", "ReduceMean"), _divisor),
        ("pad value", _padded, _pad_value),
        ("resize mode", ops("Resize"), _resize),
        ("concat's order", _concat, _concat_swapped),
    )
]
