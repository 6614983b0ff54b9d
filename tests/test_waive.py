"""A waiver covers what it says and no more, and the policy file survives whatever happens."""

from __future__ import annotations

import datetime
import json
import os

import pytest

from tests import made
from verify.core import Outcome, UsageError
from verify.judge import judge
from verify.policy import Policy
from verify.waive import waive

TODAY = datetime.date(2027, 1, 10)
LAYER = "layers/graph~simulator//layers.0/norm2/LayerNormalization_output_0/relative_l2"


def report(run=made.failed):
    return json.loads(judge(run(), Policy(), TODAY).to_json())


def put(policy, finding=LAYER, until="2027-02-01", reason="known", **more):
    return waive(policy, more.get("report", report()), finding, until, reason, TODAY)


def test_a_new_policy_holds_the_worst_case_and_judges(tmp_path) -> None:
    path = tmp_path / "policy.toml"
    said = put(path)
    (held,) = Policy.load(path).waivers
    assert held.finding == LAYER and held.until == datetime.date(2027, 2, 1)
    assert held.value == pytest.approx(1.011)  # text1's, the worse of the two cases
    assert "npu-verify judge .npu-verify/runs/minilm-int8 --policy" in said
    findings = [f for f in judge(made.failed(), Policy.load(path), TODAY).findings if f.id == LAYER]
    assert len(findings) == 2 and all(f.waived == "waived until 2027-02-01: known" for f in findings)


def test_what_a_waiver_covers_already_is_not_written_twice(tmp_path) -> None:
    path = tmp_path / "policy.toml"
    put(path)
    before = path.read_text()
    assert "waived already" in put(path, until="2027-01-31") and path.read_text() == before
    assert "is waived until 2027-02-02" in put(path, until="2027-02-02")
    assert len(Policy.load(path).waivers) == 2


def test_waiving_all_that_denies_leaves_what_is_not_proven(tmp_path) -> None:
    path = tmp_path / "policy.toml"
    for finding in dict.fromkeys(f["id"] for f in report()["findings"] if f["severity"] == "fail"):
        put(path, finding)
    assert judge(made.failed(), Policy.load(path), TODAY).outcome is Outcome.INCONCLUSIVE
    assert judge(made.failed(), Policy.load(path), datetime.date(2027, 2, 2)).outcome is Outcome.FAILED


def test_what_stands_in_the_file_stays(tmp_path) -> None:
    path = tmp_path / "policy.toml"
    before = '# ours\nschema = "npu-verify/policy/1"\nrequire = ["layers"]  # only\n[limit.layers]\nrelative_l2 = 0.5'
    path.write_text(before)
    path.chmod(0o640)
    put(path)
    put(path, "range/graph~simulator/embedding/destroyed")
    assert path.read_text().startswith(before + "\n") and path.stat().st_mode & 0o777 == 0o640
    policy = Policy.load(path)
    assert policy.require == ("layers",) and len(policy.waivers) == 2
    assert os.listdir(tmp_path) == ["policy.toml"]


def test_a_link_to_a_shared_policy_stays_a_link(tmp_path) -> None:
    real, link = tmp_path / "real.toml", tmp_path / "policy.toml"
    real.write_text("")
    link.symlink_to(real)
    put(link)
    assert link.is_symlink() and Policy.load(real).waivers


@pytest.mark.parametrize("reason", ['say "no"', "back\\slash", "ä – 日本 😀", "'''", "a # b", "{x} [[y]]"])
def test_reasons_come_back_as_they_were_written(tmp_path, reason) -> None:
    path = tmp_path / "policy.toml"
    put(path, reason=reason)
    assert Policy.load(path).waivers[0].reason == reason


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reason": "  "}, "reason is empty"),
        ({"reason": "a\nb"}, "line breaks"),
        ({"reason": "a\x7fb"}, "control characters"),
        ({"until": "31.1.2027"}, "is not a date"),
        ({"until": "2027-02-30"}, "is not a date"),
        ({"until": "2027-01-10"}, "not in the future"),
        ({"until": "2028-06-01"}, "more than a year"),
        ({"finding": LAYER.replace("relative_l2", "relative_l1")}, f"no finding.*did you mean '{LAYER}'"),
        ({"finding": "range/graph~simulator//layers.0/sdpa_q_add/softmax_step"}, "a warning and denies nothing"),
    ],
)
def test_what_is_refused_leaves_no_file(tmp_path, changes, message) -> None:
    with pytest.raises(UsageError, match=message):
        put(tmp_path / "policy.toml", **changes)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("metric", "checker", "value"),
    [("mismatches", "structure", 1), ("nonfinite", "finite", 3), ("relative_l2", "layers", float("nan"))],
)
def test_structure_and_nan_cannot_be_waived(tmp_path, metric, checker, value) -> None:
    run = made.passed()
    bad = made.measured(checker, "graph~device", metric, value, "y")
    held = report(lambda: made.but(run, measurements=(*run.measurements, bad)))
    with pytest.raises(UsageError, match="cannot be waived"):
        put(tmp_path / "policy.toml", f"{checker}/graph~device/y/{metric}", report=held)


def test_a_file_that_cannot_take_it_stays_as_it_was(tmp_path) -> None:
    path = tmp_path / "policy.toml"
    array = 'waiver = [{ finding = "layers/a/b/c", until = 2027-01-31, reason = "r", value = 1.0 }]\n'
    for text, message in ((array, r"as \[\[waiver\]\] tables"), ("require = [", "not valid TOML")):
        path.write_text(text)
        with pytest.raises(UsageError, match=message) as caught:
            put(path)
        assert path.read_text() == text and os.listdir(tmp_path) == ["policy.toml"]
        assert str(path) in str(caught.value)


def test_a_folder_that_does_not_exist_is_one_line(tmp_path) -> None:
    with pytest.raises(UsageError, match="cannot be written.*--policy"):
        put(tmp_path / "none" / "policy.toml")
