"""What changed between two runs, as text."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from typing import Any

from verify.reports import number, sentence, tidy
from verify.verdict import Finding

SHOWN = 10  # findings, and numbers that moved, the furthest first; all of them are in the document
TITLES = {
    "legs": "Legs",
    "diagnosis": "Diagnosis",
    "environment": "Environment",
    "policy": "Policy",
    "artifacts": "Files (two builds by the toolkit never have the same digest)",
}


def render(document: Mapping[str, Any]) -> str:
    """The text of a document of schema npu-verify/diff/1, without a final newline."""
    first, second = document["candidates"]
    head = first if first == second else f"Two variants of one model, which may differ by design: {first} and {second}"
    lines = [*_outcomes(document), *_findings(document["findings"]), *_numbers(document["measurements"])]
    return "\n".join([head, *(lines or [_same(document)])])


def _same(document: Mapping[str, Any]) -> str:
    count = document["compared"]
    return (
        f"No difference: the outcome ({document['outcome'][1]}), {count['legs']} legs, {count['findings']} findings, "
        f"{document['measurements']['compared']} numbers (within a tenth), environment, policy and files are the same"
    )


def _outcomes(document: Mapping[str, Any]) -> Iterator[str]:
    before, after = document["outcome"]
    if before != after:
        yield f"Outcome: {before} -> {after}"
    for key, title in TITLES.items():
        if document[key]:
            yield f"{title}:"
            for name, (a, b) in document[key].items():
                yield f"  {tidy(name)}: {_word(a)} -> {_word(b)}"


def _findings(held: Mapping[str, Any]) -> Iterator[str]:
    for kind, title in (("new", "New findings:"), ("gone", "Findings that are gone:")):
        if held[kind]:
            yield title
            yield from (f"  {_sentence(finding)}" for finding in held[kind][:SHOWN])
            yield from [f"  and {len(held[kind]) - SHOWN} more (--json holds all)"] * (len(held[kind]) > SHOWN)
    for a, b in held["changed"]:
        yield f"Finding {tidy(b['id'])}: {a['waived'] or a['severity']} -> {b['waived'] or b['severity']}"


def _numbers(held: Mapping[str, Any]) -> Iterator[str]:
    moved = held["moved"]
    if moved:
        yield f"Numbers that moved by more than a tenth ({len(moved)} of {held['compared']}):"
    for m in moved[:SHOWN]:
        place = ", ".join(tidy(m[key]) for key in ("checker", "leg", "part", "case") if m[key])
        change = f"{number(float(m['old']))} -> {number(float(m['new']))}"
        yield f"  {tidy(m['tensor'])}: {m['metric']} {change} [{place}]"
    if len(moved) > SHOWN:
        yield f"  and {len(moved) - SHOWN} more (--json holds all)"
    for kind, text in (("gone", "measured before and not now"), ("new", "measured now and not before")):
        if held[kind]:
            names = "; ".join(tidy(name) for name in held[kind][:3])
            yield f"{len(held[kind])} numbers {text}: {names}{'; ...' if len(held[kind]) > 3 else ''}"


def _sentence(finding: Mapping[str, Any]) -> str:
    return sentence(Finding(**{**finding, "value": float(finding["value"]), "limit": float(finding["limit"])}))


def _word(value: Any) -> str:
    if isinstance(value, Mapping):  # a divergent node
        return tidy(value["node"] or value["tensor"])
    text = tidy(", ".join(map(str, value)) if isinstance(value, list) else str(value or "none"))
    digest = len(text) == 64 and set(text) <= set(string.hexdigits)  # a sha256: its beginning tells two apart
    return text[:12] if digest else text or "none"
