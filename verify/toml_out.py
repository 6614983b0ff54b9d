"""Writing TOML, as far as a candidate.toml needs it."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from typing import Any

BARE = re.compile(r"[A-Za-z0-9_-]+")


def string(text: str) -> str:
    """A basic string: JSON's escapes are TOML's, but for DEL, which TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def key(name: str) -> str:
    return name if BARE.fullmatch(name) else string(name)


def value(held: Any) -> str:
    """One value; raises TypeError for what TOML cannot say (None, for example)."""
    if isinstance(held, bool):
        return str(held).lower()
    if isinstance(held, int | float):
        return repr(held)  # inf and nan are TOML's own words too
    if isinstance(held, str):
        return string(held)
    if isinstance(held, datetime.date | datetime.time):
        return held.isoformat()
    if isinstance(held, Mapping):
        return "{ " + ", ".join(f"{key(k)} = {value(v)}" for k, v in held.items()) + " }" if held else "{}"
    if isinstance(held, list | tuple):
        return "[" + ", ".join(map(value, held)) + "]"
    raise TypeError(f"TOML has no {type(held).__name__}")


def table(name: str, held: Mapping[str, Any]) -> str:
    """A table with its header; no header where `name` is ""; keys whose value is None are left out."""
    lines = [f"[{name}]"] if name else []
    return "\n".join([*lines, *(f"{key(k)} = {value(v)}" for k, v in held.items() if v is not None)]) + "\n"
