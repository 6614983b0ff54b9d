"""The user's own Python: found by path, and blamed by line."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from verify.core import UsageError, VerifyError
from verify.opened import FOLDERS, folder_of, ignore, note, recording_files
from verify.toml import nearest

__all__ = ["blaming", "ignore", "is_reference", "note", "recording_files", "resolve"]


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
    FOLDERS.add(folder + os.sep)
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
        if folder_of(file) and not file.startswith(own):
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
            if frame.filename == str(path) or folder_of(frame.filename):
                where, line = frame.filename, frame.lineno or 0
        if isinstance(error, SyntaxError) and error.filename:
            where, line = error.filename, error.lineno or 0
        text = " ".join(str(error).split())
        what = f"{type(error).__name__}: {text}" if text else type(error).__name__
        raise UsageError(what[:400], f"{where}:{line}" if line else where, _cure(error)) from error


def _cure(error: BaseException) -> str:
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return "mend the code there"
    if error.name == "onnxscript":  # what torch's newer exporter, its default, asks for
        return "export with torch.onnx.export(..., dynamo=False, opset_version=17), or install onnxscript"
    return f"install it for {sys.executable}, or mend the import"


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
