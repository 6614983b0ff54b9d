"""What is being done and how long it takes: a redrawn line on a terminal, plain lines elsewhere, never on stdout."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TextIO

TICK = 0.2  # seconds between redraws: often enough to look alive, 1 ms of work each
PLAIN_EVERY = 10.0  # seconds between two lines of one counted step when piped: a CI log stays readable
BAR = 12  # characters
CLEAR, BLUE, DIM, PLAIN = "\r\x1b[K", "\x1b[34m", "\x1b[2m", "\x1b[0m"


@dataclass
class _Step:
    text: str
    expected: float | None
    start: float = field(default_factory=lambda: time.monotonic())
    done: int = 0
    total: int | None = None
    first: float = 0.0  # when the first was counted: it often waits for something that the others find ready

    def elapsed(self) -> float:
        return time.monotonic() - self.start

    def share(self) -> float | None:
        """What is done, from 0 to 1; None when nobody can say."""
        if self.total:
            return min(1.0, self.done / self.total)
        return self.elapsed() / self.expected if self.expected else None

    def left(self) -> str:
        share, elapsed = self.share(), self.elapsed()
        if self.done:
            each = (time.monotonic() - self.first) / (self.done - 1) if self.done > 1 else 0.0
            if not each:
                return ""
            if self.total:
                return f"{_time(each * (self.total - self.done))} left"
            return f"{each:.2g} s each" if each > 1 else f"{1 / each:.3g} a second"
        if share is None or not self.expected:
            return ""
        return f"{_time(self.expected - elapsed)} left" if share < 1 else "longer than usual"

    def counted(self) -> str:
        return f"{self.done} of {self.total}" if self.done and self.total else str(self.done or "")

    def label(self) -> str:
        return f"{self.text}: {self.counted()}" if self.done else self.text


def _time(seconds: float) -> str:
    whole = max(0, round(seconds))
    return f"{whole} s" if whole < 100 else f"{whole // 60} min {whole % 60:02d} s"


class Progress:
    """Shows steps and counts of one piece of work on `stream`; made by `progress` and `quiet`."""

    def __init__(self, name: str, stream: TextIO | None) -> None:
        self._name, self._stream = name, stream
        self._live = stream is not None and stream.isatty()
        self._pid = os.getpid()  # a forked child inherits this object and must stay silent
        self._steps: list[_Step] = []
        self._spoke = 0.0
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None

    @contextlib.contextmanager
    def step(self, text: str, expected_seconds: float | None = None) -> Iterator[None]:
        """Say what is done while the block runs; `expected_seconds` gives a bar and the time left."""
        step = _Step(text, expected_seconds)
        self._steps.append(step)
        self._spoke = time.monotonic()
        self._draw()
        try:
            yield
        except BaseException:
            self._plain(f"{step.label()}: stopped after {step.elapsed():.1f} s")
            raise
        else:
            self._plain(f"{step.label()}: {step.elapsed():.1f} s")
        finally:
            self._steps.remove(step)
            self._draw()

    def count(self, done: int, total: int | None, text: str) -> None:
        """`done` of `total` (None: nobody knows) in the current step, or in `text` where there is none."""
        step = self._steps[-1] if self._steps else _Step(text, None)
        now = time.monotonic()
        step.first = step.first if step.done else now
        step.done, step.total = done, total
        if not self._live and now - self._spoke >= PLAIN_EVERY:
            self._spoke = now
            self._plain(", ".join(part for part in (step.label(), step.left()) if part))

    def open(self) -> None:
        if self._live:  # a daemon: it must never keep a process alive that has been told to end
            self._ticker = threading.Thread(target=self._tick, name="npu-verify progress", daemon=True)
            self._ticker.start()

    def close(self) -> None:
        self._ended.set()
        if self._ticker is not None and self._pid == os.getpid():
            self._ticker.join(timeout=5 * TICK)  # or its last line could come after the clearing
            self._write(CLEAR)

    def _tick(self) -> None:
        while not self._ended.wait(TICK):
            self._draw()

    def _draw(self) -> None:
        if not self._live:
            return
        steps = self._steps[-1:]  # a copy: the ticker's thread sees either the old step or the new one
        self._write(CLEAR + (self._line(steps[0]) if steps else ""))

    def _line(self, step: _Step) -> str:
        share, spent = step.share(), _time(step.elapsed())
        bar = ""
        if share is not None:
            full = min(BAR, int(share * BAR))
            bar = "[" + "#" * full + "." * (BAR - full) + "]"
        tail = ", ".join(part for part in (step.counted(), spent, step.left()) if part)
        head = f"{self._name}: {step.text}"
        room = self._width() - 1 - len(f" {bar} {tail}")  # a line as wide as the terminal would wrap and pile up
        if room < 8:
            return head[: max(0, self._width() - 1)]
        head = head if len(head) <= room else head[: room - 3] + "..."
        return f"{head} {BLUE}{bar}{PLAIN} {DIM}{tail}{PLAIN}" if bar else f"{head} {DIM}{tail}{PLAIN}"

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno() if self._stream else 2).columns or 80
        except (OSError, ValueError):
            return 80

    def _plain(self, text: str) -> None:
        if not self._live:
            self._write(f"{self._name}: {text}\n")

    def _write(self, text: str) -> None:
        if self._stream is None or self._pid != os.getpid():
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads any more: work goes on without it
            self._stream = None


@contextlib.contextmanager
def progress(name: str, quiet: bool = False) -> Iterator[Progress]:
    """Progress of `name` on stderr while the block runs; the redrawn line is gone afterwards, however it ends."""
    shown = Progress(name, None if quiet else sys.stderr)
    shown.open()
    try:
        yield shown
    finally:
        shown.close()


def quiet() -> Progress:
    """A progress that shows nothing."""
    return Progress("", None)
