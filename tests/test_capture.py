"""What a kept result depends on, and what is taken over from cases."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.small import BUILD, TOML, artifact, candidate, linear
from verify import cases
from verify.cases import load_cases, score_cases
from verify.core import Outcome, UsageError
from verify.gating import check
from verify.store import Store

FILES = TOML.replace("[variant", '[accuracy]\nscore = "classification"\ncases = "scored"\nmargin = 0.1\n[variant')


def labelled(folder, count, label=0):
    """Samples whose label is the source's own answer, plus `label`."""
    folder.mkdir(exist_ok=True)
    for i in range(count):
        np.savez(folder / f"s{i}.npz", x=np.full((1, 4), i + 1, np.float32), **{"expected.y": np.array([label])})


def test_scored_files_that_change_or_come_void_the_cache(tmp_path):
    labelled(tmp_path / "scored", 2)
    held, store = candidate(tmp_path, FILES), Store(tmp_path / "store")
    assert not check(held, store=store).environment["cache"]
    assert check(held, store=store).environment["cache"]
    labelled(tmp_path / "scored", 2, label=1)
    assert not check(held, store=store).environment["cache"]
    labelled(tmp_path / "scored", 3, label=1)
    again = check(held, store=store)
    assert not again.environment["cache"] and again.outcome is not Outcome.PASSED
    assert {m.n for m in again.measurements if m.checker == "accuracy"} == {3}


def test_a_buffer_that_is_filled_again_and_again_gives_different_cases(tmp_path):
    build = (
        BUILD.split("def cases")[0]
        + """
def cases():
    x = np.zeros((1, 4), np.float32)
    for i in range(3):
        x[:] = i
        yield {"x": x}
"""
    )
    held = load_cases(candidate(tmp_path, build=build), artifact(linear(tmp_path / "m.onnx")))
    assert [float(case.inputs["x"][0, 0]) for case in held] == [0, 1, 2]


def test_cases_without_end_are_refused_before_memory_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(cases, "MOST", 50)
    build = BUILD + "\ndef endless():\n    while True:\n        yield {'x': np.zeros((1, 4), np.float32)}\n"
    held = candidate(tmp_path, TOML.replace("build.py:cases", "build.py:endless"), build)
    with pytest.raises(UsageError, match="more than 50 cases.*accuracy"):
        load_cases(held, artifact(tmp_path / "m.onnx"))


def test_two_scored_samples_of_one_name_are_refused(tmp_path):
    """What the source gives one of them would be taken for the other's."""
    build = BUILD + "\ndef many():\n    for case in cases():\n        yield Case('s', case.inputs)\n"
    held = candidate(tmp_path, TOML + '[accuracy]\ncases = "build.py:many"', build)
    with pytest.raises(UsageError, match="two scored samples are named 's'"):
        list(score_cases(held, tmp_path / "m.onnx"))


SCORED = TOML.replace("[variant", '[accuracy]\nscore = "build.py:score"\n[variant')


def test_a_variable_that_user_code_reads_voids_the_cache(tmp_path, monkeypatch):
    build = (
        BUILD
        + """
import os

def score(expected, outputs):
    return float(os.environ.get("SCORE_OF_MINE", "1")) * float(os.getenv("ANOTHER_OF_MINE") or 1)
"""
    )
    held, store = candidate(tmp_path, SCORED, build), Store(tmp_path / "store")
    kind = type(os.environ)
    assert not check(held, store=store).environment["cache"] and check(held, store=store).environment["cache"]
    monkeypatch.setenv("NOBODY_READS_THIS", "1")
    assert check(held, store=store).environment["cache"] and type(os.environ) is kind
    for name in ("SCORE_OF_MINE", "ANOTHER_OF_MINE"):
        monkeypatch.setenv(name, "0.5")
        again = check(held, store=store)
        assert not again.environment["cache"] and again.outcome is not Outcome.PASSED


def test_a_file_that_changes_while_it_is_used_is_never_taken_for_what_was_read(tmp_path):
    build = (
        BUILD
        + """
from pathlib import Path

def score(expected, outputs):
    label = Path(__file__).with_name("label.txt")
    held = float(label.read_text())
    label.write_text("0.5")  # somebody else does, at this very moment
    return held
"""
    )
    (tmp_path / "label.txt").write_text("1.0")
    held, store = candidate(tmp_path, SCORED, build), Store(tmp_path / "store")
    check(held, store=store)
    assert not check(held, store=store).environment["cache"]


def test_a_batch_axis_that_no_output_has_is_refused(tmp_path):
    store = Store(tmp_path / "store")
    assert check(candidate(tmp_path, "batch_axis = 1\n" + TOML), store=store).run
    with pytest.raises(UsageError, match="batch_axis = 2, and no output has more than 2 axes"):
        check(candidate(tmp_path, "batch_axis = 2\n" + TOML), store=store)


def test_a_file_that_comes_into_a_folder_or_glob_voids_the_cache(tmp_path):
    build = (
        BUILD
        + """
from pathlib import Path

def score(expected, outputs):
    return min(float(path.read_text()) for path in (Path(__file__).parent / "labels").glob("*.txt"))
"""
    )
    for name in ("labels", "more"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("1.0")
    held, store = candidate(tmp_path, 'depends = ["more/*"]\n' + SCORED, build), Store(tmp_path / "store")
    assert not check(held, store=store).environment["cache"] and check(held, store=store).environment["cache"]
    for name in ("labels", "more"):
        (tmp_path / name / "b.txt").write_text("0.5")
        assert not check(held, store=store).environment["cache"] and check(held, store=store).environment["cache"]
