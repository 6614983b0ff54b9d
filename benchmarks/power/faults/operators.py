"""Wrong operators: axes, constants of operators, activations, paddings, narrow arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from power.faults import Fault
from power.faults.coherent import ends
from power.net import Linear, Net, linears

Put = Callable[[Net, Any], set[str]]


def _ops(*kinds: str) -> Callable[[Net], Sequence[Any]]:
    return lambda net: [n for n in net.ops(*kinds) if n.output[0] in net.values]


def _set(node: Any, name: str, value: Any) -> None:
    from onnx import helper

    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def _get(node: Any, name: str, default: Any) -> Any:
    from onnx import helper

    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def _behind(*steps: Callable[[Net, Any], tuple[Any, ...]]) -> Put:
    """A chain behind the site's result; each step is made from the net and the value that the result has."""

    def put(net: Net, site: Any) -> set[str]:
        value = net.values[site.output[0]]
        net.after(site.output[0], *(step(net, value) for step in steps))
        return {site.name}

    return put


def _softmax_axis(net: Net, site: Any) -> set[str]:
    if net.values[site.output[0]].ndim < 3:
        return set()
    _set(site, "axis", -2)
    return {site.name}


def _norm_axis(net: Net, site: Any) -> set[str]:
    """Mean and variance over all tokens together."""
    shape = net.values[site.output[0]].shape
    if len(shape) != 3:
        return set()
    _set(site, "axis", 1)
    for index in range(1, len(site.input)):
        net.feed(site, index, np.ascontiguousarray(np.broadcast_to(net.constant(site.input[index]), shape[1:])))
    return {site.name}


def _epsilon(net: Net, site: Any) -> set[str]:
    _set(site, "epsilon", 1e-3)
    return {site.name}


def _gelu(net: Net, erf: Any) -> set[str]:
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
    names = _gelu(net, site)
    made = [
        net.node("Mul", [u, u], result + "_sq"),
        net.node("Mul", [result + "_sq", net.add(b)], result + "_b"),
        net.node("Add", [result + "_b", net.add(a)], result + "_ab"),
        net.node("Mul", [result + "_ab", u], result + "_arg"),
        net.node("Tanh", [result + "_arg"], result),
    ]
    return _replace(net, site, made, names)


def _relu_gelu(net: Net, site: Any) -> set[str]:
    """erf(u) by clip(1e4 u, -1, 1), that is relu for gelu."""
    u, result, names = site.input[0], site.output[0], _gelu(net, site)
    made = [
        net.node("Mul", [u, net.add(np.float32(1e4))], result + "_far"),
        net.node("Clip", [result + "_far", net.add(np.float32(-1)), net.add(np.float32(1))], result),
    ]
    return _replace(net, site, made, names)


def _replace(net: Net, site: Any, made: list[Any], names: set[str]) -> set[str]:
    index = net.nodes.index(site)
    net.model.graph.node.remove(site)
    for i, node in enumerate(made):
        net.model.graph.node.insert(index + i, node)
    return names


def _activation_lost(net: Net, site: Any) -> set[str]:
    site.op_type = "Identity"
    del site.attribute[:]
    del site.input[1:]
    return {site.name}


def _hard_slope(net: Net, site: Any) -> set[str]:
    """A hard sigmoid of slope 1/6 for 0.2, or the other way; where it is written out, x / 6 becomes x / 5."""
    if site.op_type == "HardSigmoid":
        _set(site, "alpha", 1 / 6 if abs(_get(site, "alpha", 0.2) - 0.2) < 0.01 else 0.2)
        return {site.name}
    net.feed(site, 1, np.full_like(net.constant(site.input[1]), 5.0))
    return {site.name}


def _slopes(net: Net) -> Sequence[Any]:
    six = [n for n in net.ops("Div") if (c := net.constant(n.input[1])) is not None and c.size == 1 and c.item() == 6.0]
    return [*net.ops("HardSigmoid"), *six]


def _mask(net: Net) -> Sequence[Any]:
    """The product that makes an additive mask: large and negative, or zero."""
    return [n for n in net.ops("Mul") if n.output[0] in net.values and np.min(net.values[n.output[0]]) <= -1000]


def _mask_off(net: Net, site: Any) -> set[str]:
    """The mask moved by one token: the first is no longer looked at, the last padding is."""
    return _rolled(net, site, net.values[site.output[0]].ndim - 1, keep={n.name for n in net.users(site.output[0])})


def _rolled(net: Net, site: Any, axis: int, keep: set[str] = frozenset()) -> set[str]:  # type: ignore[assignment]
    tensor = site.output[0]
    size = net.values[tensor].shape[axis]
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


def _rows_off(net: Net, site: Any) -> set[str]:
    value = net.values[site.output[0]]
    return _rolled(net, site, value.ndim - 2) if value.ndim >= 3 and value.shape[-2] > 1 else set()


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
    return [n for n in net.ops("Conv") if n.input[0] in net.values and any(_get(n, "pads", []))]


def _pad_value(net: Net, site: Any) -> set[str]:
    """Padded with a tenth of the rms instead of zero."""
    value = net.values[site.input[0]]
    top, left, bottom, right = _get(site, "pads", [0, 0, 0, 0])
    pads = net.add(np.array([0, 0, top, left, 0, 0, bottom, right], np.int64))
    wrong = net.add(np.float32(0.1 * np.sqrt((value.astype(np.float64) ** 2).mean())))
    made = net.node("Pad", [site.input[0], pads, wrong], site.input[0] + "_padded")
    net.model.graph.node.insert(net.nodes.index(site), made)
    site.input[0] += "_padded"
    _set(site, "pads", [0, 0, 0, 0])
    return {site.name}


def _resize(net: Net, site: Any) -> set[str]:
    nearest = _get(site, "mode", b"nearest") in (b"nearest", "nearest")
    _set(site, "mode", "linear" if nearest else "nearest")
    _set(site, "coordinate_transformation_mode", "half_pixel" if nearest else "asymmetric")
    return {site.name}


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
    return _replace(net, node, made, {node.name})


def _clip(low: float, high: float) -> Callable[[Net, Any], tuple[Any, ...]]:
    """Bounds as shares of the smallest and the largest value."""

    def step(net: Net, value: Any) -> tuple[Any, ...]:
        return "Clip", [np.float32(low * value.min()), np.float32(high * value.max())], {}

    return step


def _table(entries: int) -> Put:
    """An activation looked up in a table: its input rounded to so many values."""

    def put(net: Net, site: Any) -> set[str]:
        tensor = site.input[0]
        value = net.values.get(tensor)
        if value is None:
            return set()
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
        return {site.name} if site.op_type != "Erf" else _gelu(net, site)

    return put


def _half(net: Net, value: Any) -> tuple[Any, ...]:
    return "Cast", [], {"to": 10}


def _single(net: Net, value: Any) -> tuple[Any, ...]:
    return "Cast", [], {"to": 1}


def _eight_bits(net: Net, site: Any) -> set[str]:
    """Dekker's split, c = (2^s + 1) x, y = c - (c - x), in fp16 arithmetic: 8 of 11 bits stay, as in bfloat16."""
    tensor = site.output[0]
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


ACTIVATIONS = _ops("Erf", "Sigmoid", "Softmax", "Tanh", "HardSigmoid", "Relu")
FAULTS = [
    Fault(name, "operators", sites, put)
    for name, sites, put in (
        ("softmax over the wrong axis", _ops("Softmax"), _softmax_axis),
        ("LayerNorm over two axes", _ops("LayerNormalization"), _norm_axis),
        ("epsilon 1e-3", _ops("LayerNormalization"), _epsilon),
        ("tanh for erf GELU", _ops("Erf"), _tanh_gelu),
        ("relu for GELU", _ops("Erf"), _relu_gelu),
        ("activation lost", _ops("Relu", "Sigmoid", "HardSigmoid"), _activation_lost),
        ("hard sigmoid's slope", _slopes, _hard_slope),
        ("mask off by one", _mask, _mask_off),
        ("rows off by one", ends, _rows_off),
        ("residual lost", _residuals, _residual_lost),
        ("attention's scale", _scalings, _scaling),
        ("mean's divisor", _ops("GlobalAveragePool", "AveragePool", "ReduceMean"), _divisor),
        ("pad value", _padded, _pad_value),
        ("resize mode", _ops("Resize"), _resize),
        ("concat's order", _concat, _concat_swapped),
        ("sum in four pieces", linears, _pieces),
        ("saturated at 0.5", ends, _behind(_clip(0.5, 0.5))),
        ("saturated at 0.9", ends, _behind(_clip(0.9, 0.9))),
        ("table of 16 entries", ACTIVATIONS, _table(16)),
        ("table of 64 entries", ACTIVATIONS, _table(64)),
        ("rounded to fp16", ends, _behind(_half, _single)),
        ("rounded to 8 bits", ends, _eight_bits),
        ("truncated", ends, _truncated),
    )
]
