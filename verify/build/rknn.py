"""Builds for Rockchip NPUs with the vendor's rknn-toolkit2, in a child process that may crash or hang."""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from verify.build import rknn_log
from verify.build.rknn_io import Signature, feed, outputs, signature
from verify.core import Array, Artifact, Build, Candidate, Case, Missing, Tensors, UsageError
from verify.process import Child, child, output
from verify.store import file_digest, packages

INSTALL = (
    "install rknn-toolkit2 2.5.0 with what it needs (the extra [host] of npu-verify, setuptools below 82), or name the "
    "interpreter that has it: [toolkit] python = ... in candidate.toml; npu-verify doctor tells what is wrong"
)
CRASHED = "look at the log; a smaller model or another toolkit version ([toolkit] python) shows which operator it is"
#: Distributions whose versions can change what the toolkit computes.
NAMED = ("rknn-toolkit2", "onnx", "onnxruntime", "numpy", "torch", "protobuf")


@dataclass(frozen=True)
class Dumps(Mapping[str, Array]):
    """Arrays by layer name, each read from its .npy file when it is asked for."""

    files: Mapping[str, Path]

    def __getitem__(self, name: str) -> Array:
        found: Array = np.load(self.files[name], allow_pickle=False)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


@dataclass(frozen=True)
class RknnDump:
    """Per-layer dumps of one case: `golden` (float32 run of the optimised graph) and `simulated`, by layer name.

    `vendor` maps a layer to the toolkit's (cosine, Euclid) accumulated and (cosine, Euclid) of the layer alone.
    """

    golden: Tensors
    simulated: Tensors
    order: tuple[str, ...]
    vendor: Mapping[str, rknn_log.Distances]


@dataclass(frozen=True)
class RknnLive:
    """A build that is still in its child process: it simulates and dumps layers until the context is left."""

    build: Build
    _toolkit: Toolkit
    _signature: Signature
    simulates: bool = True

    def run(self, feeds: Tensors, /) -> Tensors:
        """Every output in the graph's order; raises UsageError, NotComparable (outputs dropped) and Missing."""
        blobs = [_npy(value) for value in feed(self._signature, feeds)]
        _, found = self._toolkit.ask({"do": "run"}, blobs)
        return outputs(self._signature, [np.load(io.BytesIO(blob), allow_pickle=False) for blob in found])

    def layers(self, case: Case, into: Path, /) -> RknnDump:
        """Dump every compiled layer of one case into the folder `into`; only the .npy files stay there."""
        into.mkdir(parents=True, exist_ok=True)
        files = []
        for index, value in enumerate(feed(self._signature, case.inputs)):
            files.append(str((into / f"input{index}.npy").absolute()))
            np.save(files[-1], value, allow_pickle=False)
        self._toolkit.ask({"do": "layers", "inputs": files, "into": str(into.absolute())})
        for text in (*into.glob("golden/*.txt"), *into.glob("simulator/*.txt")):
            text.unlink()  # the same numbers again: most of the 185 MB that a case of MiniLM takes
        try:
            stems = rknn_log.file_names((into / "map_name_to_file.txt").read_text())
            analysis = (into / "error_analysis.txt").read_text()
        except OSError as error:
            raise self._toolkit.missing(f"accuracy_analysis left no {Path(str(error.filename)).name}") from None
        golden, simulated = (_dumped(into / side / "npy", stems) for side in ("golden", "simulator"))
        if not simulated:
            raise self._toolkit.missing("accuracy_analysis dumped no layer")
        vendor = rknn_log.error_analysis(analysis, stems)
        return RknnDump(Dumps(golden), Dumps(simulated), tuple(stems), vendor)


@dataclass(frozen=True)
class Toolkit:
    """The child and how its failures are told."""

    child: Child
    candidate: Candidate

    def ask(self, request: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> tuple[Any, list[bytes]]:
        """An answer within the candidate's time limit for one step; raises Missing, or UsageError for settings."""
        try:
            header, found = self.child.ask(request, blobs, limit=self.candidate.time_limit)
        except Missing as error:
            late = "did not return within" in error.what
            do = "raise time_limit in candidate.toml if the model is large; else " + CRASHED if late else CRASHED
            raise self.missing(error.what, do) from None
        if "refused" in header:
            if header["kind"] == "usage":
                where = f"{self.candidate.name}, {header.get('where') or 'rknn settings'}"
                raise UsageError(self._with_reason(header["refused"]), where, header["help"])
            do = INSTALL if header["kind"] == "install" else _advice(header["refused"])
            raise self.missing(header["refused"], do)
        return header, found

    def missing(self, what: str, do: str = CRASHED) -> Missing:
        return Missing(self._with_reason(what), self.candidate.name, do, log=str(self.child.log))

    def _with_reason(self, what: str) -> str:
        said = "" if " raised " in what else rknn_log.last_error(self.child.log)
        return f"{what}; the last error in its log: {said}" if said else what


def _advice(refused: str) -> str:
    """What to do about a build that the toolkit refused; most models meet its limit on opsets first."""
    found = re.search(r"opset \d+, need <= (\d+)", refused)
    return f"export the graph again with opset_version={found[1]} or lower" if found else CRASHED


class RknnBuilder:
    """Compiles with rknn-toolkit2: float16 with build(), integers through hybrid_quantization_step1 and 2.

    The latter equals build() bit for bit and is the only call that tells each activation's scale (measured, 2.5.0).
    """

    @contextlib.contextmanager
    def open(
        self, candidate: Candidate, graph: Artifact, calibration: Collection[Case], work: Path, /
    ) -> Iterator[RknnLive]:
        """Build, export and start the simulator; raises Missing if the toolkit is absent, refuses, dies or hangs."""
        if not sys.platform.startswith("linux"):
            raise Missing("rknn-toolkit2 runs on Linux only", candidate.name, "run this on Linux x86-64")
        declared = signature(graph.path, candidate)
        folder = Path(tempfile.mkdtemp(prefix="rknn-", dir=work)).absolute()
        request = _request(candidate, graph, declared, calibration, folder)
        log = folder / "toolkit.log"
        # -u unbuffers C's standard streams as well: what the toolkit printed must not die with it
        program = [*_interpreter(candidate), "-u", str(Path(__file__).with_name("rknn_worker.py").absolute())]
        with child(program, folder, log, "the toolkit") as opened:
            toolkit = Toolkit(opened, candidate)
            header, _ = toolkit.ask(request)
            text, exported = log.read_text(errors="replace"), Path(request["export"])
            if not exported.is_file():
                raise toolkit.missing("export_rknn returned 0 but wrote no file")
            build = Build(
                "rknn",
                Artifact("device", exported, file_digest(exported)),
                rknn_log.layer_table(text),
                rknn_log.scales(header["scales"]),
                log,
                {**self.environment(candidate), "librknnc": rknn_log.compiler(text)},
                header["seconds"],
            )
            yield RknnLive(build, toolkit, declared)

    def environment(self, candidate: Candidate, /) -> Mapping[str, str]:
        """Versions of the toolkit and what it computes with, read without importing it; absent ones are left out."""
        return _versions(tuple(_interpreter(candidate)))


def _interpreter(candidate: Candidate) -> list[str]:
    """This interpreter with this process's own import path, or the one declared, which must not inherit that path."""
    if not candidate.python:
        return [sys.executable]
    path = os.path.join(candidate.folder, os.path.expanduser(candidate.python))  # not resolved: a venv's is a link
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        do = "name the interpreter of the environment that holds rknn-toolkit2, for example .venv/bin/python"
        raise UsageError("toolkit.python is not an executable file", path, do)
    return [os.path.abspath(path), "-E"]


#: Run here, or by another interpreter: prints the versions of NAMED that are installed.
VERSIONS = f"""
import json, platform
from importlib.metadata import distributions
held = {{d.metadata["Name"]: d.version for d in distributions()}}
print(json.dumps({{"python": platform.python_version(), **{{n: held[n] for n in {NAMED!r} if n in held}}}}))
"""


@lru_cache(maxsize=8)
def _versions(interpreter: tuple[str, ...]) -> Mapping[str, str]:
    if len(interpreter) > 1:
        try:
            found: dict[str, str] = json.loads(output([*interpreter, "-c", VERSIONS]))
        except (Missing, ValueError) as error:  # the build itself will say what is wrong with it
            return {"python": f"unknown: {error}"}
        return found
    held = packages()
    return {"python": platform.python_version(), **{name: held[name] for name in NAMED if name in held}}


def _request(
    candidate: Candidate, graph: Artifact, declared: Signature, calibration: Collection[Case], folder: Path
) -> dict[str, Any]:
    """The worker's build request; writes the calibration cases, one line of dataset.txt each."""
    settings, precision = dict(candidate.variant.settings.get("rknn", {})), candidate.variant.precision
    dtype = {"float_dtype": "float16"} if precision == "fp16" else {"quantized_dtype": precision}
    stated = {"target_platform": candidate.target, **dtype}
    for name, value in stated.items():
        if settings.get(name, value) != value:
            what = f"{name} = {settings[name]!r}, but the variant's target and precision make it {value!r}"
            raise UsageError(what, f"{candidate.name}, rknn settings", f"remove {name}")
    config, dataset = {**settings, **stated}, ""
    if precision != "fp16":
        if not calibration:
            do = 'state calibration = "file.py:function" or "folder/*.npz"'
            raise UsageError(f"precision {precision} needs calibration cases", candidate.name, do)
        rows = []
        for number, case in enumerate(calibration):
            row = []
            for index, array in enumerate(feed(declared, case.inputs)):
                # relative to the child's folder: the toolkit splits each line at spaces and knows no quoting
                row.append(f"calibration-{number}-{index}.npy")
                np.save(folder / row[-1], array, allow_pickle=False)
            rows.append(" ".join(row))
        dataset = "dataset.txt"
        (folder / dataset).write_text("\n".join(rows) + "\n")
    return {
        "do": "build",
        "config": config,
        "model": str(graph.path.absolute()),
        "load": declared.fixed,
        "keep": candidate.variant.keep_float,
        "dataset": dataset,
        "export": str(folder / f"{candidate.model}.{candidate.variant.name}.rknn".replace("/", "_")),
    }


def _dumped(folder: Path, stems: Mapping[str, str]) -> dict[str, Path]:
    files = {name: folder / f"{stem}.npy" for name, stem in stems.items()}
    return {name: path for name, path in files.items() if path.exists()}  # what is fused away has no dump


def _npy(value: Array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, value, allow_pickle=False)
    return stream.getvalue()
