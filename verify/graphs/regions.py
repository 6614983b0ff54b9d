"""A graph cut at the tensors whose own values are known: each region leads from such tensors to the next one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from verify.core import Array, Missing
from verify.graphs.info import LAYOUT

#: Operators whose result no replay can foretell: they draw, or hold a graph of their own.
UNFORETOLD = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout",
     "If", "Loop", "Scan", "SequenceMap"}
)  # fmt: skip
#: Operators that multiply by weights and add up: their sums are exact up to the order of addition.
LINEAR = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose"})


@dataclass(frozen=True)
class Region:
    """What leads to `tensor`: ONNX nodes in topological order, and the tensors that they are fed with (`cut`)."""

    tensor: str
    nodes: tuple[Any, ...]
    cut: tuple[str, ...]

    @property
    def ops(self) -> tuple[str, ...]:
        """The operators that compute, in order; none where values are only moved."""
        return tuple(node.op_type for node in self.nodes if node.op_type not in LAYOUT and node.op_type != "Constant")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes if node.op_type not in LAYOUT)


@dataclass(frozen=True)
class Cuttable:
    """An ONNX model with its weights and constants as arrays and the producer of every tensor."""

    model: Any
    constants: Mapping[str, Array]
    producers: Mapping[str, Any]
    position: Mapping[str, int]
    inputs: tuple[str, ...]
    floating: frozenset[str]  # tensors known to hold float32

    def region(self, tensor: str, held: Collection[str]) -> Region:
        """The region that ends at `tensor` and begins at tensors of `held` or at inputs; raises Missing."""
        known, cut, nodes = set(held), set(), {}
        todo = [tensor]
        seen = set()
        while todo:
            name = todo.pop()
            if not name or name in seen or name in self.constants:
                continue
            seen.add(name)
            if name != tensor and (name in known or name in self.inputs):
                cut.add(name)
                continue
            node = self.producers.get(name)
            if node is None:
                raise Missing(f"nothing computes {name}", tensor)
            if node.op_type in UNFORETOLD:
                raise Missing(f"{node.op_type} cannot be foretold", node.name or name)
            nodes[self.position[name]] = node
            todo += node.input
        return Region(tensor, tuple(nodes[i] for i in sorted(nodes)), tuple(sorted(cut)))


def cuttable(path: Path) -> Cuttable:
    """Read an ONNX file for cutting, its weights included."""
    stat = path.stat()
    return _cuttable(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=2)
def _cuttable(path: Path, _changed: int, _size: int) -> Cuttable:
    import onnx
    from onnx import numpy_helper

    model = onnx.load(str(path))
    graph = model.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            held = [a.t for a in node.attribute if a.name == "value"]
            constants.update({node.output[0]: numpy_helper.to_array(held[0])} if held else {})
    try:  # types are all that is wanted; a model beyond protobuf's 2 GB has none
        inferred = onnx.shape_inference.infer_shapes(model).graph if model.ByteSize() < 2**31 else graph
    except Exception:  # shape inference is a help, not a requirement
        inferred = graph
    typed = (*inferred.input, *inferred.value_info, *inferred.output)
    numbered = [(out, i, node) for i, node in enumerate(graph.node) for out in node.output if out]
    return Cuttable(
        model,
        constants,
        {out: node for out, _, node in numbered},
        {out: i for out, i, _ in numbered},
        tuple(i.name for i in graph.input if i.name not in constants),
        frozenset(i.name for i in typed if i.type.tensor_type.elem_type == onnx.TensorProto.FLOAT),
    )
