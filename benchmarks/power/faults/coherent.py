"""Small errors that all elements of one tensor share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from power.faults import Fault
from power.net import Net

#: What ends a stage of a network: faults are put behind these.
ENDS = ("LayerNormalization", "Relu", "Add", "Softmax", "Sigmoid", "HardSigmoid")


def ends(net: Net) -> Sequence[Any]:
    """Nodes of these kinds whose result varies with the input, a bias's addition left out."""
    return [n for n in net.ops(*ENDS) if n.output[0] in net.values and _whole(net, n)]


def _whole(net: Net, node: Any) -> bool:
    value = net.values[node.output[0]]
    if value.dtype.kind != "f" or value.size < 64:
        return False
    return node.op_type != "Add" or all(net.constant(i) is None for i in node.input)


def _gain(factor: float) -> Callable[[Net, Any], set[str]]:
    def put(net: Net, site: Any) -> set[str]:
        net.after(site.output[0], ("Mul", [np.float32(factor)], {}))
        return {site.name}

    return put


def _offset(share: float) -> Callable[[Net, Any], set[str]]:
    def put(net: Net, site: Any) -> set[str]:
        value = np.asarray(net.values[site.output[0]], np.float64)
        net.after(site.output[0], ("Add", [np.float32(share * np.sqrt((value**2).mean()))], {}))
        return {site.name}

    return put


FAULTS = [
    *(Fault(f"gain {100 * g:g} %", "coherent", ends, _gain(1 + g)) for g in (0.001, 0.003, 0.01)),
    *(Fault(f"offset {s:g} rms", "coherent", ends, _offset(s)) for s in (0.1, 0.3, 1.0)),
]
