"""Writes a dated waiver into a policy: one finding, until a day, for a reason, up to the value it has now."""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from verify.core import UsageError
from verify.policy import LONGEST, UNWAIVABLE, Policy
from verify.schemas import stamp
from verify.toml_out import string


def waive(
    policy: Path, report: Mapping[str, Any], finding: str, until: str, reason: str, today: datetime.date | None = None
) -> str:
    """Append the waiver to the policy TOML, in one rename, and say what it covers; raises UsageError.

    Nothing is written where a waiver of the policy covers the finding until that day already.

    The recorded value is the worst of the finding's cases; a tenth more is tolerated (verify.policy), worse is not.
    Findings of `structure`, `finite` and `coverage`, and values that are not finite, cannot be waived.
    """
    day = _day(until, today or datetime.datetime.now(datetime.timezone.utc).date())
    if not reason.strip():
        raise UsageError("the reason is empty", "--reason", "say why it may be tolerated, and what will end it")
    if not reason.isprintable():
        raise UsageError("the reason has line breaks or control characters", "--reason", "write it on one line")
    value = _value(report, finding)
    again = f"Next: npu-verify judge {report.get('run') or 'RUN'} --policy {policy}"
    if policy.exists() and any(waiver.covers(finding, value, day) for waiver in Policy.load(policy).waivers):
        return f"{policy}: {finding} is waived already, until {day} or later; nothing was written\n{again}"
    entry = (
        f"[[waiver]]\nfinding = {string(finding)}\nuntil = {day.isoformat()}\n"
        f"reason = {string(reason.strip())}\nvalue = {value!r}\n"
    )
    _append(policy, entry)
    return f"{policy}: {finding} is waived until {day}, up to {value:.4g} and a tenth more\n{again}"


def _day(until: str, today: datetime.date) -> datetime.date:
    try:
        day = datetime.date.fromisoformat(until)
    except ValueError:
        raise UsageError(f"{until!r} is not a date", "--until", "write YYYY-MM-DD") from None
    if day <= today:
        raise UsageError(f"{day} is not in the future", "--until", f"name a day after {today}")
    if day > today + datetime.timedelta(days=LONGEST):
        raise UsageError(f"{day} is more than a year away", "--until", "name a nearer day; it can be waived again then")
    return day


def _value(report: Mapping[str, Any], finding: str) -> float:
    """The worst value of the finding over its cases."""
    findings: Sequence[Mapping[str, Any]] = report["findings"]
    mine = [f for f in findings if f["id"] == finding]
    if not mine:
        known = list(dict.fromkeys(f["id"] for f in findings if f["severity"] == "fail"))
        near = get_close_matches(finding, known, 1, 0.3)
        do = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(known[:5]) or 'nothing that denies'}"
        raise UsageError(f"no finding {finding!r}", str(report.get("run") or "the report"), do)
    denying = [f for f in mine if f["severity"] == "fail"]
    if not denying:
        what = "is a warning and denies nothing" if mine[0]["severity"] == "warn" else "is not decided"
        raise UsageError(f"{finding!r} {what}: there is nothing to waive", "waive", str(mine[0]["next"]))
    worst = [float(f["value"]) for f in denying]
    if denying[0]["checker"] in UNWAIVABLE or not all(abs(v) < float("inf") for v in worst):
        do = str(denying[0]["next"])
        raise UsageError(
            f"{finding!r} cannot be waived: where names, shapes or finiteness break, no number counts", "waive", do
        )
    return max(worst)


def _append(policy: Path, entry: str) -> None:
    path = policy.resolve()  # a rename onto a symbolic link would replace the link
    text = f'schema = "{stamp("policy")}"\n'
    if path.exists():
        Policy.load(policy)
        text = path.read_text(encoding="utf-8")
    text = text if text.endswith("\n") else text + "\n"
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".toml", dir=path.parent)
    except OSError as error:
        raise UsageError(
            f"cannot be written: {error.strerror}", str(policy), "name another file with --policy"
        ) from None
    try:
        with open(handle, "w", encoding="utf-8") as stream:
            stream.write(f"{text}\n{entry}")
        if path.exists():
            shutil.copymode(path, name)
        else:
            os.chmod(name, 0o644)  # mkstemp's own 0600 would hide a shared policy from colleagues
        try:
            Policy.load(name)
        except UsageError as error:
            do = "write its waivers as [[waiver]] tables, not as an array"
            raise UsageError(f"cannot take a waiver: {error.what}", str(policy), do) from None
        os.replace(name, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
