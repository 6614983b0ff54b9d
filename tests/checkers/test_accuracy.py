"""What checkers `accuracy` and `agreement` measure, on scores made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.hand import found, noise, trial
from verify.checkers.accuracy import Accuracy
from verify.checkers.agreement import Agreement
from verify.core import Accuracy as Declared
from verify.trial import Scored, Trial

Y = noise(1, 4)


def scored(pairs: Any = None, distance: Any = None, margin: float = 0.05) -> Trial:
    held = {"device": Scored("device", pairs or {}, distance or {}, True, "hardware")}
    given = trial(source=[{"y": Y}], device=[{"y": Y}], more={"scored": held})
    return replace(given, candidate=replace(given.candidate, accuracy=Declared(margin=margin)))


def test_the_mean_loss_with_its_interval() -> None:
    n = 400
    (m,) = found(Accuracy(), scored({"top1": ((1.0,) * n, (1.0, 0.0) * (n // 2))}), "loss")
    assert m.value == pytest.approx(0.5) and m.n == n and m.where.tensor == "top1"
    assert m.interval is not None and m.interval[0] <= 0.5 <= m.interval[1] and m.interval[0] > 0.05
    assert "source 1.0000, device 0.5000, 400 samples" in m.note


def test_a_score_that_is_no_number_counts_as_the_worst() -> None:
    (m,) = found(Accuracy(), scored({"top1": ((1.0, 1.0), (float("nan"), 1.0))}), "loss")
    assert m.value >= 0.5


def test_what_is_not_decided_says_how_many_it_takes() -> None:
    (m,) = found(Accuracy(), scored({"top1": ((1.0,) * 3, (1.0,) * 3)}), "loss")
    assert "not decided, n needed: about" in m.note


def test_nothing_scored_measures_nothing() -> None:
    assert list(Accuracy().check(scored({"top1": ((), ())}))) == []
    assert list(Agreement().check(trial(source=[{"y": Y}], device=[{"y": Y}]))) == []


def test_agreement_is_the_mean_over_samples() -> None:
    given = scored(distance={"relative_error": (0.1, 0.3), "top1_flip": (0.0, 1.0), "cosine_distance": ()})
    assert [m.value for m in found(Agreement(), given, "relative_error")] == [pytest.approx(0.2)]
    assert [m.value for m in found(Agreement(), given, "top1_flips")] == [0.5]
    assert found(Agreement(), given, "cosine_distance") == []


def test_agreement_with_a_nan_is_nan() -> None:
    (m,) = found(Agreement(), scored(distance={"relative_error": (0.1, float("nan"))}), "relative_error")
    assert not m.value <= 1e9
