"""What the checkers need to know of an ONNX graph, read once and without its weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from verify.core import UsageError

#: Operators that move values without changing them: never the node that a fault is pinned on.
LAYOUT = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Cast"})
#: Operators whose result is a position: compared by the value found there.
INDEX = frozenset({"TopK", "ArgMax", "ArgMin"})

#: An output alone points at a node only where this many at most are behind it (house choice: a LayerNorm written out
#: has nine).
FEW = 10
#: Elements of a weight that shape inference may look into: shapes, axes, sizes.
LIGHT = 1024


@dataclass(frozen=True)
class Node:
    """One node: `inputs` and `outputs` are tensor names, `axis` its axis attribute where it has one."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    axis: int | None = None
    largest: bool = True


@dataclass(frozen=True)
class GraphInfo:
    """Inputs and outputs in order, nodes in topological order, producers by tensor, shapes where they are static."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    producer: Mapping[str, Node]
    position: Mapping[str, int]
    shapes: Mapping[str, tuple[int | None, ...]]
    external: tuple[str, ...] = ()  # files beside the graph that hold its weights, relative to it

    def op(self, tensor: str) -> str:
        return self.producer[tensor].op if tensor in self.producer else ""

    def indexed(self, tensor: str) -> Node | None:
        """The TopK, ArgMax or ArgMin whose indices `tensor` holds, None for anything else (TopK's values, for one).

        A Cast to another integer and an Identity are looked through: exporters put them there.
        """
        node = self.producer.get(tensor)
        while node is not None and node.op in ("Cast", "Identity"):
            tensor = node.inputs[0]
            node = self.producer.get(tensor)
        known = node is not None and node.op in INDEX and node.outputs[-1] == tensor and self._recorded(node.inputs[0])
        return node if known else None

    def _recorded(self, tensor: str) -> bool:
        """Whether a run of the graph shows these values: those of weights and constants it does not."""
        return tensor in self.inputs or self.op(tensor) not in ("", "Constant")

    def last_of_few(self, tensor: str) -> Node | None:
        """The node that computes `tensor`, if no more than a glance's worth of nodes lead to it; None for more.

        Layout operators and constants are not counted.
        """
        found: set[Node] = set()
        seen: set[str] = set()
        todo = [tensor]
        while todo:
            name = todo.pop()
            node = self.producer.get(name)
            if node is None or name in seen:
                continue
            seen.add(name)
            todo += node.inputs
            if node.op not in LAYOUT and node.op != "Constant":
                found.add(node)
                if len(found) > FEW:
                    return None
        return self.producer.get(tensor)

    def blocks(self, tensor: str) -> tuple[int, tuple[tuple[str, int], ...]] | None:
        """The pieces (name, extent) that a Concat joined into `tensor`, and its axis; None for anything else.

        Layout operators behind the Concat are not looked through: they would move the axis.
        """
        node = self.producer.get(tensor)
        if node is None or node.op != "Concat" or node.axis is None:
            return None
        pieces = []
        for name in node.inputs:
            shape = self.shapes.get(name, ())
            extent = shape[node.axis] if len(shape) > 0 and -len(shape) <= node.axis < len(shape) else None
            if extent is None:
                return None
            pieces.append((name, extent))
        return node.axis, tuple(pieces)


def read(path: Path) -> GraphInfo:
    """The GraphInfo of an ONNX file; external data is not loaded. Raises UsageError for an unreadable file."""
    try:
        stat = path.stat()
    except OSError as error:
        raise UsageError(f"not a readable ONNX file ({error.strerror})", str(path), "export it again") from None
    return _read(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=8)
def _read(path: Path, _changed: int, _size: int) -> GraphInfo:
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf raises its own kinds for truncated files
        raise UsageError(f"not a readable ONNX file ({type(error).__name__})", str(path), "export it again") from error
    constants = {tensor.name for tensor in model.graph.initializer}
    shapes: dict[str, tuple[int | None, ...]] = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    external = tuple(sorted(_external(model)))
    inputs = tuple(i.name for i in model.graph.input if i.name not in constants)
    _lighten(model)
    try:
        # exporters write flatten and view as arithmetic on shapes, which only data propagation sees through
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception:  # shape inference is a help, not a requirement: blocks then stay unknown
        inferred = model.graph
    for info in (*inferred.input, *inferred.value_info, *inferred.output):
        if info.type.tensor_type.HasField("shape"):
            dims = info.type.tensor_type.shape.dim
            shapes[info.name] = tuple(d.dim_value if d.HasField("dim_value") else None for d in dims)
    nodes = []
    for index, node in enumerate(model.graph.node):
        attributes = {a.name: a for a in node.attribute}
        axis = attributes["axis"].i if "axis" in attributes else None
        if axis is None and node.op_type in INDEX:
            axis = -1 if node.op_type == "TopK" else 0  # the operators' own defaults
        largest = bool(attributes["largest"].i) if "largest" in attributes else node.op_type != "ArgMin"
        name = node.name or f"{node.op_type}_{index}"
        nodes.append(Node(name, node.op_type, tuple(node.input), tuple(node.output), axis, largest))
    return GraphInfo(
        inputs=inputs,
        outputs=tuple(o.name for o in model.graph.output),
        nodes=tuple(nodes),
        producer={out: node for node in nodes for out in node.outputs if out},
        position={out: i for i, node in enumerate(nodes) for out in node.outputs if out},
        shapes=shapes,
        external=external,
    )


def _lighten(model: Any) -> None:
    """Declare large weights as inputs: inference needs their shapes only, and copies what it is given three times."""
    import onnx

    declared, kept = {port.name for port in model.graph.input}, []
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= LIGHT:  # it may be a shape, an axis or a size
            kept.append(onnx.TensorProto.FromString(tensor.SerializeToString()))
        elif tensor.name not in declared:
            port = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            model.graph.input.append(port)
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def _external(model: Any) -> set[str]:
    entries = (entry for tensor in model.graph.initializer for entry in tensor.external_data)
    return {entry.value for entry in entries if entry.key == "location"}
