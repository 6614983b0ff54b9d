"""The null and its limit: few false alarms, wider for few draws, nothing passes without it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests import made
from verify.core import UsageError
from verify.floor.draws import Drawn, Sample
from verify.floor.null import fit, kind_of, ratios
from verify.floor.tail import ALPHA, limit
from verify.judge import judge_one
from verify.policy import Policy


def sample(rng, k: int = 32, rows: int = 16, columns: int = 24) -> Sample:
    """Errors of a (rows, columns) tensor, normal, the same spread everywhere."""
    square = rng.standard_normal((k, rows, columns)) ** 2
    return Sample(square.mean((1, 2)), {0: square.mean(2), 1: square.mean(1)}, 1.0, rows * columns, 1e-3)


def carried(nulls, ratio) -> dict:
    held = nulls[kind_of(ratio.axis)]
    return {"k": held.k, "location": held.location, "scale": held.scale, "spread": ratio.spread, "allowance": 1.0}


def test_honest_candidates_do_not_alarm_and_a_gain_of_the_error_does() -> None:
    rng, alarms, missed = np.random.default_rng(3), 0, 0
    for _ in range(200):
        drawn = Drawn({("c", f"t{i}"): sample(rng) for i in range(4)})
        nulls = fit(drawn)
        honest = [r for held in drawn.samples.values() for r in ratios(held, sample(rng, 1))]
        alarms += any(r.value > limit(carried(nulls, r)) for r in honest)
        wrong = sample(rng, 1)
        wrong = Sample(wrong.tensor * 4, {axis: held * 4 for axis, held in wrong.axes.items()}, 1.0, wrong.size)
        found = ratios(drawn.samples["c", "t0"], wrong)
        missed += not any(r.value > limit(carried(nulls, r)) for r in found)
    assert alarms <= 1 and missed == 0  # 200 candidates at 1e-3: more than one has a chance of 2 %


def test_a_nan_is_the_worst_of_its_axis_and_zero_draws_divide_by_nothing() -> None:
    rng = np.random.default_rng(4)
    drawn, own = sample(rng), sample(rng, 1)
    own.axes[1][0, 7] = math.nan
    (found,) = [r for r in ratios(drawn, own) if r.axis == 1]
    assert found.index == 7 and math.isnan(found.value)
    zero = Sample(np.zeros(32), {0: np.zeros((32, 4))}, 1.0, 8, 1e-3)
    same = ratios(zero, Sample(np.zeros(1), {0: np.zeros((1, 4))}, 1.0, 8))
    assert [r.value for r in same] == [0, 0]
    off = ratios(zero, Sample(np.ones(1), {0: np.ones((1, 4))}, 1.0, 8))
    assert all(1000 < r.value < math.inf for r in off)
    assert fit(Drawn({})) == {}


NULL = {"k": 32, "location": 3.0, "scale": 0.5, "spread": 0.01, "allowance": 1.05, "n": 8, "alpha": ALPHA}


def test_more_false_alarms_and_more_draws_make_it_tighter() -> None:
    assert limit(NULL, 0.01) < limit(NULL, 0.001) == limit(NULL)
    assert limit({**NULL, "k": 1000}) < limit(NULL) < limit({**NULL, "k": 5})
    assert limit({**NULL, "allowance": 2.0}) == pytest.approx(limit(NULL) * 2 / 1.05)


@pytest.mark.parametrize(
    "broken",
    [{}, {"k": 0}, {"scale": math.nan}, {"spread": -1}, {"allowance": 0.5}, {"location": "x"}, {"spread": 1e9}],
)
def test_without_a_usable_null_nothing_passes(broken) -> None:
    null = {**NULL, **broken} if broken else {}
    assert limit(null) is None
    m = made.measured("layers", "graph~simulator", "over_floor", 0.0, null=null)
    run = made.run("v", "rk3588", "fp16", made.NPU_LEGS, [m])
    assert judge_one(m, run, Policy(), None).state == "fail"


def test_judge_sets_the_limit_from_what_the_measurement_carries() -> None:
    run = made.run("v", "rk3588", "fp16", made.NPU_LEGS, [])

    def state(value: float, policy: Policy = Policy()) -> str:  # noqa: B008
        m = made.measured("layers", "graph~simulator", "over_floor", value, null=NULL)
        return judge_one(m, run, policy, None).state

    bound = limit(NULL)
    assert state(bound) == "pass" and state(bound * 1.0001) == "fail" and state(math.nan) == "fail"
    assert state(bound, Policy(alpha=0.1)) == "fail"
    assert state(1.0, Policy(limits={("layers", "over_floor"): {"*": 0.9}})) == "fail"
    assert state(bound * 1.01, Policy(limits={("layers", "over_floor"): {"*": 99.0}})) == "fail"


def test_a_policy_may_only_tighten_alpha(tmp_path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("alpha = 0.05\n")
    assert Policy.load(path).alpha == 0.05
    for text in ("alpha = 1e-4", "alpha = 0.9", "alpha = true", 'alpha = "x"'):
        path.write_text(text + "\n")
        with pytest.raises(UsageError, match="alpha"):
            Policy.load(path)
