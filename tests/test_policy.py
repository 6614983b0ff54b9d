"""A policy may tighten and require; what it may not say is one line that names the nearest right word."""

from __future__ import annotations

import datetime

import pytest

from verify.core import UsageError
from verify.limits import LIMITS, limit
from verify.policy import REQUIRED, Policy, Waiver

STAMP = 'schema = "npu-verify/policy/1"\n'
WAIVER = '[[waiver]]\nfinding = "layers/a/b/c"\nuntil = 2027-01-31\nreason = "known"\nvalue = 0.5\n'


def load(tmp_path, text):
    path = tmp_path / "strict.toml"
    path.write_text(text)
    return Policy.load(path)


def test_the_default_requires_every_built_in_checker_and_an_empty_file_is_the_default(tmp_path) -> None:
    policy = load(tmp_path, "")
    assert policy.require == REQUIRED == Policy().require and policy.name == "strict" and len(policy.sha256) == 64
    assert (
        policy.limit("layers", "relative_l2", "fp16")
        == Policy().limit("layers", "relative_l2", "fp16")
        == limit("layers", "relative_l2", "fp16")
    )


def test_limits_tighten_by_precision_or_for_all(tmp_path) -> None:
    policy = load(tmp_path, "[limit.layers]\nrelative_l2 = { fp16 = 0.02 }\n[limit.parity]\nrelative_l2 = 1e-6\n")
    assert policy.limit("layers", "relative_l2", "fp16").value == 0.02
    assert policy.limit("layers", "relative_l2", "w8a8").value == 0.999  # untouched
    assert policy.limit("parity", "relative_l2", "fp16").value == 1e-6
    assert "strict" in policy.limit("parity", "relative_l2", "fp16").origin


def test_a_looser_limit_given_in_code_does_not_loosen_either() -> None:
    assert Policy(limits={("parity", "relative_l2"): {"*": 9.0}}).limit("parity", "relative_l2", "fp32").value == 1e-4


def test_a_limit_makes_a_gate_of_a_warning_and_of_a_report(tmp_path) -> None:
    policy = load(tmp_path, "[limit.range]\nclipped = 0.001\n[limit.regions]\ndepartures = 2\n")
    assert policy.limit("range", "clipped", "w8a8").action == "fail"
    assert policy.limit("regions", "departures", "w8a8").action == "fail"
    assert Policy().limit("range", "clipped", "w8a8").action == "warn"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("requires = []", "unknown key 'requires'.*did you mean 'require'"),
        ('require = ["layer"]', "unknown checker 'layer'.*did you mean 'layers'"),
        ('require = "layers"', "require = 'layers' is not a list"),
        ("require = [3]", "is not a list of text"),
        ("limit = 3", "limit = 3 is not a table"),
        ("[limit.layer]\nrelative_l2 = 0.01", "unknown key 'layer'.*did you mean 'layers'"),
        ("[limit]\nlayers = 3", "layers = 3 is not a table"),
        ("[limit.layers]\nrelative_l2 = 0.5", None),  # within w8a8's, looser than no precision's own "*"
        ("[limit.layers]\nrelative_l2 = { fp16 = 0.5 }", "0.5 is looser than the built-in limit.*waive"),
        ("[limit.layers]\nrelative_l3 = 0.5", "no metric 'relative_l3'.*did you mean 'relative_l2'"),
        ("[limit.layers]\nrelative_l2 = { fp61 = 0.01 }", "unknown precision 'fp61'.*did you mean 'fp16'"),
        ("[limit.layers]\nrelative_l2 = nan", "nan is not a number"),
        ('[limit.layers]\nrelative_l2 = "x"', "'x' is not a number"),
        ("[limit.layers]\nrelative_l2 = true", "True is not a number"),
        ("waiver = 3", "waiver = 3 is not a list"),
        ("waiver = [3]", "a waiver"),
        ('schema = "npu-verify/policy/9"', "newer npu-verify"),
        ('schema = "npu-verify/run/1"', "schema is"),
        ("name = 3", "name = 3 is not text"),
        ("require = [", "not valid TOML"),
        (WAIVER.replace("value = 0.5", ""), "a waiver lacks 'value'"),
        (WAIVER.replace("0.5", "inf"), "cannot be waived"),
        (WAIVER.replace("0.5", "nan"), "cannot be waived"),
        (WAIVER.replace("layers/a", "structure/a"), "cannot be waived"),
        (WAIVER.replace("2027-01-31", '"soon"'), "a waiver is unreadable"),
        (WAIVER + 'untill = "x"', "unknown key 'untill'.*did you mean 'until'"),
    ],
)
def test_what_a_policy_may_not_say(tmp_path, text, message) -> None:
    if message is None:
        load(tmp_path, text)
        return
    with pytest.raises(UsageError, match=message) as caught:
        load(tmp_path, text)
    assert "strict.toml" in str(caught.value) and "\n" not in str(caught.value)


def test_no_such_file(tmp_path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        Policy.load(tmp_path / "none.toml")


def test_a_waiver_covers_its_finding_until_its_day_inclusive_and_a_tenth_more() -> None:
    day = datetime.date(2027, 1, 31)
    waiver = Waiver("layers/a/b/c", day, "known", 1.0)
    assert waiver.covers("layers/a/b/c", 1.1, day)
    assert not waiver.covers("layers/a/b/c", 1.11, day)
    assert not waiver.covers("layers/a/b/c", float("nan"), day)
    assert not waiver.covers("layers/a/b/d", 1.0, day)
    assert not waiver.covers("layers/a/b/c", 1.0, day + datetime.timedelta(days=1))


def test_every_built_in_limit_states_its_origin_and_is_a_number() -> None:
    for by_precision in LIMITS.values():
        for held in by_precision.values():
            assert held.origin and held.value == held.value and held.action in ("fail", "warn", "report")
    assert limit("layers", "made_up") is None and limit("made_up", "relative_l2") is None


def test_a_waiver_of_more_than_a_year_is_not_in_force(tmp_path) -> None:
    (held,) = load(tmp_path, WAIVER.replace("2027-01-31", "2027-01-31T12:00:00")).waivers
    day = datetime.date(2027, 1, 31)
    assert held.until == day and not isinstance(held.until, datetime.datetime)
    for before, inside in ((-1, False), (0, True), (366, True), (367, False)):
        assert held.covers("layers/a/b/c", 0.5, day - datetime.timedelta(days=before)) is inside
