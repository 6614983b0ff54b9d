"""Dumps of a compiled graph find their tensor by value, in a layout that restores it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from verify.core import NotComparable
from verify.graphs.align import Match, align, restore

T, C, H = 12, 24, 4
PRODUCERS = {
    "mm": "MatMul", "add": "Add", "split": "Reshape", "heads": "Transpose", "relu": "Relu", "y": "Add",
}  # fmt: skip


def case(seed: int) -> dict[str, Any]:
    """The intermediates of a tiny attention-like graph."""
    rng = np.random.default_rng(seed)
    mm = rng.standard_normal((1, T, C)).astype(np.float32)
    add = mm + np.linspace(-1, 1, C, dtype=np.float32)
    split = add.reshape(1, T, H, C // H)
    heads = split.transpose(0, 2, 1, 3)
    relu = np.maximum(heads, 0)
    return {"mm": mm, "add": add, "split": split, "heads": heads, "relu": relu, "y": relu.sum(1, keepdims=True) + 1}


REFERENCES = [case(0), case(1)]


def golden(name: str, lay: Any, noise: float = 1e-5) -> list[dict[str, Any]]:
    """A layer named `name` that holds `lay(tensors)`, with the rounding of another order of operations."""
    rng = np.random.default_rng(7)
    out = []
    for reference in REFERENCES:
        value = lay(reference)
        out.append({name: value + noise * np.float32(value.std()) * rng.standard_normal(value.shape).astype("f")})
    return out


def matched(name: str, lay: Any, noise: float = 1e-5) -> Match:
    goldens = golden(name, lay, noise)
    found, missed = align(goldens, REFERENCES, PRODUCERS)
    assert not missed
    match = found[name]
    for dump, reference in zip(goldens, REFERENCES, strict=True):
        back = restore(dump[name], match)
        assert back.shape == reference[match.tensor].shape
        np.testing.assert_allclose(back, reference[match.tensor], atol=1e-3)
    return match


def test_a_matmul_dump_that_holds_the_sum_after_the_bias_with_channels_first() -> None:
    match = matched("mm_mm_tp_sw", lambda r: r["add"].transpose(0, 2, 1)[:, :, None])
    assert match.tensor == "add"
    assert match.permutation == (1, 0)
    assert set(match.aliases) == {"split", "heads"}


def test_the_plain_one() -> None:
    match = matched("mm", lambda r: r["mm"])
    assert (match.tensor, match.permutation, match.aliases) == ("mm", (0, 1), ())


def test_heads_merged_and_split() -> None:
    assert matched("heads_rs", lambda r: r["heads"].reshape(H, 1, T, C // H)).tensor == "add"
    assert matched("relu", lambda r: r["relu"].transpose(0, 1, 3, 2).reshape(1, C, 1, T)).tensor == "relu"


def test_the_earliest_real_result_stands_for_its_layouts() -> None:
    match = matched("heads", lambda r: r["heads"])
    assert match.tensor == "add" and match.aliases == ("split", "heads")


def test_of_equal_real_results_the_one_that_names_the_layer() -> None:
    references = [{**r, "clip": r["relu"]} for r in REFERENCES]
    producers = {**PRODUCERS, "clip": "Clip"}
    for layer, tensor in (("clip_rs", "clip"), ("relu_rs", "relu"), ("other", "relu")):
        found, _ = align([{layer: r["relu"]} for r in references], references, producers)
        assert found[layer].tensor == tensor
        assert len(found[layer].aliases) == 1


def test_square_tensors_get_the_permutation_that_restores() -> None:
    references = [{"p": np.random.default_rng(s).standard_normal((1, 8, 8, 8)).astype("f")} for s in range(2)]
    goldens = [{"p": r["p"].transpose(0, 3, 1, 2)} for r in references]
    found, _ = align(goldens, references, {"p": "Softmax"})
    assert np.array_equal(restore(goldens[0]["p"], found["p"]), references[0]["p"])


def test_one_case_by_chance_is_not_a_match() -> None:
    goldens = golden("relu", lambda r: r["relu"])
    goldens[1]["relu"] = np.abs(goldens[1]["relu"]) + 3
    found, missed = align(goldens, REFERENCES, PRODUCERS)
    assert not found and "named after relu" not in missed
    found, _ = align(goldens[:1], REFERENCES[:1], PRODUCERS)
    assert "relu" in found


def test_cases_may_not_disagree_about_the_layout() -> None:
    references = [{"p": np.random.default_rng(s).standard_normal((8, 8)).astype("f")} for s in range(2)]
    found, missed = align([{"p": references[0]["p"]}, {"p": references[1]["p"].T}], references, {"p": "Add"})
    assert not found and "p" in missed


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (lambda r: r["relu"] * 1.02, "named after relu"),
        (lambda r: r["relu"][..., :-1], "no reference tensor has"),
    ],
)
def test_why_there_is_no_match(value: Any, says: str) -> None:
    found, missed = align(golden("relu-rs", value), REFERENCES, PRODUCERS)
    assert not found and says in missed["relu-rs"]


def test_a_wrong_rewrite_is_never_matched_to_what_it_should_be() -> None:
    """2 % of one channel: far below what a quantiser does, far above float32."""
    scale = np.ones((1, 1, C), np.float32)
    scale[..., 3] = 1.02
    _, missed = align(golden("add", lambda r: r["add"] * scale), REFERENCES, PRODUCERS)
    assert "apart" in missed["add"]


def test_two_tensors_as_near_as_rounding_are_ambiguous() -> None:
    references = [{**r, "near": r["mm"] + np.float32(2e-5)} for r in REFERENCES]
    goldens = [{"layer": r["mm"] + np.float32(1e-5)} for r in references]
    found, missed = align(goldens, references, {**PRODUCERS, "near": "Add"})
    assert not found and "ambiguous" in missed["layer"]


def test_a_layer_that_one_case_lacks() -> None:
    goldens = golden("mm", lambda r: r["mm"])
    del goldens[1]["mm"]
    assert align(goldens, REFERENCES, PRODUCERS)[1] == {"mm": "not dumped in every case"}


def test_masks_must_agree() -> None:
    references = [{"m": np.where(r["mm"] > 0, r["mm"], -np.inf).astype("f")} for r in REFERENCES]
    found, _ = align([{"m": r["m"].transpose(0, 2, 1)} for r in references], references, {"m": "Where"})
    assert found["m"].permutation == (1, 0)
    wrong = [{"m": np.where(np.isinf(r["m"]), 0, r["m"])} for r in references]
    assert "m" in align(wrong, references, {"m": "Where"})[1]


def test_no_case_is_no_evidence() -> None:
    with pytest.raises(NotComparable):
        align([], [], {})


def test_restore_refuses_another_size() -> None:
    match = matched("mm", lambda r: r["mm"])
    with pytest.raises(NotComparable):
        restore(np.zeros((1, T, C + 1)), match)


def test_a_match_survives_json() -> None:
    match = matched("mm_mm", lambda r: r["add"].transpose(0, 2, 1)[:, :, None])
    held = json.loads(json.dumps(dataclasses.asdict(match)))
    assert Match(**{k: tuple(v) if isinstance(v, list) else v for k, v in held.items()}) == match


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        ("Add_1", "relu"),
        ("Add_1-rs", "relu"),
        ("Add", "add"),
        ("Add-rs", "add"),
        ("Add_tp_sw", "add"),
        ("Add#1", "add"),
    ],
)
def test_a_name_is_not_taken_for_a_longer_one(layer: str, named: str) -> None:
    """Two real results with one value: the name decides, if it is one."""
    references = [{"relu": r["mm"], "Add": r["mm"]} for r in REFERENCES]
    found, _ = align([{layer: r["mm"]} for r in REFERENCES], references, {"relu": "Relu", "Add": "Add"})
    assert found[layer].tensor.lower() == named
