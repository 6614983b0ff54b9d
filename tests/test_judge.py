"""From measurements to a verdict: denied unless proven, by the tighter limit, and stable when stored."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math

import pytest

from tests import made
from verify.core import Outcome, Tier, UsageError
from verify.judge import judge, judge_one
from verify.policy import REQUIRED, Policy, Waiver
from verify.stored import from_document, to_document
from verify.verdict import _plain

TODAY = datetime.date(2027, 1, 10)
P, F, OPEN = Outcome.PASSED, Outcome.FAILED, Outcome.INCONCLUSIVE


def outcomes(run, policy=None):
    verdict = judge(run, policy or Policy(), TODAY)
    return verdict, {leg.name: leg.outcome for tier in verdict.tiers.values() for leg in tier.legs}


def with_(run, *measurements):
    return made.but(run, measurements=(*run.measurements, *measurements))


def changed(run, metric, **changes):
    return made.but(
        run,
        measurements=tuple(dataclasses.replace(m, **changes) if m.metric == metric else m for m in run.measurements),
    )


def without(run, checker):
    return made.but(run, measurements=tuple(m for m in run.measurements if m.checker != checker))


@pytest.mark.parametrize(
    ("run", "outcome"), [(made.passed, P), (made.unproven, OPEN), (made.failed, F), (made.crashed, OPEN)]
)
def test_the_four_usual_runs(run, outcome) -> None:
    assert judge(run(), Policy(), TODAY).outcome is outcome


def test_simulator_evidence_never_passes_a_tier() -> None:
    verdict, legs = outcomes(made.unproven())
    assert legs["graph~simulator"] is P and verdict.tiers[Tier.DEVICE].outcome is OPEN
    assert verdict.not_proven == ("device (no board)", "end_to_end (no board)")


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.00011])
def test_a_value_must_be_within_its_limit(value) -> None:
    verdict, legs = outcomes(changed(made.passed(), "relative_l2", value=value))
    assert legs["source~graph"] is F and verdict.outcome is F
    assert outcomes(changed(made.passed(), "relative_l2", value=0.0001))[0].passed  # the limit itself is within


def test_an_unknown_metric_never_passes() -> None:
    verdict, legs = outcomes(with_(made.passed(), made.measured("layers", "graph~device", "made_up", 0.0)))
    assert legs["graph~device"] is F
    assert "limit unknown" in verdict.findings[0].message and "no limit is known" in verdict.findings[0].message


@pytest.mark.parametrize(
    "checker", ["structure", "finite", "coverage", "diversity", "parity", "layers", "accuracy", "agreement"]
)
def test_a_required_checker_that_measured_nothing_proves_nothing(checker) -> None:
    verdict, _ = outcomes(without(made.passed(), checker))
    assert verdict.outcome is OPEN
    assert any(f"{checker} measured nothing" in reason for tier in verdict.tiers.values() for reason in tier.reasons)


@pytest.mark.parametrize("checker", ["layers", "range", "mine"])  # the last two have no leg that they must measure
def test_a_required_checker_that_crashed_fails(checker) -> None:
    run = made.passed()
    run = made.but(
        run, crashed={checker: "ValueError('x') at mine.py:3"}, ran={**run.ran, checker: run.ran.get(checker, ())}
    )
    verdict, _ = outcomes(run, Policy(require=(*REQUIRED, "mine")) if checker == "mine" else None)
    assert verdict.outcome is F and verdict.blame == ("undetermined",)
    assert any("did not run" in reason for tier in verdict.tiers.values() for reason in tier.reasons)
    assert any(checker in step for step in verdict.next_steps)


def test_a_required_plugin_that_is_silent_or_was_never_asked_proves_nothing() -> None:
    run, policy = made.passed(), Policy(require=(*REQUIRED, "mine"))
    assert outcomes(run, policy)[0].outcome is OPEN  # judged again under a policy that wants more
    asked = made.but(run, ran={**run.ran, "mine": ()})
    assert outcomes(asked, policy)[0].outcome is OPEN
    spoken = with_(asked, made.measured("mine", "graph~device", "x", 0.1))
    assert outcomes(spoken, Policy(require=policy.require, limits={("mine", "x"): {"*": 0.2}}))[0].passed


def test_no_legs_no_measurements_no_requirements_never_pass() -> None:
    run = made.passed()
    assert not outcomes(made.but(run, legs=()))[0].passed
    assert not outcomes(made.but(run, measurements=()))[0].passed
    assert not outcomes(run, Policy(require=()))[0].passed
    assert not outcomes(made.but(run, legs=tuple(leg for leg in run.legs if leg.tier is not Tier.DEVICE)))[0].passed


@pytest.mark.parametrize("evidence", ["replay", "emulated", "simulator", ""])
def test_what_is_not_hardware_may_deny_and_never_passes(evidence) -> None:
    def at(error):
        legs = tuple(dataclasses.replace(leg, evidence=evidence) for leg in made.CPU_LEGS)
        return outcomes(changed(made.but(made.passed(), legs=legs), "relative_l2", value=error))[1]["graph~device"]

    assert (at(1e-6), at(0.5)) == (OPEN, F)


def test_a_broken_structure_fails_whatever_the_numbers_say() -> None:
    verdict, legs = outcomes(made.but(made.passed(), broken={"graph~device": "output y did not come back"}))
    assert legs["graph~device"] is F
    assert verdict.tiers[Tier.DEVICE].reasons == ("output y did not come back",)


def test_an_interval_decides_by_its_ends() -> None:
    for interval, outcome in (((-0.01, 0.009), P), ((-0.01, 0.02), OPEN), ((0.011, 0.02), F), ((-0.01, math.nan), F)):
        value = sum(interval) / 2 if interval[1] == interval[1] else 0.0
        verdict, legs = outcomes(changed(made.passed(), "loss", value=value, interval=interval))
        assert legs["source~device"] is outcome, interval
    verdict, _ = outcomes(changed(made.passed(), "loss", value=0.005, interval=(-0.01, 0.02), null={"margin": 0.01}))
    assert verdict.findings[0].severity == "undecided"
    assert "give more scored cases; too few decide this margin" in verdict.next_steps


def test_a_budget_gates_what_is_only_stated_and_never_loosens() -> None:
    cuts = with_(made.unproven(), made.measured("regions", "graph~simulator", "departures", 3, "layer table", ""))
    assert outcomes(cuts)[1]["graph~simulator"] is P
    assert outcomes(made.but(cuts, budgets={"regions.departures": 2}))[1]["graph~simulator"] is F
    bad = changed(made.passed(), "relative_l2", value=0.5)
    assert not outcomes(made.but(bad, budgets={**bad.budgets, "layers.relative_l2": 9.0, "parity.relative_l2": 9.0}))[
        0
    ].passed
    tight = made.but(made.passed(), budgets={"accuracy.loss": 0.01, "layers.relative_l2": 1e-7})
    assert outcomes(tight)[1]["graph~device"] is F


def test_a_policy_may_tighten_the_candidates_own_margin() -> None:
    policy = Policy(limits={("accuracy", "loss"): {"*": 0.005}})
    verdict, legs = outcomes(made.passed(), policy)
    assert legs["source~device"] is OPEN  # (-0.01, 0.009) is within 0.01, and open at 0.005
    assert not outcomes(made.but(made.passed(), budgets={}))[0].passed  # no margin at all: no limit


def test_a_waiver_covers_a_finding_up_to_its_value_until_its_day() -> None:
    run = changed(made.passed(), "relative_l2", value=0.5)
    ids = {f.id for f in judge(run, Policy(), TODAY).findings}
    assert ids == {"parity/source~graph/embedding/relative_l2", "layers/graph~device/embedding/relative_l2"}

    def judged(value=0.5, until=TODAY):
        waivers = tuple(Waiver(name, until, "known", value) for name in ids)
        return judge(run, Policy(waivers=waivers), TODAY)

    assert judged().passed and judged(0.46).passed and all(f.waived for f in judged().findings)
    assert not judged(0.45).passed  # 0.5 is more than a tenth beyond
    late = judged(until=TODAY - datetime.timedelta(days=1))
    assert not late.passed and any("ended on" in note for note in late.notes)
    assert judged().first_divergent is None and judged().tiers[Tier.DEVICE].legs[0].worst["waived"]
    stale = judge(made.passed(), Policy(waivers=(Waiver("layers/x/y/z", TODAY, "old", 1.0),)), TODAY)
    assert any("stale" in note for note in stale.notes)


def test_a_stored_run_gives_the_same_verdict() -> None:
    for name in (made.passed, made.unproven, made.failed, made.crashed):
        run = with_(name(), made.measured("layers", "source~graph", "relative_l2", math.nan, interval=(0.0, math.inf)))
        stored = json.loads(json.dumps(_plain(to_document(run)), allow_nan=False))
        assert judge(from_document(stored), Policy(), TODAY).to_json() == judge(run, Policy(), TODAY).to_json()


@pytest.mark.parametrize("key", ["legs", "measurements", "candidate", "ran", "budgets"])
def test_a_damaged_run_is_one_line(key) -> None:
    stored = _plain(to_document(made.passed()))
    for broken in ({k: v for k, v in stored.items() if k != key}, {**stored, key: 3}):
        if key == "candidate" and key in broken:
            continue
        with pytest.raises(UsageError, match="not a stored run"):
            from_document(broken)


def test_the_report_is_one_line_of_json_with_waivers_in_it() -> None:
    policy = Policy(waivers=(Waiver("layers/x/y/z", TODAY, "old", 1.0),))
    document = json.loads(judge(made.failed(), policy, TODAY).to_json())
    assert document["schema"] == "npu-verify/report/1" and document["policy"]["waivers"][0]["until"] == "2027-01-10"
    assert document["policy"]["require"] == list(REQUIRED)
    assert set(document) >= {
        "outcome",
        "candidate",
        "tiers",
        "blame",
        "first_divergent",
        "findings",
        "coverage",
        "power",
    }
    assert document["tiers"]["device"]["reasons"][0].startswith("graph~simulator: embedding: relative_l2 = 1.03, limit")


def test_judge_one_ranks_nan_and_zero_limits_as_the_furthest() -> None:
    for m in (
        made.measured("parity", "source~graph", "relative_l2", math.nan),
        made.measured("finite", "source~graph", "nonfinite", 1),
    ):
        assert judge_one(m, made.passed(), Policy(), TODAY).closeness == math.inf


def test_a_policy_that_leaves_a_checker_out_is_seen_in_the_report() -> None:
    verdict, _ = outcomes(made.passed(), Policy("lax", require=tuple(name for name in REQUIRED if name != "finite")))
    assert verdict.passed and verdict.notes[0].startswith("the policy lax leaves out finite: ")
    assert judge(made.passed(), Policy()).notes == made.passed().notes


@pytest.mark.parametrize(
    "spoil",
    [
        lambda held: held["measurements"][-3].update(interval=[1.0]),
        lambda held: held["measurements"][-3].update(interval=[1.0, -1.0]),
        lambda held: held["measurements"][0].update(checker=["structure"]),
        lambda held: held["measurements"][0]["where"].update(leg=["source~graph"]),
        lambda held: held["legs"][0].update(evidence=7),
        lambda held: held.update(candidate={}),
        lambda held: held.update(candidate="minilm"),
        lambda held: held.update(precision=["fp32"]),
        lambda held: held.update(broken=[1]),
        lambda held: held.update(crashed=["layers"]),
    ],
)
def test_a_run_that_somebody_wrote_wrongly_is_refused_in_words(spoil) -> None:
    held = json.loads(json.dumps(_plain(to_document(made.passed()))))
    assert judge(from_document(held), Policy(), TODAY).passed
    spoil(held)
    with pytest.raises(UsageError, match="not a stored run"):
        judge(from_document(held), Policy(), TODAY)
