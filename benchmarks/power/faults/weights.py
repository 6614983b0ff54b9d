"""Wrong constants: elements, channels, whole layers, order, biases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from power.faults import Fault
from power.net import Linear, Net, linears


def _of(change: Callable[[Any, Linear, Net], Any]) -> Callable[[Net, Linear], set[str]]:
    """A change of a weight, output channels first."""

    def put(net: Net, site: Linear) -> set[str]:
        right = np.moveaxis(site.weight, site.out, 0)
        wrong = change(right.copy(), site, net)
        if wrong is None or np.array_equal(wrong, right):
            return set()
        net.feed(site.node, 1, np.ascontiguousarray(np.moveaxis(wrong, 0, site.out)).astype(site.weight.dtype))
        return {site.node.name}

    return put


def _element(w: Any, value: Callable[[Any], float]) -> Any:
    w.reshape(-1)[np.abs(w).argmax()] = value(np.abs(w).max())
    return w


def _channel(w: Any, factor: float) -> Any:
    """The channel of the median norm: neither the strongest nor a dead one."""
    norms = np.linalg.norm(w.reshape(len(w), -1), axis=1)
    w[np.argsort(norms)[len(w) // 2]] *= factor
    return w


def _swapped(w: Any) -> Any:
    a, b = len(w) // 3, len(w) // 2
    w[[a, b]] = w[[b, a]]
    return w


def _heads(w: Any, site: Linear, net: Net) -> Any:
    heads = _heads_of(net, site)
    size = len(w) // heads
    w[: 2 * size] = np.concatenate([w[size : 2 * size], w[:size]])
    return w


def _heads_of(net: Net, site: Linear) -> int:
    """Into how many heads the output is split: the reshape behind it says so; 0 if there is none."""
    tensor = site.bias[0].output[0] if site.bias else site.node.output[0]
    for user in net.users(tensor):
        shape = net.constant(user.input[1]) if user.op_type == "Reshape" else None
        if shape is not None and len(shape) == 4 and shape[2] * shape[3] == site.weight.shape[site.out]:
            return int(shape[2])
    return 0


def _scales_off_by_one(w: Any) -> Any:
    """Every channel rescaled as if it had its neighbour's integer scale."""
    top = np.abs(w).reshape(len(w), -1).max(1)
    top = np.maximum(top, 1e-6 * top.max())  # a dead channel has no scale to speak of
    return w * (np.roll(top, -1) / top).reshape(-1, *[1] * (w.ndim - 1))


def _stale(rows: int) -> Callable[[Any, Linear, Net], Any]:
    def change(w: Any, site: Linear, net: Net) -> Any:
        """A block of channels from another layer of this shape; from elsewhere in this one if there is none."""
        if len(w) < 2 * rows:
            return None
        others = [o for o in linears(net) if o.node.name != site.node.name and o.weight.shape == site.weight.shape]
        source = np.moveaxis(others[0].weight, others[0].out, 0)[:rows] if others else w[-rows:].copy()
        w[:rows] = source
        return w

    return change


def _bias(change: Callable[[Any], Any]) -> Callable[[Net, Linear], set[str]]:
    def put(net: Net, site: Linear) -> set[str]:
        assert site.bias
        node, index = site.bias
        right = net.constant(node.input[index])
        wrong = change(right)
        if np.array_equal(wrong, right):
            return set()
        net.feed(node, index, wrong.astype(right.dtype))
        return {site.node.name, node.name}

    return put


def _biased(net: Net) -> list[Linear]:
    return [site for site in linears(net) if site.bias]


def _square(net: Net) -> list[Linear]:
    return [s for s in linears(net) if s.weight.shape[0] == s.weight.shape[1]]


def _kernels(net: Net) -> list[Linear]:
    return [s for s in linears(net) if s.weight.ndim == 4 and s.weight.shape[2] == s.weight.shape[3] > 1]


def _weight(name: str, change: Callable[..., Any], sites: Callable[[Net], Any] = linears) -> Fault:
    return Fault(name, "weights", sites, _of(change))


FAULTS = [
    _weight("element x 4", lambda w, *_: _element(w, lambda top: 4 * top)),
    _weight("element to zero", lambda w, *_: _element(w, lambda top: 0.0)),
    _weight("channel x 1.001", lambda w, *_: _channel(w, 1.001)),
    _weight("channel x 1.01", lambda w, *_: _channel(w, 1.01)),
    _weight("channel x 1.1", lambda w, *_: _channel(w, 1.1)),
    _weight("layer x 1.001", lambda w, *_: w * 1.001),
    _weight("layer x 1.003", lambda w, *_: w * 1.003),
    _weight("layer x 1.01", lambda w, *_: w * 1.01),
    _weight("layer x 1.02", lambda w, *_: w * 1.02),
    _weight("channel to zero", lambda w, *_: _channel(w, 0.0)),
    _weight("channel's sign", lambda w, *_: _channel(w, -1.0)),
    _weight("two columns swapped", lambda w, *_: _swapped(w)),
    _weight("two heads swapped", _heads, lambda net: [s for s in linears(net) if _heads_of(net, s) > 1]),
    _weight("matrix transposed", lambda w, *_: w.swapaxes(0, 1).copy(), _square),
    _weight("kernel flipped", lambda w, *_: w[..., ::-1].copy(), _kernels),
    _weight("kernel transposed", lambda w, *_: w.swapaxes(2, 3).copy(), _kernels),
    _weight("scales off by one channel", lambda w, *_: _scales_off_by_one(w)),
    _weight("8 rows stale", _stale(8)),
    _weight("32 rows stale", _stale(32)),
    Fault("bias lost", "weights", _biased, _bias(lambda b: np.zeros_like(b))),
    Fault("bias off by one channel", "weights", _biased, _bias(lambda b: np.roll(b, 1))),
]
