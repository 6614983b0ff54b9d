"""Verdicts as JUnit XML: a suite per variant, a case per leg; what is not proven is an error, never a pass."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

from verify.core import Outcome, Tier
from verify.reports import SUSPECTS, TIERS, denying, sentence, tidy

if TYPE_CHECKING:
    from verify.verdict import LegVerdict, TierVerdict, Verdict

#: Everything outside XML 1.0's Char production: it may not appear, not even as a character reference.
FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(verdicts: Sequence[Verdict]) -> str:
    """One JUnit document: what failed is a `failure`, what has no evidence an `error`, in check and gate alike."""
    suites = [_suite(verdict) for verdict in verdicts]
    totals = _counts([case for _, cases in suites for case in cases])
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f'<testsuites name="npu-verify" {totals}>']
    for head, cases in suites:
        lines += [head, *(text for text, _ in cases), "  </testsuite>"]
    return "\n".join([*lines, "</testsuites>"])


Cases = list[tuple[str, Outcome]]


def _suite(verdict: Verdict) -> tuple[str, Cases]:
    cases: Cases = []
    for tier in Tier:
        judged = verdict.tiers.get(tier)
        if judged is None:
            continue
        cases += [_leg(verdict, tier, leg) for leg in judged.legs]
        if (
            not judged.legs
            or all(leg.outcome is Outcome.PASSED for leg in judged.legs)
            and judged.outcome is not Outcome.PASSED
        ):
            cases.append(_tier(verdict, tier, judged))
    if all(outcome is Outcome.PASSED for _, outcome in cases) and not verdict.passed:
        cases.append(_case(verdict, "verdict", "verdict", verdict.outcome, "the verdict as a whole", ()))
    head = f"  <testsuite name={_attribute(verdict.name)} {_counts(cases)}>\n{_properties(verdict)}"
    return head, cases


def _counts(cases: Cases) -> str:
    outcomes = [outcome for _, outcome in cases]
    failed, open_ = outcomes.count(Outcome.FAILED), outcomes.count(Outcome.INCONCLUSIVE)
    return f'tests="{len(cases)}" failures="{failed}" errors="{open_}" skipped="0"'


def _leg(verdict: Verdict, tier: Tier, leg: LegVerdict) -> tuple[str, Outcome]:
    mine = [f for f in denying(verdict) if f.leg == leg.name and f.tier == tier.value]
    body = [part for f in mine for part in (sentence(f), f"Reproduce: {f.reproduce}", f"Next: {f.next}")]
    reason = leg.reason or (sentence(mine[0]) if mine else "")
    return _case(verdict, TIERS[tier][1], leg.name, leg.outcome, reason, body)


def _tier(verdict: Verdict, tier: Tier, judged: TierVerdict) -> tuple[str, Outcome]:
    reason = "; ".join(judged.reasons) or "nothing was measured"
    return _case(verdict, TIERS[tier][1], f"{TIERS[tier][1]} tier", judged.outcome, reason, ())


def _case(
    verdict: Verdict, group: str, name: str, outcome: Outcome, reason: str, body: Iterable[str]
) -> tuple[str, Outcome]:
    open_tag = f"    <testcase classname={_attribute(f'{verdict.name}.{group}')} name={_attribute(name)}"
    if outcome is Outcome.PASSED:
        return f"{open_tag}/>", outcome
    kind = "failure" if outcome is Outcome.FAILED else "error"
    message = tidy(reason) if outcome is Outcome.FAILED else f"inconclusive: {tidy(reason)}"
    steps = [f"Next: {step}" for step in verdict.next_steps] if outcome is Outcome.INCONCLUSIVE else []
    text = escape("\n".join(tidy(line) for line in [*body, *steps]))
    return (
        f"{open_tag}><{kind} type={_attribute(outcome.value)} message={_attribute(message)}>{text}</{kind}></testcase>",
        outcome,
    )


def _properties(verdict: Verdict) -> str:
    pairs: list[tuple[str, str]] = [("outcome", verdict.outcome.value)]
    pairs += [("suspect", f"{name}: {SUSPECTS.get(name, '')}".rstrip(": ")) for name in verdict.blame]
    if verdict.first_divergent:
        pairs.append(
            ("first_divergent", verdict.first_divergent.get("node") or verdict.first_divergent.get("tensor", ""))
        )
    pairs += [("not_proven", item) for item in verdict.not_proven]
    pairs += [("waived", f"{f.id} ({f.waived})") for f in verdict.findings if f.waived]
    pairs += [(f"sha256.{a.get('role', '')}", str(a.get("sha256", ""))) for a in verdict.candidate.get("artifacts", ())]
    pairs += [("policy", str(verdict.policy.get("name", ""))), ("run", verdict.run)]
    for group in ("host", "build", "packages"):
        held = verdict.environment.get(group, {})
        pairs += [(f"{group}.{key}", str(value)) for key, value in held.items()] if isinstance(held, Mapping) else []
    lines = [f"      <property name={_attribute(k)} value={_attribute(v)}/>" for k, v in pairs if v]
    return "\n".join(["    <properties>", *lines, "    </properties>"])


def _attribute(value: Any) -> str:
    return quoteattr(FORBIDDEN.sub("", str(value)))
