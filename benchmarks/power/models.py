"""The models that faults are put into: fixtures, written once as a graph with cases and calibration beside it.

Source and graph are the same file here: the question is what the compiled build does, and torch would be loaded anew
for each of hundreds of trials.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from verify.backends.graph import GraphBackend
from verify.candidate import load
from verify.core import Artifact, Candidate, Tensors
from verify.npz import write_npz

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CASES, CALIBRATION = 2, 8  # two cases are what the matching of layers by value needs; eight cost little and calibrate
TOML = """model = "{model}"
target = "rk3588"
source = "model.onnx"
graph = "model.onnx"
cases = "cases/*.npz"
time_limit = 120
[variant.fp16]
precision = "fp16"
[variant.int8]
precision = "w8a8"
calibration = "calib/*.npz"
[variant.cpu]
target = "cpu"
precision = "fp32"
"""
#: name: (fixture, encoder layers or 0 for the fixture as it is, samples in a batch)
MODELS: Mapping[str, tuple[str, int, int]] = {
    "encoder1": ("encoder12", 1, 1),
    "encoder2b": ("encoder12", 2, 2),
    "encoder4": ("encoder12", 4, 1),
    "encoder12": ("encoder12", 12, 1),
    "outliers4": ("encoder12_outliers", 4, 1),
    "encoder12_outliers": ("encoder12_outliers", 12, 1),
    "cnn_detect": ("cnn_detect", 0, 1),
    "ppocr_rec": ("ppocr_rec", 0, 1),
    "ppocr_det": ("ppocr_det", 0, 1),
    "minilm": ("minilm", 0, 1),
}
#: Where a fixture ends for this benchmark. The detector's last Concat gives boxes and scores one int8 scale, which by
#: intention destroys the scores: no honest build to hold a fault against.
CUT: Mapping[str, tuple[str, ...]] = {"cnn_detect": ("/Relu_output_0", "/classes/Conv_output_0")}


@dataclass(frozen=True)
class Subject:
    """One model in a folder of its own: model.onnx, cases, calib, candidate.toml."""

    name: str
    folder: Path

    @property
    def graph(self) -> Path:
        return self.folder / "model.onnx"

    def candidate(self, variant: str, folder: Path | None = None) -> Candidate:
        return load((folder or self.folder) / "candidate.toml", variant)

    @functools.cached_property
    def inner(self) -> Tensors:
        """Every tensor of the graph in its first case, in float32: what saturation and offsets are measured against."""
        return run(self.graph, self.candidate("fp16"), self.cases()[0])[1]

    def cases(self) -> list[Tensors]:
        return [dict(np.load(path)) for path in sorted((self.folder / "cases").glob("*.npz"))]


def run(graph: Path, candidate: Candidate, feeds: Tensors) -> tuple[Tensors, dict[str, Any]]:
    """(outputs, every inner tensor and output) of one case, onnxruntime float32 without optimisation."""
    with GraphBackend(instrument=True).open(candidate, Artifact("graph", graph, "")) as session:
        outputs, inner = session.run_all(feeds)
    return outputs, {**feeds, **inner, **outputs}


def fixture(name: str, layers: int = 0) -> Any:
    """A fixture's module, with so many encoder layers where it is an encoder."""
    path = FIXTURES / name / "build.py"
    spec = importlib.util.spec_from_file_location(f"power_{name}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    if layers:
        module.LAYERS = layers
    return module


def subject(name: str, root: Path) -> Subject:
    """The subject of this name under `root`, written if it is not there."""
    made = Subject(name, root / name)
    if (made.folder / "candidate.toml").is_file():
        return made
    import onnx.utils

    source, layers, batch = MODELS[name]
    module = fixture(source, layers)
    for kind, count in (("cases", CASES), ("calib", CALIBRATION)):
        (made.folder / kind).mkdir(parents=True, exist_ok=True)
        drawn = list(module.cases() if kind == "cases" else module.calibration())
        while len(drawn) < count * batch:
            drawn = drawn * 2
        for i in range(count):
            some = [case.inputs for case in drawn[i * batch : (i + 1) * batch]]
            fed = {k: np.concatenate([s[k] for s in some]) if batch > 1 else some[0][k] for k in some[0]}
            write_npz(made.folder / kind / f"c{i}.npz", fed)
    first = dict(np.load(made.folder / "cases" / "c0.npz"))
    if batch > 1:  # the exporter writes the shape of the first case
        case = dataclasses.replace(module.cases()[0], inputs=first)
        module.cases = lambda: [case]
    module.export(made.graph)
    if source in CUT:
        onnx.utils.extract_model(str(made.graph), str(made.graph), list(first), list(CUT[source]))
    named(made.graph)
    (made.folder / "candidate.toml").write_text(TOML.format(model=name))
    return made


def named(path: Path) -> None:
    """Give every node a name, so that faults and verdicts speak of the same node."""
    import onnx

    model = onnx.load(str(path))
    for index, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{index}"
    onnx.save(model, str(path))
