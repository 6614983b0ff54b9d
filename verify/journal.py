"""The structured log of a run: one JSON line per step, kept as `log.jsonl` in the run folder."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any


@dataclass
class Journal:
    """Shows every step through `shown` (see verify.reports.progress) and remembers it with its time and outcome."""

    shown: Any
    lines: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def step(self, text: str, expected_seconds: float | None = None) -> Iterator[None]:
        """One step; what is raised within it is noted and goes on."""
        began, start, error = datetime.now(timezone.utc), time.perf_counter(), ""
        try:
            with self.shown.step(text, expected_seconds):
                yield
        except BaseException as raised:
            error = f"{type(raised).__name__}: {raised}"
            raise
        finally:
            seconds = round(time.perf_counter() - start, 3)
            line = {"at": began.isoformat(timespec="milliseconds"), "step": text, "seconds": seconds}
            self.lines.append(json.dumps({**line, "error": error} if error else line))

    def count(self, done: int, total: int | None, text: str) -> None:
        """Passed on to be shown; not kept."""
        self.shown.count(done, total, text)

    def text(self) -> str:
        return "".join(line + "\n" for line in self.lines)
