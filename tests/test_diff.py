"""What changed is said, what did not is not, and an unchanged pair says what was compared."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tests import made
from verify.core import UsageError
from verify.diff import diff
from verify.judge import judge
from verify.policy import Policy


def report(run, policy=None):
    return json.loads(judge(run, policy or Policy()).to_json())


def changed(run, metric, **changes):
    return made.but(
        run,
        measurements=tuple(dataclasses.replace(m, **changes) if m.metric == metric else m for m in run.measurements),
    )


def test_an_unchanged_pair() -> None:
    text, document = diff(report(made.failed()), report(made.failed()))
    assert "No difference: the outcome (failed), 6 legs" in text and "numbers (within a tenth)" in text
    assert document["outcome_changed"] is False and document["measurements"]["moved"] == []


def test_an_outcome_and_its_legs() -> None:
    text, document = diff(report(made.unproven()), report(changed(made.unproven(), "relative_l2", value=0.5)))
    assert document["outcome_changed"] and document["outcome"] == ["inconclusive", "failed"]
    assert document["legs"] == {"source~graph": ["passed", "failed"], "graph~simulator": ["passed", "failed"]}
    assert "graph~simulator: passed -> failed" in text and "suspects: none -> " in text
    assert "embedding: relative_l2 = 0.5, limit 0.1 [layers, tier 2, graph~simulator, case text0]" in text


def test_a_leg_that_changes_counts_though_the_outcome_does_not() -> None:
    better = made.but(
        made.failed(), measurements=tuple(m for m in made.failed().measurements if m.tier.value != "end_to_end")
    )
    document = diff(report(made.failed()), report(better))[1]
    assert document["outcome"] == ["failed", "failed"] and document["outcome_changed"]


def test_findings_come_and_go_by_id_whatever_the_case() -> None:
    one = made.but(made.failed(), measurements=tuple(m for m in made.failed().measurements if m.where.case != "text1"))
    text, document = diff(report(made.failed()), report(one))
    assert document["findings"] == {"new": [], "gone": [], "changed": []}  # the same places, one case less
    assert document["measurements"]["gone"] and "measured before and not now" in text
    gone = diff(report(made.failed()), report(changed(made.failed(), "softmax_step", value=0.1)))[1]["findings"]["gone"]
    assert len(gone) == 6 and gone[0]["metric"] == "softmax_step"


@pytest.mark.parametrize(
    ("before", "after", "moves"),
    [
        (0.01, 0.0109, False),
        (0.01, 0.012, True),
        (0.01, 0.005, True),
        (0.01, float("nan"), True),
        (1e-5, 9e-5, False),
        (0.01, 0.0, True),
        (0.01, -0.01, True),
    ],
)
def test_numbers_move_by_more_than_a_tenth(before, after, moves) -> None:
    run = made.unproven()

    def at(value):
        held = (*run.measurements, made.measured("layers", "graph~simulator", "relative_l2", value, "inner"))
        return report(made.but(run, measurements=held))

    assert bool(diff(at(before), at(after))[1]["measurements"]["moved"]) is moves


def test_nan_on_both_sides_is_no_move_and_the_document_is_json() -> None:
    nan = report(changed(made.failed(), "relative_l2", value=float("nan")))
    _, document = diff(nan, nan)
    assert document["measurements"]["moved"] == []
    _, document = diff(report(made.failed()), nan)
    json.dumps(document, allow_nan=False)


def test_environment_policy_and_files(tmp_path) -> None:
    path = tmp_path / "other.toml"
    path.write_text("")
    run = made.unproven()
    other = made.but(
        run,
        environment={**run.environment, "build": {"rknn-toolkit2": "2.6.0"}, "cache": "hit"},
        candidate={**run.candidate, "artifacts": [{"role": "graph", "name": "graph.onnx", "sha256": "cd" * 32}]},
    )
    text, document = diff(report(run), report(other, Policy.load(path)))
    assert document["environment"] == {"build.rknn-toolkit2": ["2.5.0", "2.6.0"]}
    assert "graph graph.onnx: abababababab -> cdcdcdcdcdcd" in text and "name: built-in -> other" in text
    assert document["outcome_changed"] is False and "No difference" not in text


def test_a_waiver_shows_as_a_change() -> None:
    document = report(made.failed())
    waived = json.loads(json.dumps(document))
    waived["findings"][0]["waived"] = "waived until 2027-01-31: known"
    assert "-> waived until 2027-01-31: known" in diff(document, waived)[0]


def test_two_variants_are_said_and_two_models_refused() -> None:
    assert (
        "may differ by design: minilm:fp16@rk3588 and minilm:int8@rk3588"
        in diff(report(made.unproven()), report(made.failed()))[0]
    )
    other = report(made.but(made.passed(), candidate={**made.passed().candidate, "model": "ppocr"}))
    with pytest.raises(UsageError, match="nothing in common"):
        diff(report(made.passed()), other)
