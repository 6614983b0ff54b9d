"""The only place that spawns: what is started here ends with the process that started it, however that one ends."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from verify.core import Missing

#: Seconds for a child to end by itself after it was asked to; releasing the toolkit took 0.01 to 0.2 s.
GOODBYE = 5.0
HEADER = struct.Struct("<II")  # bytes of JSON, number of blobs; each blob follows its own "<Q" length


def _warden(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """A warden in its own session, so that the terminal's signals reach only this process."""
    script = str(Path(__file__).with_name("warden.py").absolute())
    argv = [sys.executable, "-I", "-S", script, arguments[0], str(os.getpid()), *arguments[1:]]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True, **options)


@contextlib.contextmanager
def sweeping(folder: Path) -> Iterator[None]:
    """Has `folder` removed if this process dies by kill -9 inside the block; the watcher is gone at a normal exit."""
    watcher = _warden("sweep", str(folder.absolute()), cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert watcher.stdin is not None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            watcher.stdin.write(b".")
            watcher.stdin.close()
        watcher.wait()


class Child:
    """A program that answers requests over pipes, one at a time; `log` holds what it printed, at C level too.

    A request and its answer are a JSON-like header and blobs of bytes. Any failure ends the child.
    """

    def __init__(self, warden: subprocess.Popen[bytes], requests: int, answers: int, log: Path, title: str) -> None:
        self._warden, self._requests, self._answers = warden, requests, answers
        self._title, self._dead = title, ""
        self.log = log

    def ask(self, request: Mapping[str, Any], blobs: Sequence[bytes] = (), *, limit: float) -> tuple[Any, list[bytes]]:
        """The answer's header and blobs; raises Missing (with the log) for death, silence and garbage, told apart.

        `limit` is in seconds, for each step that the child announces with a header {"step": name}.
        """
        if self._dead:
            raise Missing(f"{self._title} is gone: {self._dead}", log=str(self.log))
        step, end = str(request.get("do", "")), time.monotonic() + limit
        try:
            self._send(pack(request, blobs), step, end, limit)
            while True:
                header, found = self._receive(step, end, limit)
                if "step" not in header:
                    return header, found
                step, end = header["step"], time.monotonic() + limit
        except BaseException as error:  # a half-read answer would be taken for the next one's
            self._dead = self._dead or (error.what if isinstance(error, Missing) else f"interrupted in {step}")
            self._end()
            raise

    def _send(self, data: bytes, step: str, end: float, limit: float) -> None:
        view = memoryview(data)
        while view:
            self._wait(self._requests, select.POLLOUT, step, end, limit)
            try:
                view = view[os.write(self._requests, view) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise self._death(step) from None

    def _receive(self, step: str, end: float, limit: float) -> tuple[dict[str, Any], list[bytes]]:
        size, count = HEADER.unpack(self._read(HEADER.size, step, end, limit))
        header = json.loads(self._read(size, step, end, limit))
        blobs = []
        for _ in range(count):
            (length,) = struct.unpack("<Q", self._read(8, step, end, limit))
            blobs.append(bytes(self._read(length, step, end, limit)))
        return header, blobs

    def _read(self, size: int, step: str, end: float, limit: float) -> bytearray:
        data = bytearray()
        while len(data) < size:
            self._wait(self._answers, select.POLLIN, step, end, limit)
            try:
                piece = os.read(self._answers, min(size - len(data), 1 << 20))
            except BlockingIOError:
                continue
            if not piece:
                raise self._death(step)
            data += piece
        return data

    def _wait(self, fd: int, event: int, step: str, end: float, limit: float) -> None:
        """Until `fd` is ready; raises Missing at the time limit, or if the child died with nothing left to read."""
        status = self._warden.stdout
        assert status is not None
        poll = select.poll()
        poll.register(fd, event)
        poll.register(status, select.POLLIN)
        while (left := end - time.monotonic()) > 0:
            ready = dict(poll.poll(min(left, 60.0) * 1000))  # a limit may exceed what poll can count
            if fd in ready:  # first, so that an answer given just before death counts
                return
            if ready:
                raise self._death(step)
        what = f"{self._title} did not return within {limit:g} s in {step}"
        raise Missing(what, log=str(self.log))

    def _death(self, step: str) -> Missing:
        status = self._status(GOODBYE)  # its pipes close a moment before it can be waited for
        self._end()
        if status is None:
            what = f"{self._title} went away in {step}"
        elif os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            hint = ", as the kernel does when memory runs out" if number == signal.SIGKILL else ""
            what = f"{self._title} died of signal {number} ({_signal_name(number)}) in {step}{hint}"
        else:
            what = f"{self._title} ended without an answer (exit code {os.WEXITSTATUS(status)}) in {step}"
        return Missing(what, log=str(self.log))

    def _status(self, patience: float) -> int | None:
        """The child's wait status once the warden says it; None when it was killed or lives on."""
        stream = self._warden.stdout
        if stream is None or stream.closed or not select.select([stream], [], [], patience)[0]:
            return None
        line = stream.readline()
        return int(line) if line else None

    def _end(self) -> None:
        """Kills whatever is left of the child and of what it started."""
        assert self._warden.stdin is not None and self._warden.stdout is not None
        with contextlib.suppress(OSError):
            self._warden.stdin.close()
        try:
            self._warden.wait(GOODBYE)
        except subprocess.TimeoutExpired:  # something cannot be killed; the kernel ends the child with its warden
            self._warden.kill()
            self._warden.wait()
        self._warden.stdout.close()

    def close(self) -> None:
        """Asks the child to end by itself, with a header {"do": "close"}, then ends it."""
        if not self._dead:
            with contextlib.suppress(Missing):
                self.ask({"do": "close"}, limit=GOODBYE)
        self.kill()

    def kill(self) -> None:
        """Ends the child at once."""
        self._dead = self._dead or "it was closed"
        self._end()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "real-time"


def pack(header: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    """One frame: sizes, the header as JSON, then each blob behind its length."""
    text = json.dumps(header).encode()
    return b"".join([HEADER.pack(len(text), len(blobs)), text, *(struct.pack("<Q", len(b)) + b for b in blobs)])


@contextlib.contextmanager
def child(argv: Sequence[str], folder: Path, log: Path, title: str) -> Iterator[Child]:
    """Runs `argv` in `folder`, followed by the numbers of the descriptors it reads requests from and answers on.

    It has a session and a TMPDIR of its own inside `folder`; both end with the block. `argv[0]` is an absolute path.
    """
    temporary = Path(tempfile.mkdtemp(prefix="tmp-", dir=folder))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        for_child, requests = os.pipe()
        answers, from_child = os.pipe()
        stack.callback(os.close, requests)
        stack.callback(os.close, answers)
        os.set_blocking(requests, False)
        os.set_blocking(answers, False)
        try:
            with log.open("ab") as stream:
                process = _warden(
                    "guard",
                    *argv,
                    str(for_child),
                    str(from_child),
                    cwd=folder,
                    stdout=subprocess.PIPE,
                    stderr=stream,
                    pass_fds=(for_child, from_child),
                    env={**os.environ, "TMPDIR": str(temporary)},
                )
        finally:
            os.close(for_child)
            os.close(from_child)
        opened = Child(process, requests, answers, log, title)
        stack.callback(opened.kill)
        yield opened
        opened.close()


def output(argv: Sequence[str], limit: float = 60.0) -> str:
    """What a short program prints; raises Missing when it fails or needs more than `limit` seconds."""
    try:
        held = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=limit, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{argv[0]} could not be run: {error}") from None
    if held.returncode:
        last = (held.stderr.strip().splitlines() or ["no message"])[-1]
        raise Missing(f"{argv[0]} failed with exit code {held.returncode}: {last}")
    return held.stdout
