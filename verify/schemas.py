"""Names and versions of every document that outlives a process, and the migration of old ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from verify.core import UsageError

Document = dict[str, Any]

#: The version that this code writes, by document.
CURRENT = {"run": 1, "cache": 1, "policy": 1, "report": 1, "bundle": 1, "localize": 1}

#: (document, version) -> the function that lifts it by one version. The first change of a document adds its first line.
MIGRATIONS: Mapping[tuple[str, int], Callable[[Document], Document]] = {}


def stamp(kind: str) -> str:
    """The schema string of a document, for example "npu-verify/run/1"."""
    return f"npu-verify/{kind}/{CURRENT[kind]}"


def lift(document: Document, kind: str, where: str) -> Document:
    """The document at the current version; raises UsageError for a foreign, newer or unmigratable one."""
    prefix, _, version = str(document.get("schema", "")).rpartition("/")
    if prefix != f"npu-verify/{kind}" or not version.isdigit():
        raise UsageError(f"schema is {document.get('schema')!r}, not {stamp(kind)!r}", where, "give the right file")
    number = int(version)
    if number > CURRENT[kind]:
        raise UsageError(f"written by a newer npu-verify ({kind} version {number})", where, "update npu-verify")
    while number < CURRENT[kind]:
        step = MIGRATIONS.get((kind, number))
        if step is None:
            raise UsageError(f"no migration from {kind} version {number}", where, "run the check again")
        document, number = step(document), number + 1
    return document


def read(path: Path, kind: str) -> Document:
    """Read a JSON document of this kind; raises UsageError when it is missing, broken or foreign."""
    try:
        document = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError("no such file", str(path), "name a run folder that check or gate has written") from None
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":  # --json F with several variants
            raise UsageError("holds a report a line", str(path), "name the run folder of one variant") from None
        raise UsageError(f"unreadable: {error}", str(path), "run the check again") from None
    except (UnicodeDecodeError, OSError) as error:
        raise UsageError(f"unreadable: {error}", str(path), "run the check again") from None
    if not isinstance(document, dict):
        raise UsageError("not a JSON object", str(path), "run the check again")
    return lift(document, kind, str(path))
