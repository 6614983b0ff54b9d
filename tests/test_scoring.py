"""Scoring sample by sample: what a score may return, and what may not be made of it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests import made
from tests.hand import found, trial
from tests.small import BUILD, TOML, candidate
from verify import scoring
from verify.checkers.accuracy import Accuracy
from verify.core import Accuracy as Declared
from verify.core import Case, UsageError
from verify.diagnose.blame import advice
from verify.reports.progress import quiet
from verify.scoring import distances, losses, score
from verify.trial import Scored

Y = np.array([[0.9, 0.2, 0.5, 0.1]], np.float32)


def sample(i: int) -> Case:
    return Case(f"s{i}", {"x": Y + np.float32(i)})


class Session:
    """The candidate: what came in, times `factor`."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def run(self, feeds: Any) -> Any:
        return {"y": feeds["x"] * np.float32(self.factor)}


def scored(folder: Any, body: str, samples: Any = None, factor: float = 1.0, margin: float = 0.05) -> Scored:
    toml = TOML.replace("[variant", f'[accuracy]\nscore = "build.py:score"\nmargin = {margin}\n[variant')
    held = candidate(folder, toml, BUILD + "\ndef score(expected, outputs):\n    " + body)
    samples = [sample(i) for i in range(60)] if samples is None else samples
    return score(held, samples, lambda case: {"y": case.inputs["x"]}, Session(factor), "device", "hardware", quiet())


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("return None", "gave None, which is no number"),
        ("return 'good'", "gave 'good', which is no number"),
        ("return {'top1': None}", "gave {'top1': None}, which is no number"),
        ("return {}", "gave no number at all"),
        ("return 95.0", r"score = 95 is beyond \[0, 1\]"),
        ("return {'loss': -0.5}", r"loss = -0.5 is beyond \[0, 1\]"),
    ],
)
def test_what_is_no_score_is_refused_in_words(tmp_path, body, what):
    with pytest.raises(UsageError, match=f"score build.py:score, sample s0: {what}.*higher is better"):
        scored(tmp_path, body)


def test_rounding_beyond_one_is_a_score_and_nan_is_the_worst_loss(tmp_path):
    held = scored(tmp_path, "return 1 + 1e-9")
    assert held.n and set(losses(*held.pairs["score"])) == {0.0}
    held = scored(tmp_path, "return float('nan')")
    assert set(losses(*held.pairs["score"])) == {1.0}


def test_a_score_that_writes_into_what_it_gets_changes_no_other(tmp_path):
    body = "outputs['y'].sort(); expected['y'][:] = 0; return float(outputs['y'][0, 3] == np.float32(0.9))"
    held = scored(tmp_path, body, [Case("s", {"x": Y.copy()})])
    assert held.pairs["score"] == ((1.0,), (1.0,)) and held.distance["relative_error"] == (0.0,)


def test_samples_without_end_stop_somewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(scoring, "MOST", 120)
    endless = (sample(i) for i in itertools.count())
    held = scored(tmp_path, "return 1.0", endless, margin=0.001)  # which would take 3,000
    assert held.n == 120 and held.exhausted


@pytest.mark.parametrize("pairs", [((0.0,) * 400, (0.4,) * 400), ((0.01,) * 400, (0.0,) * 400)])
def test_what_the_source_does_not_get_right_cannot_be_lost(pairs) -> None:
    """An error in place of a score, for one: the source's is 0, and a wrong candidate's is more."""
    held = {"device": Scored("device", {"score": pairs}, {}, True, "hardware")}
    given = trial(source=[{"y": Y}], device=[{"y": Y}], more={"scored": held})
    (m,) = found(Accuracy(), given, "loss")
    margin = Declared().margin
    assert m.interval is not None and m.interval[0] <= margin < m.interval[1]  # undecided
    assert "cannot be lost" in m.note and "higher must be better" in advice(
        replace(m, checker="accuracy"), made.passed()
    )


def test_text_that_differs_has_a_distance() -> None:
    wanted, got = {"y": np.array(["a", "b", "c", "d"])}, {"y": np.array(["a", "b", "c", "e"], dtype=object)}
    assert distances(wanted, got)["relative_error"] == 0.25 and distances(wanted, wanted)["relative_error"] == 0


def test_a_sample_that_is_repeated_counts_once(tmp_path):
    """A generator that seeds itself anew each time, for one."""
    held = scored(tmp_path, "return 1.0", [Case(f"s{i}", {"x": Y}) for i in range(400)])
    assert held.n == 1 and held.repeated == 399
    given = trial(source=[{"y": Y}], device=[{"y": Y}], more={"scored": {"device": held}})
    (m,) = found(Accuracy(), given, "loss")
    assert m.n == 1 and "399 more are repeated" in m.note and m.interval is not None and m.interval[1] > 0.05
    labelled = [Case(f"s{i}", {"x": Y}, {"label": np.array(i)}) for i in range(4)]
    assert scored(tmp_path, "return 1.0", labelled).n == 4  # another label is another question
