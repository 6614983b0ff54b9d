"""The NPU of a board. No board can be reached yet; only a runner of the user's own stands in for one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from verify.core import Artifact, Candidate, Missing
from verify.protocols import Session

OWN = (
    "this version reaches no board by itself: run the {target} through a runner of your own, as a variant with "
    'run = "runner.py:open" (docs/candidate.md), or keep this variant off'
)


class NpuBackend:
    """Raises Missing: without hardware the device's leg is not proven."""

    role = "device"

    @contextmanager
    def open(self, candidate: Candidate, artifact: Artifact) -> Iterator[Session]:
        """Always raises Missing("no board")."""
        raise Missing("no board", candidate.name, OWN.format(target=candidate.target))
        yield
