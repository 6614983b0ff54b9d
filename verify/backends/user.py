"""The user's own runner: a context manager with run(feeds) -> outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verify.core import Artifact, Candidate, NotComparable, Tensors, UsageError
from verify.protocols import Session
from verify.usercode import blaming, resolve


@dataclass(frozen=True)
class UserSession:
    """Hands copies over and takes copies back: a runner may reuse its buffers.

    `evidence` is "hardware" unless the runner says otherwise ("emulated", for one): anything else never passes.
    """

    runner: Any
    path: Path
    where: str
    evidence: str = "hardware"

    def run(self, feeds: Tensors) -> Tensors:
        """Raises NotComparable when no mapping of names to arrays comes back, UsageError when the runner raises."""
        import numpy as np

        with blaming(self.path):
            outputs = self.runner.run({name: np.array(value) for name, value in feeds.items()})
        if not isinstance(outputs, Mapping) or not all(isinstance(name, str) for name in outputs):
            do = "return a dict of arrays by the graph's output names"
            raise NotComparable(f"run returned a {type(outputs).__name__}", self.where, do)
        return {name: np.array(value) for name, value in outputs.items()}


class UserBackend:
    """Opens `variant.run`, "file.py:function"; the function takes nothing and returns the context manager."""

    role = "device"

    @contextmanager
    def open(self, candidate: Candidate, artifact: Artifact) -> Iterator[Session]:
        """Raises UsageError when the runner does not exist, cannot be opened, or has no `run`."""
        reference = candidate.variant.run
        function, path = resolve(reference, candidate.folder), candidate.folder / reference.rpartition(":")[0]
        with ExitStack() as stack:
            with blaming(path):
                manager = function()
                if not hasattr(manager, "__enter__"):
                    what = f"returned a {type(manager).__name__}, which is no context manager"
                    raise UsageError(what, reference, "decorate it with contextlib.contextmanager and yield the runner")
                runner = stack.enter_context(manager)
            if not callable(getattr(runner, "run", None)):
                raise UsageError(f"gave a {type(runner).__name__} without run", reference, "give run(feeds) -> outputs")
            evidence = str(getattr(runner, "evidence", UserSession.evidence))
            yield UserSession(runner, path.resolve(), f"{candidate.name}, {reference}", evidence)
