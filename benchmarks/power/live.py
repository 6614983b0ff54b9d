"""A build that several candidates are measured on, one after the other."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verify.build.rknn import RknnBuilder
from verify.candidate import load
from verify.cases import load_calibration
from verify.core import Artifact, Build, Case, Tensors
from verify.store import file_digest


@dataclass(frozen=True)
class Shared:
    """A live build that several candidates are measured on, one after the other."""

    live: Any
    build: Build
    simulates: bool = True

    def layers(self, case: Case, into: Path) -> Any:
        return self.live.layers(case, into)

    def run(self, feeds: Tensors) -> Tensors:
        found: Tensors = self.live.run(feeds)
        return found

    def handed(self, work: Path) -> Shared:
        folder = Path(tempfile.mkdtemp(prefix="shared-", dir=work))
        artefact, log = folder / self.build.artifact.path.name, folder / "build.log"
        artefact.write_text(self.build.artifact.sha256)
        shutil.copyfile(self.live.build.log, log)
        artifact = dataclasses.replace(self.build.artifact, path=artefact)
        return dataclasses.replace(self, build=dataclasses.replace(self.build, artifact=artifact, log=log))


@contextlib.contextmanager
def opened(folder: Path, variant: str, work: Path) -> Iterator[Shared]:
    """One vendor build of a folder's model, live."""
    held = load(folder / "candidate.toml", variant)
    graph = Artifact("graph", folder / "model.onnx", file_digest(folder / "model.onnx"))
    work.mkdir(parents=True, exist_ok=True)
    with RknnBuilder().open(held, graph, load_calibration(held, graph), work) as live:
        yield Shared(live, live.build)
