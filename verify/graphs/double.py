"""A graph evaluated in float64 by the ONNX reference evaluator, within limits of size and time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from verify.core import Array, Missing, Tensors
from verify.graphs.signature import signature

#: House choices: what still ends within a minute or two on one core, at 8 bytes an element.
MAX_BYTES, MAX_NODES, SECONDS = 1 << 30, 5000, 90.0


def evaluate(path: Path, feeds: Tensors, inner: bool = False) -> dict[str, Array]:
    """Outputs by name (with `inner`, every tensor), floating ones in float64.

    Raises Missing when that takes too long or an operator is unknown.
    """
    import numpy as np
    import onnx
    from onnx.reference import ReferenceEvaluator

    held = signature(path)
    if sum(file.stat().st_size for file in (path, *held.external)) > MAX_BYTES:
        raise Missing("too large to be evaluated in float64", str(path))
    model = onnx.load(str(path))
    if len(model.graph.node) > MAX_NODES:
        raise Missing("too many nodes to be evaluated in float64", str(path))
    _widen_graph(model.graph)
    for function in model.functions:
        for node in function.node:
            _widen_node(node)
    del model.graph.value_info[:]
    try:
        evaluator = ReferenceEvaluator(model)
        wide = {k: v.astype(np.float64) if v.dtype.kind == "f" else v for k, v in feeds.items()}
        return _run(evaluator, wide, inner)
    except Missing:
        raise
    except Exception as error:  # the evaluator does not know every operator, and raises many kinds
        raise Missing(f"the reference evaluator failed: {type(error).__name__}", str(path)) from error


def _run(evaluator: Any, feeds: Tensors, inner: bool) -> dict[str, Array]:
    """As the evaluator's own `run`, node by node, so that time can be called."""
    end = time.monotonic() + SECONDS
    results: dict[str, Any] = {"": None, **evaluator.rt_inits_, **feeds}
    for node in evaluator.rt_nodes_:
        if time.monotonic() > end:
            raise Missing(f"not evaluated in float64 within {SECONDS:g} s")
        inputs = [results[name] for name in node.input]
        if node.op_type == "Resize":  # exporters give an empty roi or scales where the operator means "absent"
            inputs = [None if value is not None and value.size == 0 else value for value in inputs]
        outputs = node.run(*inputs, context=results) if node.need_context() else node.run(*inputs)
        results.update(zip(node.output, outputs, strict=False))
    if inner:
        return {name: value for name, value in results.items() if name and hasattr(value, "dtype")}
    return {name: results[name] for name in evaluator.output_names}


def _widen_graph(graph: Any) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for item in (*graph.input, *graph.output):
        held = item.type.tensor_type
        held.elem_type = _wide(held.elem_type)
    for node in graph.node:
        _widen_node(node)


def _widen_node(node: Any) -> None:
    """Constants, casts and fills of floating types become float64; nested graphs too."""
    for attribute in node.attribute:
        if attribute.HasField("t"):
            _widen_tensor(attribute.t)
        elif attribute.HasField("g"):
            _widen_graph(attribute.g)
        elif (node.op_type, attribute.name) in (
            ("Cast", "to"),
            *((op, "dtype") for op in ("EyeLike", "RandomNormalLike")),
        ):
            attribute.i = _wide(attribute.i)
        elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            _constant(attribute)


def _constant(attribute: Any) -> None:
    import numpy as np
    from onnx import AttributeProto, numpy_helper

    value = attribute.f if attribute.name == "value_float" else list(attribute.floats)
    tensor = numpy_helper.from_array(np.array(value, np.float64))
    attribute.Clear()
    attribute.name, attribute.type = "value", AttributeProto.TENSOR
    attribute.t.CopyFrom(tensor)


def _wide(kind: int) -> int:
    from onnx import TensorProto as T

    return int(T.DOUBLE) if kind in (T.FLOAT, T.FLOAT16, T.BFLOAT16) else kind


def _widen_tensor(tensor: Any) -> None:
    import numpy as np
    from onnx import numpy_helper

    if _wide(tensor.data_type) != tensor.data_type:
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), name))
