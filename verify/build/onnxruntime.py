"""onnxruntime as a compiler: its fused graph (fp32), or its static QDQ quantisation (w8a8)."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from verify.backends import _ort
from verify.backends.cpu import QUANTISING, CpuBackend, run_settings
from verify.core import Artifact, Build, Candidate, Case, Missing, Tensors, UsageError
from verify.protocols import LayerDump, LiveBuild, Session
from verify.store import file_digest


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

    `[variant.NAME.onnxruntime]` may hold `optimization`, `threads`, and for w8a8 the options of
    `onnxruntime.quantization.quantize_static` by their own names.
    """

    def environment(self, candidate: Candidate) -> Mapping[str, str]:
        return _ort.environment()

    @contextmanager
    def open(
        self, candidate: Candidate, graph: Artifact, calibration: Collection[Case], work: Path
    ) -> Iterator[LiveBuild]:
        """Raises UsageError for unknown settings, missing calibration or a graph that cannot be loaded, Missing when
        onnxruntime itself fails."""
        precision, where = candidate.variant.precision, f"{candidate.name}, build"
        level, count = run_settings(candidate, QUANTISING if precision == "w8a8" else ())
        folder, start = work / "onnxruntime", time.perf_counter()
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "build.log"
        if precision == "w8a8":
            if not calibration:
                do = 'write calibration = "build.py:calibration" or the like in the variant'
                raise UsageError("w8a8 without calibration", candidate.name, do)
            from verify.build._quantise import quantise

            artefact = quantise(candidate, graph.path, calibration, folder, log)
        elif precision == "fp32":
            artefact = folder / "fused.onnx"
            held = _ort.options(level, count)
            held.optimized_model_filepath = str(artefact)
            _ort.load(graph.path, held, where)
            log.write_text(f"onnxruntime, optimization {level}: {graph.path.name} -> {artefact.name}\n")
        else:
            raise UsageError(f"onnxruntime does not build {precision}", candidate.name, "use fp32 or w8a8 on the cpu")
        if not artefact.is_file():
            raise Missing("onnxruntime wrote no model", where, "read the log", log=str(log))
        seconds = time.perf_counter() - start
        environment = {**_ort.environment(), "optimization": level}
        if count:
            environment["threads"] = str(count)
        artifact = Artifact("device", artefact, file_digest(artefact))
        build = Build("onnxruntime", artifact, log=log, environment=environment, seconds=seconds)
        with CpuBackend().open(candidate, artifact) as session:
            yield OnnxruntimeLive(build, session, where)
