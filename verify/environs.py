"""Which environment variables user code reads: a kept result is void when one of them has another value."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from verify.opened import folder_of

#: What stands between the code that asks and the variable: `os.getenv`, and the `get` of a mapping.
_BETWEEN = (os.__file__, "<frozen os>", "<frozen _collections_abc>")
_SEEN: dict[str, set[str]] = {}  # by folder of user code: names that it has asked for since this process began


class _Watched(os._Environ):  # type: ignore[type-arg]  # os.environ's own type, whatever it holds
    def __getitem__(self, key: str) -> str:
        _note(key)
        held: str = super().__getitem__(key)
        return held


def _note(key: object) -> None:
    frame = sys._getframe(2)
    while frame.f_back is not None and (frame.f_code.co_filename in _BETWEEN or "_abc.py" in frame.f_code.co_filename):
        frame = frame.f_back
    folder = folder_of(frame.f_code.co_filename)
    if folder and isinstance(key, str):
        _SEEN.setdefault(folder, set()).add(key)


@contextmanager
def watching_environment() -> Iterator[None]:
    """Note the variables that user code itself asks for; what its libraries ask for is not counted."""
    usual = os.environ.__class__
    os.environ.__class__ = _Watched
    try:
        yield
    finally:
        os.environ.__class__ = usual


def asked(folder: str) -> Mapping[str, str]:
    """A digest of the value of each variable that the code below `folder` has asked for, "" where it is not set."""
    names = {name for held, names in _SEEN.items() if held.startswith(folder) for name in names}
    return {name: digest(name) for name in sorted(names)}


def digest(name: str) -> str:
    value = os.environ.get(name)
    return "" if value is None else hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()
