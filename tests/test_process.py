"""What verify.process starts ends with it: asked nicely, killed, interrupted, crashed or hanging."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import verify
from verify.core import Missing
from verify.process import Child, child, output, sweeping

#: A child that does what it is told; its grandchildren carry the same mark in their arguments.
PROGRAM = """
import ctypes, json, os, signal, struct, subprocess, sys, time
mark, source, sink = sys.argv[1], os.fdopen(int(sys.argv[2]), "rb"), os.fdopen(int(sys.argv[3]), "wb")
def send(header, blobs=()):
    text = json.dumps(header).encode()
    framed = b"".join(struct.pack("<Q", len(blob)) + blob for blob in blobs)
    sink.write(struct.pack("<II", len(text), len(blobs)) + text + framed)
    sink.flush()
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)", mark]
while True:
    size, count = struct.unpack("<II", source.read(8))
    request = json.loads(source.read(size))
    blobs = [source.read(*struct.unpack("<Q", source.read(8))) for _ in range(count)]
    do = request["do"]
    if do == "grandchildren":
        subprocess.Popen(SLEEP)
        subprocess.Popen(SLEEP, start_new_session=True)
        if os.fork() == 0:  # holds the pipes open, as a fork of the toolkit's own would
            time.sleep(600)
    elif do == "die":
        ctypes.CDLL(None).puts(b"said in C")
        ctypes.CDLL(None).fflush(None)
        print("said in Python", flush=True)
        os.kill(os.getpid(), request["signal"])
    elif do == "exit":
        sys.exit(request["code"])
    elif do == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    elif do == "steps":
        for step in range(4):
            send({"step": f"step {step}"})
            time.sleep(0.3)
    send({"echo": request, "tmp": os.environ["TMPDIR"], "cwd": os.getcwd()}, blobs[::-1])
    if do in ("close", "answer and exit"):
        break
"""


def alive(mark: str) -> list[str]:
    """The command lines of the running processes that carry a mark."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                line = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if mark in line:
                found.append(f"{name} {line[:200]}")
    return found


def eventually(condition: Callable[[], object], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


@pytest.fixture
def mark() -> str:
    return f"mark-{uuid.uuid4().hex}"


@pytest.fixture
def opened(tmp_path: Path, mark: str) -> Iterator[Child]:
    (tmp_path / "program.py").write_text(PROGRAM)
    with child([sys.executable, str(tmp_path / "program.py"), mark], tmp_path, tmp_path / "log", "the child") as it:
        yield it
    assert not alive(mark)
    assert not list(tmp_path.glob("tmp-*"))


def test_a_request_and_its_blobs_are_answered(opened: Child, tmp_path: Path) -> None:
    large = os.urandom(3 << 20)  # more than a pipe holds, both ways
    header, blobs = opened.ask({"do": "echo", "é": 1}, [b"", large], limit=20)
    assert header["echo"] == {"do": "echo", "é": 1}
    assert blobs == [large, b""]
    assert Path(header["tmp"]).parent == tmp_path == Path(header["cwd"])


def test_the_time_limit_is_for_one_step(opened: Child) -> None:
    opened.ask({"do": "echo"}, limit=20)  # started
    opened.ask({"do": "steps"}, limit=1.0)  # 1.2 s in all


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGILL, signal.SIGKILL])
def test_death_by_signal_is_named_and_the_log_survives(opened: Child, number: signal.Signals) -> None:
    with pytest.raises(Missing, match=rf"the child died of signal {number.value} \({number.name}\) in die") as caught:
        opened.ask({"do": "die", "signal": number}, limit=20)
    text = Path(caught.value.log).read_text()
    assert "said in C" in text and "said in Python" in text
    with pytest.raises(Missing, match="gone: the child died of signal"):
        opened.ask({"do": "echo"}, limit=20)


def test_an_exit_without_an_answer_is_told_from_death(opened: Child) -> None:
    with pytest.raises(Missing, match=r"ended without an answer \(exit code 3\) in exit"):
        opened.ask({"do": "exit", "code": 3}, limit=20)


def test_an_answer_given_just_before_the_end_counts(opened: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    send = Child._send

    def late(self: Child, *arguments: Any) -> None:
        send(self, *arguments)
        time.sleep(0.5)  # by now the child has answered and is dead

    with monkeypatch.context() as patched:
        patched.setattr(Child, "_send", late)
        assert opened.ask({"do": "answer and exit"}, limit=20)[0]["echo"]
    with pytest.raises(Missing, match=r"exit code 0\) in echo"):
        opened.ask({"do": "echo"}, limit=20)


def test_a_limit_may_be_larger_than_the_kernel_counts(opened: Child) -> None:
    opened.ask({"do": "echo"}, limit=1e12)


def test_a_killed_warden_takes_the_child_with_it(opened: Child, mark: str) -> None:
    opened.ask({"do": "echo"}, limit=20)
    (warden,) = (int(line.split()[0]) for line in alive(mark) if "warden.py" in line)
    os.kill(warden, signal.SIGKILL)
    with pytest.raises(Missing, match="the child went away in hang"):
        opened.ask({"do": "hang"}, limit=20)
    assert eventually(lambda: not alive(mark))


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    with child(["/nonexistent/python"], tmp_path, tmp_path / "log", "the child") as it:
        with pytest.raises(Missing, match="exit code 127"):
            it.ask({"do": "echo"}, limit=20)
    assert "/nonexistent/python: No such file" in (tmp_path / "log").read_text()


def test_a_hanging_child_ends_at_the_limit_with_all_it_started(opened: Child, mark: str) -> None:
    opened.ask({"do": "grandchildren"}, limit=20)
    assert eventually(lambda: len(alive(mark)) == 5)  # the warden, the child, three of its own
    start = time.monotonic()
    with pytest.raises(Missing, match=r"the child did not return within 0.5 s in hang"):
        opened.ask({"do": "hang"}, limit=0.5)
    assert time.monotonic() - start < 5
    assert not alive(mark)


def test_what_a_dead_child_leaves_running_is_ended(opened: Child, mark: str) -> None:
    opened.ask({"do": "grandchildren"}, limit=20)
    with pytest.raises(Missing, match="signal 11"):
        opened.ask({"do": "die", "signal": signal.SIGSEGV}, limit=20)
    assert not alive(mark)


def test_a_child_that_does_not_read_is_no_hang(tmp_path: Path, mark: str) -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)", mark]
    with child(sleeper, tmp_path, tmp_path / "log", "the child") as it:
        with pytest.raises(Missing, match="did not return within 0.5 s"):
            it.ask({"do": "echo"}, [bytes(3 << 20)], limit=0.5)  # more than the pipe holds
    assert not alive(mark)


PARENT = """
import os, sys, time
from pathlib import Path
from verify.process import child, sweeping
folder, mark, mode = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
with sweeping(folder), child([sys.executable, sys.argv[4], mark], folder, folder / "log", "the child") as it:
    it.ask({"do": "grandchildren"}, limit=20)
    if mode == "forked" and os.fork() == 0:  # keeps every pipe of this process open, as user code may
        time.sleep(30)
        os._exit(0)
    print("ready", flush=True)
    it.ask({"do": "hang"}, limit=600)
"""


def parent(tmp_path: Path, mark: str, mode: str) -> tuple[subprocess.Popen[str], Path]:
    """A process in the middle of a request; its own session, so that its fork can be found and ended."""
    (tmp_path / "program.py").write_text(PROGRAM)
    folder = tmp_path / "work"
    folder.mkdir()
    argv = [sys.executable, "-c", PARENT, str(folder), mark, mode, str(tmp_path / "program.py")]
    path = str(Path(verify.__file__).parents[1])
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process, folder


@pytest.mark.parametrize("mode", ["plain", "forked"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_parent_leaves_no_process_and_no_file(
    tmp_path: Path, mark: str, mode: str, number: signal.Signals
) -> None:
    process, folder = parent(tmp_path, mark, mode)
    process.send_signal(number)
    process.wait(10)
    try:
        ours = "program.py " + mark
        assert eventually(lambda: not [line for line in alive(mark) if ours in line or "time.sleep(600)" in line])
        assert eventually(lambda: not folder.exists())
        assert eventually(lambda: not [line for line in alive(str(folder)) if "warden.py" in line])
    finally:
        if mode == "forked":
            os.killpg(process.pid, signal.SIGKILL)


def test_ctrl_c_leaves_no_process(tmp_path: Path, mark: str) -> None:
    process, folder = parent(tmp_path, mark, "plain")
    os.killpg(process.pid, signal.SIGINT)  # the whole foreground group, as a terminal does
    assert process.wait(10) != 0
    assert not alive(mark)
    assert [path.name for path in folder.iterdir()] == ["log"]


def test_the_watcher_is_gone_at_a_normal_exit_and_removes_nothing(tmp_path: Path) -> None:
    with sweeping(tmp_path):
        assert eventually(lambda: alive(str(tmp_path)))
    assert not alive(str(tmp_path))
    assert tmp_path.exists()


def test_the_watcher_ignores_the_terminal(tmp_path: Path) -> None:
    with sweeping(tmp_path):
        assert eventually(lambda: alive(str(tmp_path)))
        (pid,) = (int(line.split()[0]) for line in alive(str(tmp_path)))
        assert os.getsid(pid) != os.getsid(0)


def test_output_of_a_short_program() -> None:
    assert output([sys.executable, "-c", "print(6 * 7)"]) == "42\n"
    with pytest.raises(Missing, match="exit code 1: ValueError: no"):
        output([sys.executable, "-c", "raise ValueError('no')"])
    with pytest.raises(Missing, match="could not be run"):
        output([sys.executable, "-c", "import time; time.sleep(60)"], limit=0.2)


def test_nothing_heavy_is_imported() -> None:
    script = textwrap.dedent("""
        import sys
        import verify.process
        print(sorted({"numpy", "onnx", "torch", "asyncio"} & set(sys.modules)))
    """)
    path = str(Path(verify.__file__).parents[1])
    held = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert held.stdout == "[]\n", held.stderr
