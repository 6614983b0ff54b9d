from __future__ import annotations

import pytest

from verify.core import UsageError
from verify.toml import nearest, numbers, read_toml, value


def test_a_broken_file_is_named_with_its_line(tmp_path):
    (tmp_path / "a.toml").write_text('a = 1\nb = "open\n')
    with pytest.raises(UsageError, match=r"a\.toml: not valid TOML.*line 2"):
        read_toml(tmp_path / "a.toml")


@pytest.mark.parametrize("name", ["absent.toml", "."])
def test_what_is_no_file_is_refused(tmp_path, name):
    with pytest.raises(UsageError):
        read_toml(tmp_path / name)


def test_text_that_is_not_utf8_is_refused(tmp_path):
    (tmp_path / "a.toml").write_bytes(b'a = "\xff"')
    with pytest.raises(UsageError, match="UTF-8"):
        read_toml(tmp_path / "a.toml")


@pytest.mark.parametrize("word", ["grpah", "Graph", "graphs"])
def test_the_nearest_word_is_found(word):
    assert nearest(word, ["model", "graph", "cases"]) == "did you mean 'graph'?"


def test_far_from_every_word_all_are_listed():
    assert nearest("banana", ["model", "graph"]) == "known: model, graph"


@pytest.mark.parametrize(
    ("found", "kind"), [(True, int), (1.5, int), ("1", float), (1, str), (True, float), ({}, list), ([], dict)]
)
def test_another_kind_is_refused(found, kind):
    with pytest.raises(UsageError, match="key = "):
        value({"key": found}, "key", kind, None, "here")


def test_a_whole_number_is_a_number():
    assert value({"key": 3}, "key", float, 0.0, "here") == 3.0


@pytest.mark.parametrize("found", [[1, "2"], [True], [float("nan")], [float("inf")]])
def test_lists_of_numbers_hold_finite_numbers(found):
    with pytest.raises(UsageError, match="numbers"):
        numbers({"mean": found}, "mean", "here")


@pytest.mark.parametrize("found", [[0], [-1], [1.0]])
def test_shapes_hold_positive_whole_numbers(found):
    with pytest.raises(UsageError, match="positive whole"):
        numbers({"shape": found}, "shape", "here", whole=True)


def test_a_model_in_place_of_a_candidate_is_named(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"\x08\xb8")
    with pytest.raises(UsageError, match=r"is a model.*npu-verify init"):
        read_toml(tmp_path / "m.onnx")
