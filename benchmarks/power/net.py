"""An ONNX graph that faults can be written into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

LINEAR = ("MatMul", "Gemm", "Conv")


@dataclass
class Net:
    """A loaded model, and the values that its right graph has in one case (`values`, for sizes only).

    `beside` are the nodes at the other end of an edge that a fault was put on.
    """

    model: Any
    values: dict[str, Any]
    fresh: int = field(default=0)
    known: set[str] = field(default_factory=set)
    beside: set[str] = field(default_factory=set)

    @classmethod
    def load(cls, path: Path, values: dict[str, Any]) -> Net:
        import onnx

        model = onnx.load(str(path))
        known = {n for node in model.graph.node for n in (*node.input, *node.output)}
        return cls(model, values, known=known)

    @property
    def nodes(self) -> list[Any]:
        return list(self.model.graph.node)

    def ops(self, *kinds: str) -> list[Any]:
        return [n for n in self.nodes if n.op_type in kinds]

    def constant(self, name: str) -> Any:
        """The value of an initializer or a Constant node, or None."""
        from onnx import numpy_helper

        for held in self.model.graph.initializer:
            if held.name == name:
                return numpy_helper.to_array(held)
        for node in self.model.graph.node:
            if node.op_type == "Constant" and node.output[0] == name:
                return numpy_helper.to_array(node.attribute[0].t)
        return None

    def producer(self, tensor: str) -> Any:
        return next((n for n in self.model.graph.node if tensor in n.output), None)

    def users(self, tensor: str) -> list[Any]:
        return [n for n in self.model.graph.node if tensor in n.input]

    def add(self, value: Any) -> str:
        """A new initializer; its name."""
        from onnx import numpy_helper

        self.fresh += 1
        name = f"fault_{self.fresh}"
        self.model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def feed(self, node: Any, index: int, value: Any) -> None:
        """Give one node another constant input, whoever shares the old one."""
        node.input[index] = self.add(value)

    def node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> Any:
        from onnx import helper

        self.fresh += 1
        return helper.make_node(op, list(inputs), [output], name=f"fault_{op}_{self.fresh}", **attributes)

    def after(self, tensor: str, *steps: tuple[Any, ...]) -> None:
        """Put a chain behind a tensor: each step is (op, further inputs, attributes); everyone sees its result.

        Constants among the further inputs are arrays.
        """
        producer = self.producer(tensor)
        self.beside |= {user.name for user in self.users(tensor)}
        self.fresh += 1
        raw = f"{tensor}_raw{self.fresh}"
        if producer is None:  # a graph input: its users are told of another name
            raw, new = tensor, f"{tensor}_new{self.fresh}"
            for user in self.users(tensor):
                user.input[:] = [new if i == tensor else i for i in user.input]
            at, last_name = 0, new
        else:
            producer.output[:] = [raw if o == tensor else o for o in producer.output]
            at, last_name = self.nodes.index(producer) + 1, tensor
        made, current = [], raw
        for number, (op, further, attributes) in enumerate(steps):
            inputs = [f if isinstance(f, str) else self.add(f) for f in further]
            output = last_name if number == len(steps) - 1 else f"{raw}_{number}"
            made.append(self.node(op, [current, *inputs], output, **attributes))
            current = output
        for i, node in enumerate(made):
            self.model.graph.node.insert(at + i, node)

    def save(self, path: Path) -> None:
        """Write the model. New tensors get names that say nothing: a real fault does not tell where it is."""
        import onnx

        renamed: dict[str, str] = {}
        for node in self.model.graph.node:
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    if name and name not in self.known:
                        names[i] = renamed.setdefault(name, f"added_{len(renamed)}")
        for held in self.model.graph.initializer:
            held.name = renamed.get(held.name, held.name)
        onnx.save(self.model, str(path))


@dataclass(frozen=True)
class Linear:
    """A node with constant weights: `out` is the axis of its output channels, `into` of what it sums over."""

    node: Any
    weight: Any
    out: int
    into: int
    bias: tuple[Any, int] | None  # the node that adds it, and which input it is


def linears(net: Net) -> list[Linear]:
    """Every MatMul, Gemm and Conv with constant weights of more than one channel, in the graph's order."""
    found = []
    for node in net.ops(*LINEAR):
        weight = net.constant(node.input[1])
        if weight is None or weight.ndim < 2 or weight.shape[0] < 2 or weight.shape[1] < 2:
            continue
        if node.op_type == "Conv":
            out, into = 0, 1
        else:
            flipped = any(a.name == "transB" and a.i for a in node.attribute)
            out, into = (0, 1) if flipped else (1, 0)
        found.append(Linear(node, weight, out, into, _bias(net, node)))
    return found


def _bias(net: Net, node: Any) -> tuple[Any, int] | None:
    if node.op_type != "MatMul":
        return (node, 2) if len(node.input) > 2 and node.input[2] else None
    users = net.users(node.output[0])
    if len(users) == 1 and users[0].op_type == "Add":
        index = 1 - list(users[0].input).index(node.output[0])
        value = net.constant(users[0].input[index])
        if value is not None and value.ndim == 1:
            return users[0], index
    return None
