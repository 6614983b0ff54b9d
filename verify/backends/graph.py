"""The exported graph as it is: onnxruntime on the CPU with every optimisation off."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verify.backends import _ort
from verify.core import Array, Artifact, Candidate, Tensors, UsageError
from verify.graphs.signature import signature


@dataclass(frozen=True)
class GraphSession(_ort.OrtSession):
    """Like every session, and `run_all` for an instrumented one."""

    inner: tuple[str, ...] = field(default=())

    def run_all(self, feeds: Tensors) -> tuple[Tensors, dict[str, Array]]:
        """(outputs, inner tensors by name); sequences and optionals are left out of both."""
        values = self.fetch(feeds, self.names + self.inner)
        count = len(self.names)
        return _ort.tensors(self.names, values[:count]), _ort.tensors(self.inner, values[count:])


@dataclass(frozen=True)
class GraphBackend:
    """Opens an ONNX file; `instrument` makes every inner tensor of the top-level graph an output as well."""

    instrument: bool = False
    role: str = "graph"

    @contextmanager
    def open(self, candidate: Candidate, artifact: Artifact) -> Iterator[GraphSession]:
        """Raises UsageError when the file cannot be loaded."""
        where = f"{candidate.name}, graph {artifact.path.name}"
        if not self.instrument:
            opened = _ort.session(artifact.path, _ort.options("off"), where)
            yield GraphSession(opened.held, where, opened.names)
            return
        with tempfile.TemporaryDirectory(prefix="npu-verify-") as folder:
            names, inner, model, held = _instrumented(artifact.path, Path(folder))
            yield GraphSession(_ort.load(model, held, where), where, names, inner)


def _instrumented(path: Path, folder: Path) -> tuple[tuple[str, ...], tuple[str, ...], Path | bytes, Any]:
    """Names of outputs and inner tensors, the model with all of them as outputs, and its session options.

    Protobuf merges messages that follow each other, so the outputs are appended to the file as it is: no weights are
    read or serialised, whatever their size. Their types are left to onnxruntime, which infers them.
    """
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf raises its own kinds for truncated files
        raise UsageError(f"not a readable ONNX file ({type(error).__name__})", str(path), "export it again") from None
    outputs = tuple(output.name for output in model.graph.output)
    taken = set(outputs)
    inner = []
    for node in model.graph.node:
        if node.op_type == "Constant":
            continue
        for name in node.output:
            if name and name not in taken:
                inner.append(name)
                taken.add(name)
    del model
    extra = onnx.ModelProto(graph=onnx.GraphProto(output=[onnx.ValueInfoProto(name=name) for name in inner]))
    held = _ort.options("off")
    if signature(path).external:  # the weights lie elsewhere, so the model itself is small
        held.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
        return outputs, tuple(inner), path.read_bytes() + extra.SerializeToString(), held
    copy = folder / "instrumented.onnx"
    shutil.copyfile(path, copy)
    with copy.open("ab") as stream:
        stream.write(extra.SerializeToString())
    return outputs, tuple(inner), copy, held
