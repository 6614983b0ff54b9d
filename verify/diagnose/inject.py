"""What an error in one inner tensor does to the outputs, measured on the reference."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from verify.core import Array, Missing, Tensors

EXACT, ERROR = "/npu-verify/exact", "/npu-verify/error"
LARGEST = 1 << 31  # bytes: what protobuf serialises


@dataclass(frozen=True)
class Reference:
    """The reference graph with an error added to each of `tensors`; `exact` runs it without any.

    Errors are fed as extra inputs of the tensors' dtypes; those not given are a zero of no axes, which Add broadcasts.
    """

    session: Any
    outputs: tuple[str, ...]
    tensors: Mapping[str, Any]

    def exact(self, feeds: Tensors) -> tuple[dict[str, Array], dict[str, Array]]:
        """Outputs and the tensors, both by name."""
        found = self.session.fetch({**feeds, **self._errors({})}, (*self.outputs, *(t + EXACT for t in self.tensors)))
        count = len(self.outputs)
        return dict(zip(self.outputs, found, strict=False)), dict(zip(self.tensors, found[count:], strict=True))

    def run(self, feeds: Tensors, errors: Tensors) -> dict[str, Array]:
        """Outputs by name with `errors` added to the tensors that they name."""
        found = self.session.fetch({**feeds, **self._errors(errors)}, self.outputs)
        return dict(zip(self.outputs, found, strict=True))

    def _errors(self, given: Tensors) -> dict[str, Array]:
        return {
            name + ERROR: np.asarray(given.get(name, 0.0), dtype).reshape(np.shape(given.get(name, 0.0)))
            for name, dtype in self.tensors.items()
        }


def reference(path: Path, tensors: Collection[str]) -> Reference:
    """Open an ONNX file so that errors can be added to `tensors`; raises Missing for what is too large for one message.

    Tensors that no node of the top-level graph computes, or that are not floating, are left out.
    """
    import onnx
    from onnx import TensorProto, helper

    from verify.backends import _ort
    from verify.graphs.signature import signature

    held = signature(path)
    if sum(file.stat().st_size for file in (path, *held.external)) >= LARGEST:
        raise Missing("the graph is too large to be rewritten", str(path))
    model = onnx.load(str(path))
    graph, kinds = model.graph, _kinds(model)
    known = {TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16, TensorProto.DOUBLE: np.float64}
    outputs, nodes, made = tuple(output.name for output in graph.output), [], {}
    for node in graph.node:
        nodes.append(node)
        for index, name in enumerate(node.output):
            if name in tensors and kinds.get(name) in known:
                made[name] = known[kinds[name]]
                node.output[index] = name + EXACT
                nodes.append(helper.make_node("Add", [name + EXACT, name + ERROR], [name]))
    held_nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(held_nodes)
    for name in made:
        graph.input.append(helper.make_tensor_value_info(name + ERROR, kinds[name], None))
        graph.output.append(onnx.ValueInfoProto(name=name + EXACT))
    del graph.value_info[:]
    opened = _ort.session(model.SerializeToString(), _ort.options("off"), str(path))
    return Reference(opened, outputs, made)


def _kinds(model: Any) -> dict[str, int]:
    """Element types by tensor, as ONNX infers them."""
    import onnx

    inferred = onnx.shape_inference.infer_shapes(model).graph
    held = (*inferred.value_info, *inferred.output)
    return {value.name: value.type.tensor_type.elem_type for value in held}


def spread(wanted: Tensors, got: Tensors) -> float:
    """Relative L2 error over floating outputs: root of the mean square of each output's own |got - wanted| / |wanted|.

    NaN where an output is not finite, or where there is no floating output that is not zero.
    """
    ratios = []
    for name, value in wanted.items():
        exact = np.asarray(value)
        if exact.dtype.kind == "f" and (size := float(np.linalg.norm(exact.astype(np.float64).ravel()))) > 0:
            off = np.asarray(got[name], np.float64) - exact
            ratios.append((float(np.linalg.norm(off.ravel())) / size) ** 2)
    return float(np.sqrt(np.mean(ratios))) if ratios else float("nan")
