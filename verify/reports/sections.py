"""The parts of a report on the terminal: suspects, tier table, facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from verify.core import Outcome
from verify.diagnose.blame import seen_inside
from verify.reports import SUSPECTS, TIERS, number, pair, tidy
from verify.reports.page import Page, middle
from verify.verdict import LegVerdict, Verdict

WORD = {Outcome.PASSED: "passed", Outcome.FAILED: "FAILED", Outcome.INCONCLUSIVE: "inconclusive"}
LISTED = 5  # notes


def why(verdict: Verdict) -> str:
    """One line: what denies, or what is not proven, or what was held."""
    if verdict.outcome is Outcome.FAILED:
        return _why_failed(verdict)
    names = {tier: name for tier, (_, name) in TIERS.items()}
    if verdict.outcome is Outcome.INCONCLUSIVE:
        by_reason: dict[str, list[str]] = {}
        for tier, judged in verdict.tiers.items():
            open_legs = [leg for leg in judged.legs if leg.outcome is Outcome.INCONCLUSIVE]
            for reason in [leg.reason for leg in open_legs] or list(judged.reasons):
                if judged.outcome is not Outcome.PASSED and names[tier] not in by_reason.setdefault(reason, []):
                    by_reason[reason].append(names[tier])
        # the first clause is enough here: the whole reason stands below
        short = {reason: tidy(reason).partition("; ")[0] for reason in by_reason}
        open_ = "; ".join(f"{' and '.join(tiers)} not proven ({short[reason]})" for reason, tiers in by_reason.items())
        return f"nothing failed, {open_ or 'nothing was measured'}"
    waived = len({f.id for f in verdict.findings if f.waived})
    held = "everything is within its limits: " + ", ".join(names[tier] for tier in verdict.tiers)
    return held + (f" ({waived} finding{'s' if waived > 1 else ''} waived)" if waived else "")


def _why_failed(verdict: Verdict) -> str:
    for judged in verdict.tiers.values():
        for leg in judged.legs:
            if leg.outcome is Outcome.FAILED:
                what = f"{tidy(leg.reason)} ({leg.name})" if leg.reason else f"{_worst(leg)} ({leg.name})"
                first = verdict.first_divergent or {}
                node = first.get("node") or first.get("tensor") or ""
                return f"{what}; first divergent {tidy(node)}" if node and first.get("leg") == leg.name else what
    return "; ".join(tidy(r) for judged in verdict.tiers.values() for r in judged.reasons) or "see the findings"


def _worst(leg: LegVerdict) -> str:
    """For example "relative_l2 = 0.0012, limit 0.1 at y, case text2", or "" where nothing was measured."""
    if leg.worst is None:
        return ""
    value, limit = pair(float(leg.worst["value"]), float(leg.worst["limit"]))
    case = f", case {tidy(leg.worst['case'])}" if leg.worst.get("case") else ""
    return f"{leg.worst['metric']} = {value}, limit {limit} at {tidy(leg.worst['where'])}{case}"


#: A suspect -> the metrics that point at it, the most telling first.
EVIDENCE: Mapping[str, tuple[str, ...]] = {
    "quantiser": ("softmax_step", "clipped", "isolated_l2", "dead_blocks", "destroyed"),
    "precision": ("over_65504", "loss"),
}


def suspects(page: Page, verdict: Verdict) -> None:
    """Each suspect with what the word means, and the measurement that points at it."""
    if not verdict.blame:
        return
    page.title("Suspects, likeliest first" if len(verdict.blame) > 1 else "Suspect")
    room = max(map(len, verdict.blame))
    for name in verdict.blame:
        page.prose(SUSPECTS.get(name, "see the findings"), f"  {name:{room}}  ")
        pointing = (f for metric in EVIDENCE.get(name, ()) for f in verdict.findings if f.metric == metric)
        first = next(pointing, None)
        if first is not None:
            value, limit = pair(first.value, first.limit)
            places = len({f.where for f in verdict.findings if f.metric == first.metric})
            more = f" (and {places - 1} more {'places' if places > 2 else 'place'})" if places > 1 else ""
            page.line(f"  {'':{room}}  see {tidy(first.where)}: {first.metric} = {value}, limit {limit}{more}")


def tiers(page: Page, verdict: Verdict) -> None:
    """Tiers and their legs: outcome, the worst value with its limit and place, or why there is none."""
    page.gap()
    rows: list[tuple[str, Outcome, str, str, str]] = []
    for tier, judged in verdict.tiers.items():
        reason = "" if judged.legs else tidy("; ".join(judged.reasons)) or "nothing was measured"
        rows.append((f"{TIERS[tier][0]} {TIERS[tier][1]}", judged.outcome, "", "", reason))
        rows += [(f"  {leg.name}", leg.outcome, *_cells(leg)) for leg in judged.legs]
    head = ("tier and leg", "outcome", "worst", "limit")
    wide = [max(len(head[0]), *(len(row[0]) for row in rows)), max(map(len, WORD.values()))]
    wide += [max(len(head[i]), *(len(row[i]) for row in rows)) for i in (2, 3)]
    left = max(page.width - sum(wide) - 2 * len(wide), 24)
    titles = "  ".join(f"{title:{size}}" for title, size in zip(head, wide, strict=True))
    page.line(page.paint(f"{titles}  what", "dim"))
    for name, outcome, worst, limit, what in rows:
        room = left + wide[2] + wide[3] + 4
        rest = what if len(what) <= room else what[: room - 3] + "..."  # a reason tells most by its beginning
        if worst:
            rest = f"{worst:{wide[2]}}  {limit:{wide[3]}}  {middle(what, left)}"
        blanks = " " * (wide[1] - len(WORD[outcome]) + 2)
        page.line(f"{name:{wide[0]}}  {page.paint(WORD[outcome], outcome.value)}" + (blanks + rest if rest else ""))


def _cells(leg: LegVerdict) -> tuple[str, str, str]:
    if leg.reason or leg.worst is None:
        return "", "", tidy(leg.reason)
    what = f"{leg.worst['metric']}, {tidy(leg.worst['where'])}" + (" (waived)" if leg.worst.get("waived") else "")
    return *pair(float(leg.worst["value"]), float(leg.worst["limit"])), what


def facts(page: Page, verdict: Verdict, verbose: bool) -> None:
    """First divergent node, what was never compared, power, notes; with `verbose` also environment and policy."""
    if verdict.coverage:
        total, uncovered = verdict.coverage.get("total", 0), list(verdict.coverage.get("uncovered", ()))
        text = f"Compared: {verdict.coverage.get('compared', 0)} of {total} tensors"
        if uncovered and verbose:
            text += f"; never: {', '.join(uncovered)}"
        elif uncovered:
            names = ", ".join(uncovered)
            text += f"; never: {names}" if len(names) < page.width // 2 else " (the rest is fused away: --verbose)"
        page.prose(text, rest="  ")
    if verdict.power:
        least = ", ".join(_power(item) for item in verdict.power)
        page.prose(f"Smallest faults caught with 95 % probability: {least}", rest="  ")
    notes = list(dict.fromkeys(verdict.notes))
    for note in notes if verbose else notes[:LISTED]:
        page.prose(f"Note: {note}", rest="  ")
    if not verbose:
        if len(notes) > LISTED:
            page.line(f"and {len(notes) - LISTED} more notes (--verbose)")
        return
    page.section("Environment", (f"{key}: {_flat(value)}" for key, value in verdict.environment.items() if value))
    page.section("Policy", (f"{key}: {_flat(value)}" for key, value in verdict.policy.items() if value))


def first_divergent(page: Page, verdict: Verdict) -> None:
    first = verdict.first_divergent
    if first:
        place = first.get("node") or first.get("tensor", "")
        what = ", ".join(part for part in (first.get("op", ""), first.get("leg", "")) if part)
        page.line(page.paint("First divergent node: ", "title") + tidy(place) + (f" [{what}]" if what else ""))
        if first.get("op") != "Input" and not seen_inside(verdict.measurements, first.get("leg", "")):
            page.line("  as far as outputs show: nothing inside this leg was compared")
        if first.get("tensor") and first["tensor"] != place:
            page.line(f"  its output: {tidy(first['tensor'])}")


def _power(item: Mapping[str, Any]) -> str:
    least, unit = float(item["minimum_detectable"]), str(item.get("unit", ""))
    if least != least or least == float("inf"):
        return f"{item['fault']}: none of any size"
    return f"{item['fault']} {number(100 * least)} %" + (f" of the {unit}" if unit == "rms" else "")


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_flat(item)}" for key, item in value.items())
    return ", ".join(map(_flat, value)) if isinstance(value, Iterable) and not isinstance(value, str) else str(value)
