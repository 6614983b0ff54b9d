"""Progress never reaches stdout, never piles up in a log, and leaves nothing behind on a terminal."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import textwrap
import threading

import pytest

from verify.reports import progress as module
from verify.reports.progress import progress, quiet


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def tickers() -> list[str]:
    return [t.name for t in threading.enumerate() if "progress" in t.name]


def screen(text: str) -> str:
    """What the redrawn line holds at the end."""
    return text.rpartition("\r\x1b[K")[2]


def test_piped_one_line_per_step_with_its_seconds(capsys) -> None:
    with progress("m:v@t") as shown:
        with shown.step("building", expected_seconds=20):
            pass
        with shown.step("scoring"):
            for i in range(1000):
                shown.count(i + 1, None, "scoring")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["m:v@t: building: 0.0 s", "m:v@t: scoring: 1000: 0.0 s"]
    assert "\x1b" not in err and "\r" not in err
    assert not tickers()


def test_piped_counts_speak_now_and_then(capsys, monkeypatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    with progress("m") as shown, shown.step("scoring"):
        for i in range(100):
            clock[0] += 1.0
            shown.count(i + 1, 200, "scoring")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "m: scoring: 10 of 200, 3 min 10 s left"
    assert len(lines) == 10 + 1  # a line per 10 s, and the step's own


def test_a_terminal_shows_the_step_with_a_bar_and_is_clean_afterwards(monkeypatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    with progress("m") as shown:
        with shown.step("building", expected_seconds=20):
            clock[0] = 5.0
            shown._draw()
            drawn = screen(terminal.getvalue())
        with shown.step("scoring"):
            clock[0] = 6.0
            shown.count(1, None, "scoring")
            clock[0] = 11.0
            shown.count(151, None, "scoring")  # the first one's second is not in the rate
            shown._draw()
            counted = screen(terminal.getvalue())
    assert "building" in drawn and "[###........." in drawn and "15 s left" in drawn
    assert "151, 6 s, 30 a second" in counted
    assert "\n" not in terminal.getvalue()  # one line redrawn
    assert screen(terminal.getvalue()) == ""
    assert not tickers()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_the_line_is_gone_after_an_exception(monkeypatch, error) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with pytest.raises(error), progress("m") as shown, shown.step("building"):
        raise error
    assert screen(terminal.getvalue()) == ""
    assert not tickers()


def test_a_step_that_stopped_says_so(capsys) -> None:
    with pytest.raises(ValueError), progress("m") as shown, shown.step("building"):
        raise ValueError
    assert capsys.readouterr().err == "m: building: stopped after 0.0 s\n"


def test_quiet_and_a_closed_stream_are_silent(capsys, monkeypatch) -> None:
    for shown in (quiet(), module.Progress("m", None)):
        with shown.step("x"):
            shown.count(1, 2, "x")
    with progress("m", quiet=True) as shown, shown.step("x"):
        pass
    assert capsys.readouterr() == ("", "")
    gone = Terminal()
    gone.close()
    monkeypatch.setattr(gone, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", gone)
    with progress("m") as shown, shown.step("x"):
        pass  # nobody reads: no error of ours


SCRIPT = """
    import os, subprocess, sys, time
    from verify.reports.progress import progress
    with progress("a-name-that-is-rather-long:variant@target") as p:
        with p.step("a text that is much longer than any terminal is wide " * 5, expected_seconds=9):
            for _ in range(20):
                child = os.fork()
                if not child:
                    with p.step("child"):
                        p.count(1, 2, "child")
                    os._exit(0)
                os.waitpid(child, 0)
            subprocess.run(["true"], check=True)
            time.sleep(0.5)
    print("done")
"""


def test_on_a_real_terminal_with_forks_nothing_wraps_and_children_are_silent() -> None:
    parent, child = pty.openpty()
    code = textwrap.dedent(SCRIPT)
    # 3.12 warns of the script's own fork
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=child, timeout=60, check=True)
    os.close(child)
    shown = b""
    try:
        while piece := os.read(parent, 65536):
            shown += piece
    except OSError:
        pass  # Linux ends a pty with EIO
    os.close(parent)
    assert done.stdout == b"done\n"
    text = shown.decode()
    lines = [part for part in text.split("\r\x1b[K") if part]
    assert len(lines) >= 3 and "child" not in text and "\n" not in text
    plain = [line.replace("\x1b[34m", "").replace("\x1b[2m", "").replace("\x1b[0m", "") for line in lines]
    assert max(map(len, plain)) < 80
