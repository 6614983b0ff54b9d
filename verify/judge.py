"""Policy.judge: from stored measurements to a verdict, without a board and without a model."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from verify.core import Measurement, Outcome, Tier
from verify.limits import Limit
from verify.policy import REQUIRED, Policy
from verify.stored import LegRecord, Run
from verify.trial import PROOF
from verify.verdict import Finding, LegVerdict, TierVerdict, Verdict


@dataclass(frozen=True)
class Judged:
    """One measurement with its limit: `state` is "pass", "fail", "warn", "undecided" or "report"."""

    measurement: Measurement
    limit: float
    origin: str
    state: str
    waived: str = ""

    @property
    def closeness(self) -> float:
        """The value (or its upper bound) over its limit, to rank by; over a limit of zero it is infinite."""
        value = self.measurement.interval[1] if self.measurement.interval else self.measurement.value
        if value != value:
            return float("inf")
        return value / self.limit if self.limit > 0 else (0.0 if value <= 0 else float("inf"))


def finding_id(m: Measurement) -> str:
    """Stable between runs: "checker/leg/tensor/metric", with the part in brackets where there is one."""
    return f"{m.checker}/{m.where.leg}/{m.where}/{m.metric}"


def judge_one(m: Measurement, run: Run, policy: Policy, today: datetime.date) -> Judged:
    """Pass is `value <= limit`; with an interval, its upper end. No limit at all is a fail."""
    limit = _limit(m, run, policy)
    if limit is None:
        return Judged(m, float("nan"), "no limit is known for this metric", "fail")
    value, origin, action = limit.value, limit.origin, limit.action
    if action == "report":
        return Judged(m, value, origin, "report")
    low, high = m.interval if m.interval else (m.value, m.value)
    if high <= value and m.value <= value:  # what could only have warned proves nothing by not warning
        return Judged(m, value, origin, "pass" if action == "fail" else "report")
    if m.interval and not low > value and high == high and m.value == m.value:
        return Judged(m, value, origin, "undecided")
    if action == "warn":
        return Judged(m, value, origin, "warn")
    for waiver in policy.waivers:
        if waiver.covers(finding_id(m), m.value, today):
            return Judged(m, value, origin, "fail", f"waived until {waiver.until}: {waiver.reason}")
    return Judged(m, value, origin, "fail")


def _limit(m: Measurement, run: Run, policy: Policy) -> Limit | None:
    """The policy's limit; a candidate's budget makes a gate of what is only stated, and never loosens what denies."""
    held = policy.limit(m.checker, m.metric, run.precision, m.null)
    budget = run.budgets.get(f"{m.checker}.{m.metric}")
    if budget is None or (held is not None and held.action == "fail" and not budget < held.value):
        return held
    return Limit(budget, "declared by the candidate")


def judge(run: Run, policy: Policy, today: datetime.date | None = None) -> Verdict:
    """The verdict that follows from a run's measurements under a policy. `today` decides which waivers are in force."""
    from verify.diagnose.blame import blame, next_steps
    from verify.diagnose.first import first_divergent, why_none

    today = today or datetime.datetime.now(datetime.timezone.utc).date()
    judged = [judge_one(m, run, policy, today) for m in run.measurements]
    tiers = {tier: _tier(tier, run, policy, judged) for tier in Tier}
    outcomes = [tier.outcome for tier in tiers.values()]
    worst = Outcome.PASSED
    if Outcome.FAILED in outcomes:
        worst = Outcome.FAILED
    elif Outcome.INCONCLUSIVE in outcomes:
        worst = Outcome.INCONCLUSIVE
    findings = tuple(_finding(j, run) for j in judged if j.state in ("fail", "warn", "undecided"))
    first = first_divergent(judged, run)
    used = {w.finding for w in policy.waivers if any(f.id == w.finding for f in findings)}
    notes = list(run.notes)
    if first is None and why_none(judged):
        notes.append(why_none(judged))
    if left := [name for name in REQUIRED if name not in policy.require]:
        notes.insert(0, f"the policy {policy.name} leaves out {', '.join(left)}: what they deny is not looked for")
    notes += [f"waiver for {w.finding} is stale: nothing to waive" for w in policy.waivers if w.finding not in used]
    notes += [f"waiver for {w.finding} ended on {w.until}" for w in policy.waivers if w.until < today]
    far = [w for w in policy.waivers if w.until >= today and not w.in_force(today)]
    notes += [f"waiver for {w.finding} is for more than a year, until {w.until}: not in force" for w in far]
    verdict = Verdict(
        outcome=worst,
        candidate=run.candidate,
        tiers=tiers,
        blame=blame(tiers, judged, run),
        first_divergent=first,
        findings=findings,
        coverage=run.coverage,
        power=tuple(_power(m) for m in run.measurements if m.grain == "power"),
        measurements=run.measurements,
        environment=run.environment,
        notes=tuple(notes),
        policy={
            "name": policy.name,
            "sha256": policy.sha256,
            "require": list(policy.require),
            "waivers": [{**asdict(w), "until": w.until.isoformat()} for w in policy.waivers],
        },
        run=run.folder,
    )
    return dataclasses.replace(verdict, next_steps=next_steps(verdict, judged, run))


#: What the metrics of grain "power" are the smallest of.
FAULTS = {
    "gain": "gain of a layer",
    "bias": "bias of a layer",
    "channel": "gain of a channel",
    "element": "one element",
}


def _power(m: Measurement) -> Mapping[str, Any]:
    return {
        "checker": m.checker,
        "fault": FAULTS.get(m.metric, m.metric),
        "minimum_detectable": m.value,
        "unit": m.unit,
        "note": m.note,
    }


def _tier(tier: Tier, run: Run, policy: Policy, judged: list[Judged]) -> TierVerdict:
    legs = tuple(_leg(leg, run, policy, judged) for leg in run.legs if leg.tier is tier)
    reasons = tuple(dict.fromkeys(leg.reason or _beyond(leg) for leg in legs if leg.outcome is not Outcome.PASSED))
    if any(leg.outcome is Outcome.FAILED for leg in legs):
        return TierVerdict(Outcome.FAILED, reasons, legs)
    if not legs or any(leg.outcome is Outcome.INCONCLUSIVE for leg in legs):
        return TierVerdict(Outcome.INCONCLUSIVE, reasons or ("nothing was measured",), legs)
    return TierVerdict(Outcome.PASSED, reasons, legs)


def _beyond(leg: LegVerdict) -> str:
    from verify.reports import pair

    worst = leg.worst or {}
    value, limit = pair(worst["value"], worst["limit"])
    return f"{leg.name}: {worst['where']}: {worst['metric']} = {value}, limit {limit}"


def _leg(leg: LegRecord, run: Run, policy: Policy, judged: list[Judged]) -> LegVerdict:
    names = {held.name for held in run.legs}
    mine = [j for j in judged if _speaks_of(j.measurement, leg, names) and j.measurement.checker in policy.require]
    gated = [j for j in mine if j.state in ("pass", "fail", "undecided")]
    top = max(gated, key=_rank, default=None)
    worst = _worst(top) if top else None
    if leg.name in run.broken:
        return LegVerdict(leg.name, Outcome.FAILED, worst, run.broken[leg.name])
    if leg.missing:
        return LegVerdict(leg.name, Outcome.INCONCLUSIVE, None, leg.missing)
    if any(j.state == "fail" and not j.waived for j in mine):
        return LegVerdict(leg.name, Outcome.FAILED, worst)
    missing = [name for name in policy.require if name in run.crashed and leg.name in (run.ran.get(name) or [leg.name])]
    if missing:
        return LegVerdict(leg.name, Outcome.FAILED, worst, f"{missing[0]} did not run: {run.crashed[missing[0]]}")
    seen = {j.measurement.checker for j in mine}
    silent = [name for name in policy.require if leg.name in run.ran.get(name, ()) and name not in seen]
    if silent:
        return LegVerdict(leg.name, Outcome.INCONCLUSIVE, worst, f"{', '.join(silent)} measured nothing")
    heard = {m.checker for m in run.measurements} | set(REQUIRED)  # a plugin has no legs that it must measure, but some
    unheard = [name for name in policy.require if name not in run.ran or name not in heard]
    if unheard:
        return LegVerdict(leg.name, Outcome.INCONCLUSIVE, worst, f"{', '.join(unheard)} did not run: check again")
    undecided = [j for j in mine if j.state == "undecided"]
    if undecided:
        note = undecided[0].measurement.note
        return LegVerdict(leg.name, Outcome.INCONCLUSIVE, worst, f"{undecided[0].measurement.where}: {note}")
    if not gated:
        return LegVerdict(leg.name, Outcome.INCONCLUSIVE, worst, "nothing was measured")
    if not leg.name.endswith("~simulator") and leg.evidence not in PROOF:  # it may deny, as above, and never passes
        what = f"{leg.evidence or 'unknown'} evidence proves nothing about the hardware"
        return LegVerdict(leg.name, Outcome.INCONCLUSIVE, worst, what)
    return LegVerdict(leg.name, Outcome.PASSED, worst)


def _speaks_of(m: Measurement, leg: LegRecord, names: set[str]) -> bool:
    """Whether a number counts in this leg; one that names no leg of the run counts in all of its tier."""
    return m.where.leg == leg.name or (m.where.leg not in names and m.tier in (leg.tier, None))


def _rank(j: Judged) -> tuple[bool, bool, float]:
    """What a leg is known by: a denying number before any other, an output's before an inner tensor's, the largest."""
    inner = j.measurement.grain in ("layer", "isolated")
    return j.state == "fail" and not j.waived, not inner, j.closeness


def _worst(j: Judged) -> Mapping[str, Any]:
    m = j.measurement
    return {
        "where": str(m.where),
        "case": m.where.case,
        "checker": m.checker,
        "metric": m.metric,
        "value": m.value,
        "limit": j.limit,
        "origin": j.origin,
        "waived": j.waived,
    }


def _finding(j: Judged, run: Run) -> Finding:
    from verify.diagnose.blame import advice
    from verify.reports import number, sentence

    m = j.measurement
    finding = Finding(
        id=finding_id(m),
        tier=(m.tier or Tier.DEVICE).value,
        leg=m.where.leg,
        checker=m.checker,
        where=str(m.where),
        case=m.where.case,
        metric=m.metric,
        value=m.value,
        limit=j.limit,
        message="",
        reproduce=run.command,
        next=advice(m, run),
        severity=j.state,
        waived=j.waived,
    )
    within = f"between {number(m.interval[0])} and {number(m.interval[1])}" if m.interval else ""
    unlimited = j.origin if j.limit != j.limit else ""
    return dataclasses.replace(
        finding, message="; ".join(t for t in (sentence(finding), within, m.note, unlimited) if t)
    )
