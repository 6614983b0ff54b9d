"""Which files user code opens: a kept build is void when one of them changes."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_HERE = str(Path(__file__).resolve().parent) + os.sep
FOLDERS: set[str] = set()  # of user modules, each ending in a separator
_SEEN: dict[str, set[str]] = {}  # by such a folder: what its code has opened since this process began
_IGNORED: set[str] = set()
_PLAIN: set[str] = set()  # folders of libraries that no link leads to, as far as this process has seen
_ACTIVE: list[set[Path]] = []
_hooked = False


def folder_of(file: str) -> str:
    """The folder that a file of user code lies in; "" for a library, even one whose environment lies in there."""
    found = next((held for held in FOLDERS if file.startswith(held)), "")
    return "" if found and file.startswith(_library()) else found


def ignore(folder: Path) -> None:
    """Never report files of this folder: it is ours, and named differently in every run."""
    _IGNORED.add(str(folder.resolve()) + os.sep)


@contextmanager
def recording_files() -> Iterator[set[Path]]:
    """Collect the files that user code really opens for reading, its own modules among them, and folders it lists.

    Left out are the standard library, installed packages, /proc and the like, and what we write ourselves. What a
    folder's code opened earlier in this process counts too: modules and caches are not read twice. Seen is what
    Python opens; files that a library opens by itself (safetensors and tokenizers do) must be named in `depends`.
    """
    global _hooked
    if not _hooked:  # an audit hook cannot be taken away again, so there is one, and it looks whether anybody listens
        sys.addaudithook(_audit)
        _hooked = True
    found: set[Path] = set()
    _ACTIVE.append(found)
    try:
        yield found
    finally:
        _ACTIVE[:] = [held for held in _ACTIVE if held is not found]


def note(folder: Path, files: Iterable[Path]) -> None:
    """Count these files among those that the code of `folder` opens."""
    seen = _SEEN.setdefault(str(folder.resolve()) + os.sep, set())
    seen.update(str(path.resolve()) for path in files)
    for held in _ACTIVE:
        held.update(Path(p) for p in seen if os.path.exists(p))


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event not in ("open", "os.listdir", "os.scandir") or not _ACTIVE:
        return
    try:
        if event == "open":
            _opened(args[0], args[2])
        elif "importlib" not in sys._getframe(1).f_code.co_filename:  # which looks for modules everywhere
            _listed(args[0])
    except Exception:  # an audit hook that raises would forbid the user's own open
        return


def _opened(path: Any, flags: Any) -> None:
    if not isinstance(path, str | bytes | os.PathLike):
        return
    if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_CREAT):
        return
    full = _real(os.fsdecode(path))
    if full.endswith(".pyc"):  # what counts is the source that it was made of
        full = importlib.util.source_from_cache(full)
    # before the stack is looked at, which is deep while torch is imported: 0.14 s for its 1,000 files (an EPYC core)
    if full.startswith((*_library(), *_IGNORED, *_SYSTEM)):
        return
    frame, folder = sys._getframe(2), ""
    while frame is not None and not folder:
        folder = folder_of(frame.f_code.co_filename)
        frame = frame.f_back  # type: ignore[assignment]
    if folder and os.path.isfile(full):
        _SEEN.setdefault(folder, set()).add(full)
        for held in _ACTIVE:
            held.add(Path(full))


def _real(path: str) -> str:
    """`os.path.realpath`, quickly for what a library opens in its own folder: an import of torch opens 1,200 files."""
    folder = os.path.dirname(path)
    if folder in _PLAIN and not os.path.islink(path):
        return path
    full = os.path.realpath(path)
    if full == path and full.startswith(_library()):
        _PLAIN.add(folder)
    return full


def _listed(path: Any) -> None:
    """A folder counts where user code itself lists it, or a library does for it and it lies beside that code."""
    frame, folder, itself = sys._getframe(2), "", True
    while frame is not None and not folder:
        file = frame.f_code.co_filename
        folder = folder_of(file)
        itself &= bool(folder) or file.startswith((os.path.dirname(os.__file__) + os.sep, "<frozen "))
        itself &= f"{os.sep}site-packages{os.sep}" not in file or bool(folder)
        frame = frame.f_back  # type: ignore[assignment]
    full = os.path.realpath(os.fsdecode(path if path is not None else "."))
    wanted = folder and (itself or (full + os.sep).startswith(folder))
    if wanted and not (full + os.sep).startswith((*_library(), *_IGNORED, *_SYSTEM)):
        _SEEN.setdefault(folder, set()).add(full)
        for held in _ACTIVE:
            held.add(Path(full))


def state(path: Path) -> str:
    """What a file holds, or which names a folder (hidden ones and Python's own apart), as a digest; "" for neither."""
    from verify.store import file_digest

    if path.is_dir():
        names = sorted(n for n in os.listdir(path) if not n.startswith(".") and n != "__pycache__")
        return hashlib.sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()
    return file_digest(path) if path.is_file() else ""


_SYSTEM = ("/proc/", "/sys/", "/dev/", "/etc/")  # the kernel's and the machine's own, never a model's data


@functools.lru_cache(maxsize=1)
def _library() -> tuple[str, ...]:
    paths = [*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()]
    chosen = {os.path.realpath(p) + os.sep for p in paths if "scripts" not in p}
    return (*sorted(chosen - {os.path.realpath(sysconfig.get_paths()["data"]) + os.sep}), _HERE)
