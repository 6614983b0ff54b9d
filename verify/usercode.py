"""The user's own Python: found by path, blamed by line, and watched for the files that it opens."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import os
import re
import site
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from verify.core import UsageError, VerifyError
from verify.toml import nearest

_HERE = str(Path(__file__).resolve().parent) + os.sep
_FOLDERS: set[str] = set()  # of user modules, each ending in a separator
_SEEN: dict[str, set[str]] = {}  # by such a folder: what its code has opened since this process began
_IGNORED: set[str] = set()
_ACTIVE: list[set[Path]] = []
_hooked = False


def is_reference(text: str) -> bool:
    """Whether this is "file.py:function" and not a path."""
    return re.search(r"\.py:\w+$", text) is not None


def resolve(reference: str, folder: Path) -> Callable[..., Any]:
    """The function that "file.py:function" names, relative to `folder`; UsageError where it does not exist.

    What it raises when called (or, for a generator, iterated) becomes a UsageError with the user's file and line.
    """
    file, _, name = reference.rpartition(":")
    path = (folder / file).resolve()
    if not file or not path.is_file():
        near = nearest(Path(file).name, sorted(p.name for p in path.parent.glob("*.py")))
        raise UsageError("no such file", f"{reference!r} in {folder}", near)
    module = _module(path)
    note(path.parent, [path])
    found = getattr(module, name, None)
    if not callable(found):
        local = [k for k, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__]
        raise UsageError(f"has no function {name!r}", str(path), nearest(name, local))
    return _guarded(found, path)


def _module(path: Path) -> ModuleType:
    """The module of a file, imported once for each of its states, under a name that no other file can have."""
    stat = path.stat()
    state = hashlib.sha256(f"{path}:{stat.st_mtime_ns}:{stat.st_size}".encode()).hexdigest()[:16]
    name, folder = f"_verify_user_{path.stem}_{state}", str(path.parent)
    _step_aside(path.parent)
    _FOLDERS.add(folder + os.sep)
    if sys.path[:1] != [folder]:
        sys.path[:] = [folder, *(entry for entry in sys.path if entry != folder)]
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise UsageError("is not a Python file", str(path), 'write "file.py:function"')
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        try:
            with blaming(path):
                spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _step_aside(folder: Path) -> None:
    """Forget modules of other candidates' folders that this folder has a file of the same name for."""
    own = str(folder) + os.sep
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if any(file.startswith(other) for other in _FOLDERS if other != own) and not file.startswith(own):
            top = name.partition(".")[0]
            if (folder / f"{top}.py").is_file() or (folder / top).is_dir():
                del sys.modules[name]


@contextmanager
def blaming(path: Path) -> Iterator[None]:
    """Turn what user code raises into a UsageError that names its file and line."""
    try:
        yield
    except VerifyError:
        raise
    except (Exception, SystemExit) as error:
        where, line = str(path), 0
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename.startswith((str(path.parent) + os.sep, *_FOLDERS)):
                where, line = frame.filename, frame.lineno or 0
        if isinstance(error, SyntaxError) and error.filename:
            where, line = error.filename, error.lineno or 0
        text = " ".join(str(error).split())
        what = f"{type(error).__name__}: {text}" if text else type(error).__name__
        raise UsageError(what[:400], f"{where}:{line}" if line else where, "mend the code there") from error


def _guarded(function: Callable[..., Any], path: Path) -> Callable[..., Any]:
    def iterate(values: Iterator[Any]) -> Iterator[Any]:
        with blaming(path):
            yield from values

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with blaming(path):
            result = function(*args, **kwargs)
        return iterate(result) if inspect.isgenerator(result) else result

    return call


def ignore(folder: Path) -> None:
    """Never report files of this folder: it is ours, and named differently in every run."""
    _IGNORED.add(str(folder.resolve()) + os.sep)


@contextmanager
def recording_files() -> Iterator[set[Path]]:
    """Collect the files that user code really opens for reading, the user's own modules among them.

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
        held.update(Path(p) for p in seen if os.path.isfile(p))


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event != "open" or not _ACTIVE:
        return
    try:
        _opened(*args[:3])
    except Exception:  # an audit hook that raises would forbid the user's own open
        return


def _opened(path: Any, mode: Any, flags: Any) -> None:
    if not isinstance(path, str | bytes | os.PathLike):
        return
    if isinstance(mode, str) and set(mode) & set("wax"):
        return
    if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_CREAT):
        return
    frame, folder = sys._getframe(2), ""
    while frame is not None and not folder:
        name = frame.f_code.co_filename
        folder = next((held for held in _FOLDERS if name.startswith(held)), "")
        frame = frame.f_back  # type: ignore[assignment]
    full = os.path.realpath(os.fsdecode(path))
    if full.endswith(".pyc"):  # what counts is the source that it was made of
        full = importlib.util.source_from_cache(full)
    if folder and not full.startswith((*_library(), *_IGNORED, *_SYSTEM)) and os.path.isfile(full):
        _SEEN.setdefault(folder, set()).add(full)
        for held in _ACTIVE:
            held.add(Path(full))


_SYSTEM = ("/proc/", "/sys/", "/dev/", "/etc/")  # the kernel's and the machine's own, never a model's data


@functools.lru_cache(maxsize=1)
def _library() -> tuple[str, ...]:
    paths = [*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()]
    chosen = {os.path.realpath(p) + os.sep for p in paths if "scripts" not in p}
    return (*sorted(chosen - {os.path.realpath(sysconfig.get_paths()["data"]) + os.sep}), _HERE)
