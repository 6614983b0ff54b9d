"""`localize RUN --repair` with the vendor's real toolkit: from a failing score to one that passes, and what it says."""

from __future__ import annotations

import json

import pytest
import tomllib

from tests import made
from tests.build.rknn_models import conv, masked
from tests.small import BUILD, candidate
from tests.test_cli import IMAGES, NPU
from tests.test_localize import stored
from verify.cli import main

ATTENTION = """
model = "masked"
target = "rk3588"
source = "m.onnx"
graph = "m.onnx"
cases = "build.py:cases"
[accuracy]
score = "embedding"
cases = "build.py:scored"
margin = 0.02
[variant.int8]
precision = "w8a8"
calibration = "build.py:cases"
"""
SCORED = (
    BUILD.replace("(1, 4)", "(1, 2, 16, 32)")
    + """
def scored():
    for i in range(300):
        yield Case(f"s{i}", {"x": np.random.default_rng(1000 + i).normal(size=(1, 2, 16, 32)).astype(np.float32)})
"""
)


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masked")
    masked(folder / "m.onnx")
    candidate(folder, ATTENTION, SCORED)
    words = ["check", str(folder / "candidate.toml"), "--cache", str(folder / "cache"), "--quiet"]
    assert main([*words, "--run", str(folder / "run")]) == 1
    return folder


def test_layers_are_ranked_where_a_format_is_suspected(failing, capsys):
    assert main(["localize", str(failing / "run"), "--json", str(failing / "l.json")]) == 1
    assert "What causes the final error" in capsys.readouterr().out
    document = json.loads((failing / "l.json").read_text())
    assert document["unranked"] == "" and sum(row["share"] for row in document["ranking"]) == pytest.approx(1)
    assert document["ranking"][0]["share"] > 0.5 and "repair" not in document


def test_a_score_that_fails_is_repaired_and_the_printed_table_repeats_it(failing, capsys):
    words = [
        "localize",
        str(failing / "run"),
        "--cache",
        str(failing / "cache"),
        "--quiet",
        "--repair",
        "--builds",
        "3",
    ]
    assert main([*words, "--json", str(failing / "r.json")]) == 0
    text = capsys.readouterr().out
    assert "REPAIRED:" in text and "build 1:" in text
    held = json.loads((failing / "r.json").read_text())["repair"]
    assert held["before"]["outcome"] == "failed" and held["after"]["outcome"] == "passed" and len(held["tried"]) <= 3
    assert held["after"]["floats"] > held["before"]["floats"] and held["after"]["size"] > 0
    assert len(held["after"]["kept"]) < held["layers"]
    added = tomllib.loads(held["toml"])["variant"]["int8"]["keep_float"]
    assert added == held["after"]["kept"]
    text = ATTENTION + held["toml"].replace("[variant.int8]\n", "")  # as a user would: into the table that is there
    (failing / "candidate.toml").write_text(text)
    again = ["check", str(failing / "candidate.toml"), "--cache", str(failing / "cache"), "--quiet", "--json", "-"]
    main(again)
    verdict = json.loads(capsys.readouterr().out)
    assert not [f for f in verdict["findings"] if f["checker"] == "accuracy"]
    (failing / "candidate.toml").write_text(ATTENTION)


def test_what_cannot_be_repaired_is_refused_with_the_reason(tmp_path, capsys):
    conv(tmp_path / "m.onnx")
    candidate(tmp_path, NPU, IMAGES)
    run = str(tmp_path / "run")
    main(["check", str(tmp_path / "candidate.toml"), "--cache", str(tmp_path / "c"), "--quiet", "--run", run])
    assert main(["localize", run, "--repair"]) == 2  # nothing fails
    assert "nothing to repair" in capsys.readouterr().err
    assert main(["localize", stored(tmp_path / "other", made.failed()), "--repair"]) == 2
    assert "nothing to repair" in capsys.readouterr().err
