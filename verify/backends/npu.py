"""The NPU of a board. No board can be reached yet, and nothing may stand in for one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from verify.core import Artifact, Candidate, Missing
from verify.protocols import Session


class NpuBackend:
    """Raises Missing: without hardware the device's leg is not proven."""

    role = "device"

    @contextmanager
    def open(self, candidate: Candidate, artifact: Artifact) -> Iterator[Session]:
        """Always raises Missing("no board")."""
        raise Missing("no board", candidate.name, f"connect a board with the {candidate.target} and run the gate again")
        yield
