"""Stored outputs given back: a file per case, found by what is fed. It may deny, it never proves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from verify import recording
from verify.cases import digest_tensors
from verify.core import Artifact, Candidate, Missing, Recording, Tensors, UsageError
from verify.protocols import Session


def store(folder: Path, feeds: Tensors, outputs: Tensors, role: str = "device") -> None:
    """Keep the outputs of one run under the digest of its feeds: DIGEST.json and DIGEST.npz in `folder`."""
    stem = digest_tensors(feeds).hex()
    folder.mkdir(parents=True, exist_ok=True)
    entry = recording.save(Recording(role, stem, outputs, evidence="replay"), folder, stem)
    (folder / f"{stem}.json").write_text(json.dumps(entry))


@dataclass(frozen=True)
class ReplaySession:
    """Finds outputs by the digest of the feeds."""

    folder: Path
    where: str

    def run(self, feeds: Tensors) -> Tensors:
        """Raises Missing for inputs that were never recorded, UsageError for a damaged record."""
        stem = digest_tensors(feeds).hex()
        path = self.folder / f"{stem}.json"
        if not path.is_file():
            raise Missing("these inputs were never recorded", f"{self.where}, {stem[:12]}", "record them on the device")
        try:
            return dict(recording.load(json.loads(path.read_text()), self.folder).outputs)
        except Exception as error:  # zipfile's, json's and numpy's own kinds
            raise UsageError(f"a damaged recording ({error})", str(path), "record it again") from None


class ReplayBackend:
    """Opens a folder that `store` filled."""

    role, evidence = "device", "replay"

    @contextmanager
    def open(self, candidate: Candidate, artifact: Artifact) -> Iterator[Session]:
        """Raises UsageError when the folder does not exist."""
        if not artifact.path.is_dir():
            raise UsageError("no such folder of recordings", str(artifact.path), "record some on the device first")
        yield ReplaySession(artifact.path, candidate.name)
