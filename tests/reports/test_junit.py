"""A CI server must read it, and must not take the unproven for a pass."""

from __future__ import annotations

import dataclasses
from xml.etree import ElementTree

import pytest

from tests import made
from verify.judge import judge
from verify.policy import Policy
from verify.reports.junit import junit

NAMES = (made.passed, made.unproven, made.failed, made.crashed)


def tree(*verdicts):
    return ElementTree.fromstring(junit(verdicts).encode())


def suites():
    return {s.get("name"): s for s in tree(*(judge(name(), Policy()) for name in NAMES))}


def test_a_suite_per_variant_and_a_case_per_leg() -> None:
    found = suites()
    assert list(found) == ["minilm:cpu-fused@cpu", "minilm:fp16@rk3588", "minilm:int8@rk3588", "minilm:int16@rk3588"]
    assert [case.get("name") for case in found["minilm:cpu-fused@cpu"].iter("testcase")] == [
        "source~graph",
        "graph~device",
        "source~device",
    ]


def test_what_is_not_proven_is_an_error_and_nothing_is_skipped() -> None:
    cases = {case.get("name"): case for case in suites()["minilm:fp16@rk3588"].iter("testcase")}
    for leg in ("simulator~device", "graph~device", "source~device"):
        (error,) = cases[leg]
        assert (error.tag, error.get("message")) == ("error", "inconclusive: no board")
    assert not len(cases["graph~simulator"])


def test_a_failed_leg_names_its_findings() -> None:
    cases = {case.get("name"): case for case in suites()["minilm:int8@rk3588"].iter("testcase")}
    (failure,) = cases["graph~simulator"]
    assert failure.tag == "failure"
    assert "embedding: relative_l2 = 1.03, limit 0.999 [layers, tier 2" in failure.text
    assert "Next: start at the first divergent node" in failure.text


def test_the_counts_are_those_of_the_cases() -> None:
    root = tree(*(judge(name(), Policy()) for name in NAMES))
    for suite in [root, *root]:
        assert int(suite.get("tests")) == len(list(suite.iter("testcase")))
        assert int(suite.get("failures")) == len(list(suite.iter("failure")))
        assert int(suite.get("errors")) == len(list(suite.iter("error")))
    assert root.get("errors") != "0"


def test_properties_hold_outcome_suspects_and_versions() -> None:
    held = [(p.get("name"), p.get("value")) for p in suites()["minilm:int8@rk3588"].iter("property")]
    assert ("outcome", "failed") in held and ("build.rknn-toolkit2", "2.5.0") in held
    assert any(name == "suspect" and value.startswith("quantiser: ") for name, value in held)


@pytest.mark.parametrize("hostile", ["\x00\x1b\x0b", "\ud800", "\ufffe", "]]>", "<&\"'", "a\tb\nc"])
def test_hostile_text_leaves_valid_xml(hostile) -> None:
    run = made.failed()
    bad = made.measured("layers", "graph~simulator", "relative_l2", float("nan"), f"y{hostile}", hostile, note=hostile)
    verdict = judge(made.but(run, measurements=(*run.measurements, bad), folder=hostile), Policy())
    root = tree(dataclasses.replace(verdict, blame=(hostile,)))
    assert "relative_l2 = NaN" in ElementTree.tostring(root, encoding="unicode")


def test_a_verdict_that_did_not_pass_never_has_only_passing_cases() -> None:
    given = judge(made.unproven(), Policy())
    for tiers in ({}, {tier: dataclasses.replace(held, legs=()) for tier, held in given.tiers.items()}):
        root = tree(dataclasses.replace(given, tiers=tiers))
        assert len(list(root.iter("error"))) >= 1
