"""Reading TOML strictly: errors name the file, the table and the nearest right word."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from verify.core import UsageError


def read_toml(path: str | Path) -> dict[str, Any]:
    """The document of a TOML file; raises UsageError (with the line) when it is absent or unreadable."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:  # 3.10 has none in its standard library
        import tomli as tomllib
    path, do = Path(path), "name an existing file; npu-verify init writes a candidate.toml"
    try:
        return dict(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UsageError("no such file", str(path), do) from None
    except IsADirectoryError:
        raise UsageError("is a folder", str(path), "name the TOML file in it") from None
    except (OSError, UnicodeDecodeError) as error:
        if path.suffix == ".onnx":
            raise UsageError("is a model, not a TOML file", str(path), f"run npu-verify init {path} first") from None
        raise UsageError(f"cannot be read: {error}", str(path), "write it as UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"not valid TOML: {error}", str(path), "mend that line") from None


def nearest(word: str, known: Iterable[str]) -> str:
    """What to say to somebody who wrote `word`: the nearest known word, or all of them."""
    words = list(known)
    # 0.5 lets "grpah", "rk358" and "fp_16" find their word, and "banana" none
    near = get_close_matches(word, words, 1, 0.5) or get_close_matches(word.lower(), words, 1, 0.5)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(words)}" if words else "there is none"


def only(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raise UsageError for the first key of `table` that is not known."""
    words = list(known)
    for key in table:
        if key not in words:
            raise UsageError(f"unknown key {key!r}", where, nearest(key, words))


KINDS: Mapping[type, str] = {str: "text", int: "a whole number", float: "a number", list: "a list", dict: "a table"}


def value(table: Mapping[str, Any], key: str, kind: type, default: Any, where: str) -> Any:
    """`table[key]`, or the default where it is absent; raises UsageError when it is of another kind."""
    if key not in table:
        return default
    found = table[key]
    fits = isinstance(found, (int, float) if kind is float else kind)
    if not fits or isinstance(found, bool):  # no key is true or false, and Python counts them among the numbers
        raise UsageError(f"{key} = {found!r} is not {KINDS[kind]}", where, f"write {KINDS[kind]}")
    return float(found) if kind is float else found


def numbers(table: Mapping[str, Any], key: str, where: str, whole: bool = False) -> tuple[Any, ...]:
    """`table[key]` as a tuple of numbers (positive whole ones for a shape), () where it is absent."""
    found = value(table, key, list, [], where)
    for item in found:
        number = isinstance(item, int | float) and not isinstance(item, bool)
        good = number and (isinstance(item, int) and item > 0 if whole else abs(item) < float("inf"))
        if not good:
            kind = "positive whole numbers" if whole else "numbers"
            raise UsageError(f"{key} = {found!r} is not a list of {kind}", where, f"write a list of {kind}")
    return tuple(found if whole else (float(item) for item in found))


def texts(table: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    """`table[key]` as a tuple of texts, () where it is absent."""
    found = value(table, key, list, [], where)
    if not all(isinstance(item, str) for item in found):
        raise UsageError(f"{key} = {found!r} is not a list of text", where, 'write a list such as ["a", "b"]')
    return tuple(found)
