"""Where reports go: files that may not be writable, streams that may be closed, full, or unable to say a character."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from verify.core import UsageError


def open_all() -> None:
    """Give streams that the caller closed to the null device, and let no character of a name stop a verdict.

    Otherwise the next file that is opened takes number 1 or 2, and whatever a C library prints ends up in it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115 for good
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def apart() -> Iterator[None]:
    """Run user code: what it prints goes to standard error, and where it changes to another folder, we come back."""
    here = os.getcwd()
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.chdir(here)


def abandon(number: int) -> None:
    """Send what is still to be written to a descriptor nowhere: nobody can read it, and it must not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def write(text: str, to: str | Path) -> None:
    """A report to a file, or to the standard output for "-"; raises UsageError where it cannot be written."""
    if str(to) == "-":
        print(text)
        return
    try:
        Path(to).write_text(text + "\n")
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", str(to), "name another file") from None


def writable(to: str | Path | None) -> None:
    """Refuse an unwritable report before minutes of work, not after."""
    if to is not None and str(to) != "-" and not Path(to).absolute().parent.is_dir():
        raise UsageError("its folder does not exist", str(to), "make the folder or name another file")
