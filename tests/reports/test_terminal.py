"""What a tired engineer reads first, and that nothing of it is lost on the way."""

from __future__ import annotations

import dataclasses
import re

import pytest

from tests import made
from verify.core import Outcome
from verify.judge import judge
from verify.policy import Policy
from verify.reports import number, pair, remark, sentence, tidy
from verify.reports.terminal import render, summary
from verify.verdict import Finding, Verdict

RUNS = (made.passed, made.unproven, made.failed, made.crashed)


def verdict(name) -> Verdict:
    return judge(name(), Policy())


@pytest.mark.parametrize("name", RUNS)
def test_colour_adds_escapes_and_nothing_else(name) -> None:
    plain, coloured = render(verdict(name)), render(verdict(name), colour=True)
    assert "\x1b" not in plain and coloured != plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_an_inconclusive_report_fits_on_one_screen_and_says_what_is_not_proven() -> None:
    lines = render(verdict(made.unproven)).splitlines()
    assert lines[0].startswith("INCONCLUSIVE  minilm:fp16@rk3588: nothing failed") and "no board" in lines[0]
    assert "NOT PROVEN: device (no board)" in lines
    assert len(lines) <= 30
    assert any("connect a board" in line for line in lines)


def test_a_failed_report_starts_with_why_then_suspects_then_the_table() -> None:
    text = render(verdict(made.failed))
    first, *_ = text.splitlines()
    assert first.startswith("FAILED  minilm:int8@rk3588: ") and "limit 0.999" in first
    order = ["quantiser  the integer", "/layers.0/sdpa_q_add: softmax_step", "1 graph ", "Beyond a limit", "NOT PROVEN"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "First divergent node: /layers.0/norm2/LayerNormalization [" in text


def test_the_worst_case_stands_for_the_others_and_advice_is_given_once() -> None:
    text = render(verdict(made.failed))
    norm = "  /layers.3/norm2/LayerNormalization_output_0: relative_l2 = 1.04, limit 0.999"
    norm += " [layers, tier 2, graph~simulator, case text1]"
    assert norm + " (worst of 2 cases)" in text.splitlines()
    assert "and 2 more (--verbose)" in text  # 7 places, 5 shown
    assert text.count("Reproduce: ") == 1
    assert text.count("Next: start at the first divergent node") == 1


def test_verbose_shows_every_finding_with_its_id() -> None:
    given = verdict(made.failed)
    text = render(given, verbose=True)
    assert text.count("id: ") == len(given.findings)
    assert "Erf_output_0" in text and "rknn-toolkit2 2.5.0" in text


def test_a_waived_limit_is_never_shown_as_if_it_held() -> None:
    finding = Finding(
        "a", "device", "graph~device", "layers", "y", "", "relative_l2", 2.0, 1.0, "", "", "", waived="waived until X"
    )
    given = dataclasses.replace(verdict(made.passed), findings=(finding,))
    text = render(given)
    assert "(1 finding waived)" in text.splitlines()[0]
    assert "Beyond a limit" not in text and "waived until X" in text


def test_hostile_names_stay_on_their_line() -> None:
    run = made.unproven()
    bad = made.measured("layers", "graph~simulator", "relative_l2", 9.0, "y\n\x1b[2JPASSED", "c\r1", note="a\nb")
    text = render(judge(made.but(run, measurements=(*run.measurements, bad), notes=("x\x07\ny",)), Policy()))
    assert "\x1b" not in text and "\r" not in text and "\x07" not in text
    assert not any(line.startswith("PASSED") for line in text.splitlines())


def test_a_verdict_without_any_leg_says_so() -> None:
    given = verdict(made.passed)
    empty = {
        t: dataclasses.replace(v, legs=(), outcome=Outcome.INCONCLUSIVE, reasons=()) for t, v in given.tiers.items()
    }
    text = render(dataclasses.replace(given, tiers=empty, outcome=Outcome.INCONCLUSIVE))
    assert "NOT PROVEN: device (nothing measured)" in text
    assert "nothing was measured" in text


def test_summary_has_a_line_per_variant_and_never_a_yes_for_what_is_open() -> None:
    lines = summary([verdict(name) for name in RUNS], width=120).splitlines()
    assert len(lines) == len(RUNS) + 2 and max(map(len, lines)) <= 120
    rows = {line.split()[0]: line.split()[1:5] for line in lines[1:-1]}
    assert rows["minilm:cpu-fused@cpu"] == ["passed", "yes", "yes", "yes"]
    assert rows["minilm:fp16@rk3588"] == ["inconclusive", "yes", "?", "?"]
    assert rows["minilm:int8@rk3588"] == ["FAILED", "yes", "NO", "NO"]


def test_numbers() -> None:
    shown = [number(x) for x in (0.0, 0.31234, 1.234e-5, 65504.0, 12345.6, 2e9, float("nan"), float("-inf"))]
    assert shown == ["0", "0.312", "1.23e-5", "65504", "12300", "2e9", "NaN", "-infinite"]
    assert pair(0.9991, 0.999) == ("0.9991", "0.999")
    assert pair(1.0000000001, 1.0)[0] != "1"
    assert pair(1.0, float("inf"))[1] == "none" and pair(1.0, float("nan"))[1] == "unknown"


def test_the_message_is_the_sentence_and_its_remark() -> None:
    found = next(f for f in verdict(made.failed).findings if f.metric == "loss")
    line = "retrieval_at_1: loss = 0.41, limit 0.01 [accuracy, tier 3, source~simulator]"
    assert sentence(found) == line and found.message.startswith(line + "; between 0.34 and 0.48; source")
    assert remark(found).startswith("between 0.34")
    assert tidy(" a\n b\x00") == "a b "


def test_a_long_reason_is_told_once_and_a_short_one_beside_each_tier() -> None:
    long = (
        "the toolkit died of signal 4 (SIGILL) in hybrid_quantization_step2; the last error in its log: Meet "
        + "x" * 60
    )
    for reason, count in ((long, 1), ("no board", 2)):
        lines = [line for line in render(missing(reason)).splitlines() if "NOT PROVEN" in line]
        assert lines[0] == f"NOT PROVEN: device ({reason})"
        assert len(lines) == 2 and sum(reason in line for line in lines) == count
    assert "; the last error" not in render(missing(long)).splitlines()[0]


def missing(reason: str) -> Verdict:
    given = made.unproven()
    legs = tuple(dataclasses.replace(leg, missing=reason) if leg.missing else leg for leg in given.legs)
    return judge(made.but(given, legs=legs), Policy())
