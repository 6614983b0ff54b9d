"""What the toolkit writes, read back: its log, layer table, error analysis and scales (rknn-toolkit2 2.5.0)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from verify.core import LayerRow

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ROW = re.compile(r"^D RKNN: \[[\d:.]+\] (\d+)\s+(\S+)\s+(\S+)\s+(NPU|CPU|GPU)\s")
#: Lines marked as errors that say nothing: the first is in good builds too, the others head a traceback.
HARMLESS = re.compile(r"Unkown op target: 0|rknn-toolkit2 version|.*Traceback \(most recent|[=\-^~ ]*$")

QUANTITIES = ("scale", "zero_point", "min", "max", "ori_min", "ori_max")
Distances = tuple["float | None", "float | None", "float | None", "float | None"]


def lines(text: str) -> list[str]:
    """The log's lines without colours; of a line that a progress bar redrew, what stood there last."""
    plain = ANSI.sub("", text)
    return [line.rpartition("\r")[2].rstrip() for line in plain.replace("\r\n", "\n").split("\n")]


def last_error(log: Path) -> str:
    """The last line in which the toolkit itself reports an error, or ""."""
    if not log.exists():
        return ""
    said = ""
    for line in lines(log.read_text(errors="replace")):
        match = re.match(r"E (?:RKNN: )?(?:\[[\d:.]+\] )?(.*)", line)
        text = match.group(1).strip() if match else ""
        if text and not HARMLESS.match(text):
            said = text[:300]
    return said


def layer_table(text: str) -> tuple[LayerRow, ...]:
    """The last "Network Layer Information Table" of a verbose log, in order of execution; () if there is none."""
    start = text.rfind("Network Layer Information Table")
    rows: list[LayerRow] = []
    name_at = -1
    for line in lines(text[start:]) if start >= 0 else []:
        if name_at < 0:
            name_at = line.find("FullName")
        elif found := ROW.match(line):
            index, op, dtype, placed = found.groups()
            rows.append(LayerRow(int(index), op, dtype, placed, line[name_at:].strip()))
        elif rows:  # the rule that closes the table
            break
    return tuple(rows)


def compiler(text: str) -> str:
    """The compiler library's own version, as the verbose log states it."""
    found = re.search(r"librknnc version: (.+)", ANSI.sub("", text))
    return found.group(1).strip() if found else ""


def file_names(text: str) -> dict[str, str]:
    """map_name_to_file.txt: layer names, in the order of the optimised graph, to the stems of their dumps.

    Characters that a file name cannot hold become "_", so two layers may share a file: both are left out.
    """
    heading, _, *rows = text.splitlines() or ["", ""]
    column = heading.find("file_name")  # names may hold spaces, so the columns decide
    names = {row[:column].rstrip(): row[column:].strip().removesuffix(".txt") for row in rows if row.strip()}
    count = Counter(names.values())
    return {layer: stem for layer, stem in names.items() if count[stem] == 1}


def error_analysis(text: str, layers: Iterable[str]) -> dict[str, Distances]:
    """error_analysis.txt: each layer's cosine and Euclidean distance, entire (accumulated) and single (fed with golden
    inputs); None where the toolkit prints a marker such as f_zero or q_nan. Layers without numbers are left out.
    """
    known, found = set(layers), {}
    for line in text.splitlines():
        match = re.match(r"\[\S+\] (.+?)\s+(\S+) \| (\S+)\s+(\S+) \| (\S+)\s*$", line)
        if match and match.group(1) in known:
            a, b, c, d = (_number(value) for value in match.groups()[1:])
            found[match.group(1)] = (a, b, c, d)
    return found


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def scales(parameters: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Each quantised tensor's scale, zero_point, min, max, ori_min, ori_max and dtype, as in .quantization.cfg.

    Values come as lists with one element. Left out: what stays in float (no scale), and per-channel entries, which one
    number cannot stand for.
    """
    out = {}
    for name, held in parameters.items():
        if all(len(held.get(key) or ()) == 1 for key in QUANTITIES[:4]):
            values = {key: held[key][0] for key in QUANTITIES if len(held.get(key) or ()) == 1}
            out[name] = {**values, "dtype": str(held.get("dtype", ""))}
    return out
