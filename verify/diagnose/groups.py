"""Which compiled layers only make sense together: a linear operator and what the compiler fuses behind it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from verify.graphs.info import LAYOUT, GraphInfo

LINEAR = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm"})
#: Operators that the compiler fuses into the linear one before them, or computes between (ConvAdd, ConvExGelu, ...).
FUSED = LAYOUT | {
    "Add", "Sub", "Mul", "Div", "Pow", "Erf", "Tanh", "Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "HardSigmoid",
    "HardSwish", "Gelu", "Elu", "Softplus", "BatchNormalization",
}  # fmt: skip


def groups(graph: GraphInfo, layers: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Compiled layers (name to reference tensor) that are kept in float together, in the graph's order.

    Together are those that hold one tensor, and a linear operator's with the only tensor it reaches through FUSED.
    """
    tensors = dict.fromkeys(layers.values())
    joined = {tensor: tensor for tensor in tensors}
    for tensor in tensors:
        if _linear(graph, tensor):
            reached = _reached(graph, tensor, tensors)
            if len(reached) == 1 and "" not in reached:
                joined[tensor] = next(iter(reached))
    held: dict[str, list[str]] = {}
    for layer, tensor in sorted(layers.items(), key=lambda item: graph.position.get(item[1], -1)):
        held.setdefault(_last(joined, tensor), []).append(layer)
    return tuple(tuple(group) for group in held.values())


def _last(joined: Mapping[str, str], tensor: str) -> str:
    while joined[tensor] != tensor:
        tensor = joined[tensor]
    return tensor


def _linear(graph: GraphInfo, tensor: str) -> bool:
    """Whether a linear operator computes it, scaled and shifted by constants (a bias, a BatchNorm) or not."""
    node = graph.producer.get(tensor)
    while node is not None and node.op in ("Add", "Mul", "BatchNormalization"):
        before = [name for name in node.inputs if graph.op(name) not in ("", "Constant") or name in graph.inputs]
        node = graph.producer.get(before[0]) if len(before) == 1 else None
    return node is not None and node.op in LINEAR


def _reached(graph: GraphInfo, tensor: str, known: Collection[str]) -> set[str]:
    """The tensors of `known` to which FUSED operators lead from `tensor`; "" among them for any other operator."""
    found: set[str] = set()
    todo, seen = [tensor], set()
    while todo:
        name = todo.pop()
        if name in graph.outputs:
            found.add("")
        for node in graph.nodes:
            if name not in node.inputs or node.outputs[0] in seen:
                continue
            after = node.outputs[0]
            seen.add(after)
            if node.op not in FUSED or node.op in LAYOUT and after in known:
                found.add("")
            elif after in known:
                found.add(after)
            else:
                todo.append(after)
    return found
