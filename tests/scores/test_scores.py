"""The built-in scores: right on plain cases, and never kind to NaN, zeros, or a missing output."""

from __future__ import annotations

import math

import numpy as np
import pytest

from verify.core import NotComparable
from verify.scores import agreement, classification, embedding

X = np.array([[3.0, 4.0]], dtype=np.float32)
NAN = np.array([[3.0, np.nan]], dtype=np.float32)


def test_agreement_is_one_minus_the_relative_error_of_the_worst_output() -> None:
    assert agreement.score({"y": X}, {"y": X}) == 1.0
    assert agreement.score({"y": X}, {"y": X * 1.02}) == pytest.approx(0.98, abs=1e-6)
    assert agreement.score({"y": X, "z": X}, {"y": X, "z": X * 1.1}) == pytest.approx(0.9, abs=1e-6)
    assert agreement.score({"y": X}, {"y": -X}) == 0.0
    assert agreement.score({"y": X}, {"y": np.zeros_like(X)}) == 0.0


def test_agreement_with_a_zero_source_and_with_integers() -> None:
    zeros = np.zeros(3, dtype=np.float32)
    assert agreement.score({"y": zeros}, {"y": zeros}) == 1.0
    assert agreement.score({"y": zeros}, {"y": zeros + 1e-6}) == 0.0
    ids = np.array([1, 2, 3, 4])
    assert agreement.score({"y": ids}, {"y": np.array([1, 2, 3, 9])}) == 0.75


def test_fp16_values_do_not_overflow() -> None:
    big = np.full((1, 4096), 200.0, dtype=np.float16)  # its sum of squares is 1.6e8, fp16 ends at 65504
    assert agreement.score({"y": big}, {"y": big}) == 1.0
    assert embedding.score({"y": big}, {"y": big}) == pytest.approx(1.0)


@pytest.mark.parametrize("score", [agreement.score, embedding.score])
def test_not_finite_is_never_a_good_score(score) -> None:
    assert score({"y": X}, {"y": NAN}) == 0.0
    assert score({"y": X}, {"y": X * np.float32(np.inf)}) == 0.0
    assert math.isnan(score({"y": NAN}, {"y": NAN}))  # the source itself: nothing can be said
    for order in (("y", "z"), ("z", "y")):
        both = {"y": X, "z": NAN}
        assert math.isnan(score({name: both[name] for name in order}, both))


@pytest.mark.parametrize("score", [agreement.score, embedding.score])
def test_what_does_not_pair_up_is_refused(score) -> None:
    with pytest.raises(NotComparable, match="output z did not come back"):
        score({"y": X, "z": X}, {"y": X})
    with pytest.raises(NotComparable, match="shape"):
        score({"y": X}, {"y": X.T})  # would broadcast or reorder silently
    with pytest.raises(NotComparable):
        score({}, {"y": X})
    with pytest.raises(NotComparable, match="no outputs"):
        score({"y": X}, {})
    with pytest.raises(NotComparable, match="empty"):
        score({"y": X[:0]}, {"y": X[:0]})


def test_embedding_is_the_cosine_and_the_mean_over_rows() -> None:
    assert embedding.score({"y": X}, {"y": X * 7}) == pytest.approx(1.0)
    assert embedding.score({"y": X}, {"y": -X}) == 0.0
    turned = np.array([[4.0, 3.0]], dtype=np.float32)
    assert embedding.score({"y": X}, {"y": turned}) == pytest.approx(24 / 25)
    rows = np.concatenate([X, X])
    assert embedding.score({"y": rows}, {"y": np.concatenate([X, np.zeros_like(X)])}) == pytest.approx(0.5)
    assert embedding.score({"y": X[0]}, {"y": turned[0]}) == pytest.approx(24 / 25)
    assert math.isnan(embedding.score({"y": X * 0}, {"y": X}))


def test_classification_against_labels_and_against_the_source() -> None:
    logits = np.array([[0.1, 2.0, 0.3], [5.0, 1.0, 0.0]], dtype=np.float32)
    assert classification.score({"label": np.array([1, 0])}, {"y": logits}) == 1.0
    assert classification.score({"label": np.array([1, 2])}, {"y": logits}) == 0.5
    assert classification.score({"y": logits}, {"y": logits * 0.5}) == 1.0
    assert classification.score({"y": logits}, {"y": -logits}) == 0.0
    assert classification.score({"label": np.array(1)}, {"y": logits[0]}) == 1.0


def test_classification_is_not_fooled() -> None:
    nan = np.array([[np.nan, 2.0, 0.3]], dtype=np.float32)  # argmax of a row with NaN is the NaN's place
    assert classification.score({"label": np.array([0])}, {"y": nan}) == 0.0
    assert classification.score({"y": nan}, {"y": nan}) == 0.0
    with pytest.raises(NotComparable, match="integer labels"):
        classification.score({"label": np.array([1.0])}, {"y": X})
    with pytest.raises(NotComparable, match="1 rows, 2 labels"):
        classification.score({"label": np.array([1, 0])}, {"y": X})
    with pytest.raises(NotComparable, match="no classes"):
        classification.score({"label": np.array([0])}, {"y": np.array([[0.3]])})
    with pytest.raises(NotComparable):
        classification.score({}, {"y": X})
