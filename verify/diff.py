"""What changed between two reports: outcomes, legs, findings, environment, artefacts, numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from verify.core import UsageError
from verify.limits import limit
from verify.verdict import _plain

Report = Mapping[str, Any]

#: A measurement moved when it grew or shrank by more than a tenth: as much as a waiver tolerates (verify.policy).
MOVED = 1.1
#: What stays below this share of its limit is no news: float32 sums differ by as much between hosts (house choice).
SMALL = 0.01
#: Environment entries that say how a run was made, not what it ran on.
NO_NEWS = ("cache",)


def diff(old: Report, new: Report) -> tuple[str, dict[str, Any]]:
    """The text, and the document behind it, of two report documents; raises UsageError for two different models.

    `outcome_changed` is true when the verdict or any leg came out otherwise.
    """
    names = ["{model}:{variant}@{target}".format(**report["candidate"]) for report in (old, new)]
    if old["candidate"]["model"] != new["candidate"]["model"]:
        do = "name two runs of one model"
        raise UsageError(f"nothing in common: {names[0]} and {names[1]}", "diff", do)
    before, after = _measurements(old), _measurements(new)
    legs = _changes(_legs(old), _legs(new))
    document: dict[str, Any] = {
        "schema": "npu-verify/diff/1",
        "candidates": names,
        "runs": [old.get("run", ""), new.get("run", "")],
        "outcome": [old["outcome"], new["outcome"]],
        "outcome_changed": old["outcome"] != new["outcome"] or bool(legs),
        "legs": legs,
        "compared": {"legs": len(_legs(new)), "findings": len(_by_id(new))},
        "diagnosis": _changes(_diagnosis(old), _diagnosis(new)),
        "findings": _findings(old, new),
        "environment": _changes(_flat(old, "environment"), _flat(new, "environment")),
        "policy": _changes(_policy(old), _policy(new)),
        "artifacts": _changes(_artifacts(old), _artifacts(new)),
        "measurements": {
            "compared": len(before.keys() & after.keys()),
            "moved": sorted(_moved(before, after, new["candidate"].get("precision", "*")), key=_distance, reverse=True),
            "gone": sorted(" ".join(filter(None, key)) for key in before.keys() - after.keys()),
            "new": sorted(" ".join(filter(None, key)) for key in after.keys() - before.keys()),
        },
    }
    from verify.reports.changes import render

    document = _plain(document)
    return render(document), document


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, list[Any]]:
    keys = dict.fromkeys([*old, *new])
    return {key: [old.get(key), new.get(key)] for key in keys if old.get(key) != new.get(key)}


def _legs(report: Report) -> dict[str, str]:
    return {leg["name"]: leg["outcome"] for tier in report["tiers"].values() for leg in tier["legs"]}


def _flat(report: Report, key: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in (report.get(key) or {}).items():
        if name not in NO_NEWS:
            out.update({f"{name}.{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {name: value})
    return out


def _diagnosis(report: Report) -> dict[str, Any]:
    return {"suspects": list(report["blame"]) or None, "first divergent node": report["first_divergent"]}


def _policy(report: Report) -> dict[str, Any]:
    return {key: report.get("policy", {}).get(key) for key in ("name", "sha256")}


def _artifacts(report: Report) -> dict[str, str]:
    return {f"{a['role']} {a['name']}": a["sha256"] for a in report["candidate"].get("artifacts", ())}


def _measurements(report: Report) -> dict[tuple[str, ...], float]:
    out: dict[tuple[str, ...], float] = {}
    for m in report["measurements"]:
        where = m["where"]
        key = (m["checker"], m["metric"], where["leg"], where["tensor"], where["part"], where["case"])
        out[key] = float(m["value"])  # NaN and infinities are stored as text
    return out


def _moved(
    old: Mapping[tuple[str, ...], float], new: Mapping[tuple[str, ...], float], precision: str
) -> Iterator[dict[str, Any]]:
    for key in old.keys() & new.keys():
        a, b = old[key], new[key]
        if a == b or (a != a and b != b):
            continue
        small, large = sorted((abs(a), abs(b)))
        held = limit(key[0], key[1], precision)
        trifle = held is not None and 0 < held.value < float("inf") and large < held.value * SMALL
        if (large <= small * MOVED and a * b > 0) or trifle:
            continue
        names = ("checker", "metric", "leg", "tensor", "part", "case")
        yield {**dict(zip(names, key, strict=True)), "old": a, "new": b, "ratio": b / a if a else float("inf")}


def _distance(moved: Mapping[str, Any]) -> tuple[float, str]:
    ratio = abs(moved["ratio"])
    far = float("inf") if ratio != ratio or ratio == 0 else max(ratio, 1 / ratio)
    return far, str(moved)


def _findings(old: Report, new: Report) -> dict[str, list[Any]]:
    before, after = _by_id(old), _by_id(new)
    both = [key for key in before if key in after]
    changed = [k for k in both if any(before[k][f] != after[k][f] for f in ("severity", "waived"))]
    return {
        "new": [after[key] for key in after if key not in before],
        "gone": [before[key] for key in before if key not in after],
        "changed": [[before[key], after[key]] for key in changed],
    }


def _by_id(report: Report) -> dict[str, dict[str, Any]]:
    """The worst case of each finding."""
    out: dict[str, dict[str, Any]] = {}
    for finding in report["findings"]:
        held = out.get(finding["id"])
        if held is None or not float(finding["value"]) <= float(held["value"]):
            out[finding["id"]] = finding
    return out
