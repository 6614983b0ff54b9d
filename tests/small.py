"""Small ONNX files and candidates in a temporary folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from verify.candidate import load
from verify.core import Artifact, Candidate
from verify.store import file_digest

FLOAT, INT64, STRING, DOUBLE = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING, TensorProto.DOUBLE
Value = tuple[str, int, Any]


def normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def save(
    path: Path,
    nodes: Sequence[Any],
    inputs: Sequence[Value] = (("x", FLOAT, [1, 4]),),
    outputs: Sequence[Value] = (("y", FLOAT, None),),
    weights: Mapping[str, Any] | None = None,
    opset: int = 17,
    **more: Any,
) -> Path:
    graph = helper.make_graph(
        list(nodes),
        "model",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()],
    )
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=domains, ir_version=8), str(path), **more)
    return path


def linear(path: Path, batch: Any = 1, **more: Any) -> Path:
    """y = relu(x w + b); the sum before it is called h."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="matmul"),
        helper.make_node("Add", ["m", "b"], ["h"], name="add"),
        helper.make_node("Relu", ["h"], ["y"], name="relu"),
    ]
    weights = {"w": normal(0, 4, 3), "b": normal(1, 3)}
    return save(path, nodes, [("x", FLOAT, [batch, 4])], [("y", FLOAT, [batch, 3])], weights, **more)


def artifact(path: Path) -> Artifact:
    return Artifact("graph", path, file_digest(path))


#: A candidate over `linear`, whose cases and source are Python.
BUILD = """
import numpy as np
from verify.core import Case

def cases():
    return [Case(f"c{i}", {"x": np.random.default_rng(i).normal(size=(1, 4)).astype(np.float32)}) for i in range(3)]

def source():
    return "m.onnx"
"""
TOML = """
model = "m"
target = "cpu"
source = "build.py:source"
graph = "m.onnx"
cases = "build.py:cases"
[variant.fused]
"""


def candidate(folder: Path, toml: str = TOML, build: str = BUILD, variant: str | None = None) -> Candidate:
    """Write candidate.toml, build.py and, unless it is there, m.onnx; load one variant."""
    (folder / "candidate.toml").write_text(dedent(toml))
    (folder / "build.py").write_text(dedent(build))
    if not (folder / "m.onnx").exists():
        linear(folder / "m.onnx")
    return load(folder / "candidate.toml", variant)
