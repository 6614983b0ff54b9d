"""onnxruntime as a compiler: its fused graph (fp32), or its static QDQ quantisation (w8a8)."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verify.backends import _ort
from verify.backends.cpu import QUANTISING, RUN, CpuBackend, run_settings
from verify.core import Artifact, Build, Candidate, Case, Missing, Tensors, UsageError
from verify.inputs import prepare
from verify.npz import write_npz
from verify.process import child
from verify.protocols import LayerDump, LiveBuild, Session
from verify.store import file_digest
from verify.toml import nearest

#: Names of onnxruntime.quantization's enumerations: checked here, so that a misspelt one costs no build.
NAMES = {
    "activation_type": ("QInt8", "QUInt8", "QInt16", "QUInt16", "QInt4", "QUInt4"),
    "weight_type": ("QInt8", "QUInt8", "QInt16", "QUInt16", "QInt4", "QUInt4"),
    "calibrate_method": ("MinMax", "Entropy", "Percentile", "Distribution"),
}


@dataclass
class OnnxruntimeLive:
    """A finished build. It has no simulator: this machine runs the artefact itself."""

    build: Build
    session: Session
    where: str
    simulates: bool = False

    def run(self, feeds: Tensors) -> Tensors:
        return self.session.run(feeds)

    def layers(self, case: Case, into: Path) -> LayerDump:
        """Always raises Missing."""
        raise Missing("onnxruntime dumps no layers", self.where)


class OnnxruntimeBuilder:
    """fp32: the graph as onnxruntime fuses it for this machine. w8a8: static QDQ quantisation over the calibration.

    `[variant.NAME.onnxruntime]` may hold `optimization` ("all", the default, "extended", "basic", "off") and `threads`,
    for w8a8 also the options of `onnxruntime.quantization.quantize_static` by their own names. Unless they say
    otherwise, weights and activations are signed and weights go per channel, as its documentation advises for QDQ.
    """

    def environment(self, candidate: Candidate) -> Mapping[str, str]:
        return _ort.environment()

    @contextmanager
    def open(
        self, candidate: Candidate, graph: Artifact, calibration: Collection[Case], work: Path
    ) -> Iterator[LiveBuild]:
        """Raises UsageError for unknown settings or no calibration, Missing (with the log) when onnxruntime fails."""
        start, folder = time.perf_counter(), work / "onnxruntime"
        level, count = run_settings(candidate, QUANTISING if candidate.variant.precision == "w8a8" else ())
        folder.mkdir(parents=True)
        log = folder / "build.log"
        artefact = _built(candidate, graph.path, calibration, folder, log)
        environment = {**_ort.environment(), "optimization": level}
        if count:
            environment["threads"] = str(count)
        artifact = Artifact("device", artefact, file_digest(artefact))
        seconds = time.perf_counter() - start
        build = Build("onnxruntime", artifact, log=log, environment=environment, seconds=seconds)
        with CpuBackend().open(candidate, artifact) as session:
            yield OnnxruntimeLive(build, session, f"{candidate.name}, build")


def _built(candidate: Candidate, graph: Path, calibration: Collection[Case], folder: Path, log: Path) -> Path:
    precision = candidate.variant.precision
    request: dict[str, Any] = {"graph": str(graph.absolute())}
    if precision == "fp32":
        level, count = run_settings(candidate)
        artefact = folder / "fused.onnx"
        request |= {"do": "fuse", "level": level, "threads": count}
    elif precision == "w8a8":
        if not calibration:
            do = 'write calibration = "build.py:calibration" or the like in the variant'
            raise UsageError("w8a8 without calibration", candidate.name, do)
        artefact = folder / "quantised.onnx"
        request |= {"do": "quantise", "options": _options(candidate)}
        request["calibration"] = [_stored(candidate, case, folder / f"{i}.npz") for i, case in enumerate(calibration)]
    else:
        raise UsageError(f"onnxruntime does not build {precision}", candidate.name, "use fp32 or w8a8 on the cpu")
    request["result"] = str(artefact.absolute())
    program = [sys.executable, "-u", str(Path(__file__).with_name("onnxruntime_worker.py").absolute())]
    log.touch()
    with child(program, folder, log, "onnxruntime's build") as opened:
        header, _ = opened.ask(request, limit=candidate.time_limit)
    if "refused" in header:
        raise Missing(f"onnxruntime failed: {header['refused']}", candidate.name, "read the log", log=str(log))
    if not artefact.is_file():
        raise Missing("onnxruntime wrote no model", candidate.name, "read the log", log=str(log))
    return artefact


def _stored(candidate: Candidate, case: Case, path: Path) -> str:
    write_npz(path, prepare(candidate, case.inputs))
    return str(path.absolute())


def _options(candidate: Candidate) -> dict[str, Any]:
    options: dict[str, Any] = {"per_channel": True, "activation_type": "QInt8", "weight_type": "QInt8"}
    where = f"[variant.{candidate.variant.name}.onnxruntime]"
    for key, value in candidate.variant.settings.get("onnxruntime", {}).items():
        if key in RUN:
            continue
        if key in NAMES and value not in NAMES[key]:
            raise UsageError(f"unknown {key} {value!r}", where, nearest(str(value), NAMES[key]))
        options[key] = value
    return options
