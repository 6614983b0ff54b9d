"""Every tensor of an ONNX graph, some nodes at a time: what is in memory does not grow with the number of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from verify.backends import _ort
from verify.core import Array, Tensors, UsageError

#: Nodes in a piece (house choice): of 12 layers of 512 units and 128 tokens, 32 tensors take 14 MB; a session more for
#: every 32 nodes takes 10 ms.
NODES = 32


@dataclass(frozen=True)
class _Cut:
    """A graph's nodes without its constants, which every piece that needs them gets for itself."""

    model: Any
    nodes: Sequence[Any]
    reads: Sequence[frozenset[str]]  # by node, what its subgraphs read from outside included
    constants: dict[str, Any]
    folder: Path

    def piece(self, start: int, end: int, known: Tensors) -> tuple[bytes, list[str]]:
        """Nodes start to end as a model of its own, fed with those of `known` that they read; and what it computes."""
        import onnx

        nodes, read = list(self.nodes[start:end]), frozenset[str]().union(*self.reads[start:end])
        made = {name for node in nodes for name in node.output if name}
        fixed = [self.constants[name] for name in sorted(read & set(self.constants))]
        whole = self.model
        cut = onnx.ModelProto(ir_version=whole.ir_version, opset_import=whole.opset_import, functions=whole.functions)
        cut.graph.name = whole.graph.name or "graph"
        cut.graph.node.extend([*fixed, *nodes])
        for name in sorted(read & set(known) - made):
            value = np.asarray(known[name])
            kind = (
                onnx.TensorProto.STRING
                if value.dtype.kind in "OUS"
                else onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
            )
            cut.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, value.shape))
        cut.graph.initializer.extend(t for t in whole.graph.initializer if t.name in read and t.name not in known)
        cut.graph.sparse_initializer.extend(t for t in whole.graph.sparse_initializer if t.values.name in read)
        names = [name for node in nodes for name in node.output if name]
        cut.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        return cut.SerializeToString(), names


def stream(path: Path, feeds: Tensors, level: str = "off") -> Iterator[dict[str, Array]]:
    """The tensors that each piece of the graph computes, by name, in the graph's order; constants are left out.

    `level` is onnxruntime's optimisation of each piece; no node is fused with another, as what lies between them is
    asked for. Sequences, maps and optionals are left out. Raises UsageError for a graph or feeds that cannot be run,
    NotComparable when a node fails on what it is given.
    """
    cut = _cut(path)
    last = {name: i for i, read in enumerate(cut.reads) for name in read}
    known: dict[str, Any] = dict(feeds)
    start = end = 0
    while start < len(cut.nodes):
        end = min(end + NODES, len(cut.nodes))
        found = _run(cut, start, end, known, level)
        alive = {name: value for name, value in found.items() if last.get(name, -1) >= end}
        if any(not isinstance(value, np.ndarray) for value in alive.values()):
            continue  # a sequence crosses the cut, which only its own piece can hold: this piece and the next in one
        known = {name: value for name, value in known.items() if last.get(name, -1) >= end} | alive
        yield {name: value for name, value in found.items() if isinstance(value, np.ndarray)}
        del found, alive
        start = end


def _run(cut: _Cut, start: int, end: int, known: Tensors, level: str) -> dict[str, Any]:
    model, names = cut.piece(start, end, known)
    held = _ort.options(level)
    held.add_session_config_entry("session.model_external_initializers_file_folder_path", str(cut.folder))
    where = f"{cut.model.graph.name or 'graph'}, nodes {start} to {end - 1}"
    session = _ort.OrtSession(_ort.load(model, held, where), where, tuple(names))
    fed = {port.name: known[port.name] for port in session.held.get_inputs()}
    return dict(zip(names, session.fetch(fed, session.names), strict=True))


def _cut(path: Path) -> _Cut:
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf raises its own kinds for truncated files
        raise UsageError(f"not a readable ONNX file ({type(error).__name__})", str(path), "export it again") from None
    nodes = [node for node in model.graph.node if node.op_type != "Constant"]
    constants = {name: node for node in model.graph.node if node.op_type == "Constant" for name in node.output}
    return _Cut(model, nodes, [frozenset(_reads(node)) for node in nodes], constants, path.parent)


def _reads(node: Any) -> Iterator[str]:
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from (output.name for output in graph.output)
            for inner in graph.node:
                yield from _reads(inner)
