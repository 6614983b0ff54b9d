"""Cases from ONNX test data: folders of input_N.pb and output_N.pb."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verify.core import Array, Case, UsageError
from verify.graphs.signature import Port, Signature


def natural(path: Path) -> list[Any]:
    """A sort key by which a file 9 comes before a file 10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(path))]


def data_set(name: str, path: Path, graph: Signature | None) -> Case:
    """The case of one folder, in the graph's order; raises UsageError for what is no tensor of the graph."""
    inputs = _protos(path, "input", graph.inputs if graph else None)
    outputs = _protos(path, "output", graph.outputs if graph else None)
    return Case(name, inputs, outputs or None)


def _protos(folder: Path, kind: str, ports: Sequence[Port] | None) -> dict[str, Array]:
    import onnx
    from onnx import numpy_helper

    found = {}
    for path in sorted(folder.glob(f"{kind}_*.pb"), key=natural):
        index = path.stem.rpartition("_")[2]
        try:
            proto = onnx.load_tensor(str(path))
            value = numpy_helper.to_array(proto)
        except Exception as error:  # protobuf's own kinds; sequences and optionals do not parse as tensors either
            raise UsageError(f"not a readable tensor ({type(error).__name__})", str(path), "write it again") from None
        name = ports[int(index)].name if ports and index.isdigit() and int(index) < len(ports) else proto.name
        if not name or (ports and name not in [port.name for port in ports]):
            count = len(ports) if ports else "an unknown number of"
            raise UsageError(f"there is no {kind} {index}", str(path), f"the graph has {count} {kind}s")
        found[name] = value
    return found
