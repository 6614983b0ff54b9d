"""The command as a user runs it: exit codes, what goes where, and what an interrupted gate leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.build.rknn_models import conv
from tests.small import BUILD, TOML, candidate, linear
from verify.cli import exit_code, main

SCORED = """
[accuracy]
cases = "build.py:scored"
margin = 0.05
"""
SAMPLES = """
def scored():
    for i in range(200):
        yield Case(f"s{i}", {"x": np.random.default_rng(1000 + i).normal(size=(1, 4)).astype(np.float32)})
"""
NPU = """
model = "conv"
target = "rk3588"
source = "m.onnx"
graph = "m.onnx"
cases = "build.py:cases"
[input.x]
layout = "nchw"
[variant.int8]
precision = "w8a8"
calibration = "build.py:cases"
"""
IMAGES = BUILD.replace("(1, 4)", "(1, 3, 3, 3)")


def run(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "verify.cli", *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=200)


def good(folder: Path) -> Path:
    candidate(folder, TOML.replace("[variant", SCORED + "[variant"), BUILD + SAMPLES)
    return folder / "candidate.toml"


def test_check_and_gate_of_a_good_build_exit_0_and_write_what_is_asked(tmp_path):
    path, cache = good(tmp_path), tmp_path / "cache"
    report, junit = tmp_path / "r.json", tmp_path / "j.xml"
    for command in ("check", "gate"):
        done = run(command, path, "--cache", cache, "--json", report, "--junit", junit)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("PASSED  m:fused@cpu")
        assert "loading the model" in done.stderr and "\r" not in done.stderr  # plain when piped
    document = json.loads(report.read_text())
    assert document["schema"] == "npu-verify/report/1" and document["outcome"] == "passed"
    assert junit.read_text().startswith("<?xml")


def test_json_on_standard_output_is_nothing_but_a_line_per_variant(tmp_path):
    path = good(tmp_path)
    path.write_text(path.read_text() + "[variant.plain]\n[variant.plain.onnxruntime]\noptimization = 'basic'\n")
    done = run("check", path, "--cache", tmp_path / "cache", "--json", "-", "--quiet")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["candidate"]["variant"] for line in done.stdout.splitlines()] == ["fused", "plain"]
    assert done.stderr == ""


def test_a_package_that_is_not_installed_is_one_line_and_not_a_failed_model(tmp_path, monkeypatch, capsys):
    linear(tmp_path / "m.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["init", str(tmp_path / "m.onnx"), "--out", str(tmp_path / "out")]) == 2
    assert "the package onnx is not installed; npu-verify doctor" in capsys.readouterr().err


def test_a_failed_candidate_exits_1_and_its_stored_run_is_judged_alike(tmp_path, capsys):
    path = good(tmp_path)
    linear(tmp_path / "m.onnx")
    build = (tmp_path / "build.py").read_text()
    source = "def source():\n    return lambda feeds: {'y': np.zeros((1, 3), np.float32)}\n"
    (tmp_path / "build.py").write_text(build.replace('def source():\n    return "m.onnx"\n', source))
    arguments = [str(path), "--cache", str(tmp_path / "cache"), "--quiet", "--run", str(tmp_path / "run")]
    assert main(["check", *arguments]) == 1
    assert main(["judge", str(tmp_path / "run")]) == 1
    assert main(["diff", str(tmp_path / "run"), str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["check", *arguments]) == 2  # evidence is never overwritten
    assert "already exists" in capsys.readouterr().err


def test_unproven_is_0_for_check_and_3_for_gate_and_judge(tmp_path, capsys):
    conv(tmp_path / "m.onnx")
    candidate(tmp_path, NPU, IMAGES)
    arguments = [str(tmp_path / "candidate.toml"), "--cache", str(tmp_path / "cache"), "--quiet"]
    assert main(["gate", *arguments, "--run", str(tmp_path / "run")]) == 3
    assert "NOT PROVEN: device (no board)" in capsys.readouterr().out
    assert main(["check", *arguments]) == 0
    assert main(["judge", str(tmp_path / "run")]) == 3


@pytest.mark.parametrize("option", ["--json", "--junit"])
def test_a_report_that_cannot_be_written_is_refused_before_the_work(tmp_path, capsys, option):
    assert main(["check", str(good(tmp_path)), option, str(tmp_path / "none" / "r")]) == 2
    err = capsys.readouterr().err
    assert "its folder does not exist" in err and len(err.splitlines()) == 1
    assert not (tmp_path / ".npu-verify").exists()


def test_no_command_and_an_unknown_one_are_usage_errors(capsys):
    assert main([]) == 2
    with pytest.raises(SystemExit) as raised:
        main(["chekc"])
    assert raised.value.code == 2


@pytest.mark.parametrize(
    "command", ["init", "check", "gate", "compare", "judge", "localize", "diff", "waive", "pack", "doctor"]
)
def test_every_command_shows_an_example(command, capsys):
    with pytest.raises(SystemExit) as raised:
        main([command, "--help"])
    assert raised.value.code == 0
    assert f"npu-verify {command}" in capsys.readouterr().out.partition("example:")[2]


def test_nothing_verified_is_never_0():
    assert exit_code([], gate=True) != 0
    assert exit_code([], gate=False) != 0


def processes_in(folder: Path) -> list[str]:
    """Command lines of living processes that name this folder, or run in it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                place = os.readlink(entry / "cwd")
                environment = (entry / "environ").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(folder) in words + place + environment:
                found.append(words)
    return found


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_gate_leaves_no_process_no_output_and_no_temporary_file(tmp_path, sent):
    conv(tmp_path / "m.onnx")
    candidate(tmp_path, NPU, IMAGES)
    store, temporary = tmp_path / "store", tmp_path / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "verify.cli", "gate", str(tmp_path / "candidate.toml")]
    command += ["--cache", str(store), "--json", str(tmp_path / "report.json"), "--run", str(tmp_path / "run")]
    gate = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(temporary)}
    )
    until = time.monotonic() + 100
    while time.monotonic() < until and not any("worker" in words for words in processes_in(store)):
        assert gate.poll() is None, gate.communicate()
        time.sleep(0.05)
    time.sleep(1.0)  # into the toolkit's import or build
    gate.send_signal(sent)
    out, err = gate.communicate(timeout=60)
    assert gate.returncode != 0 and out == b""
    if sent == signal.SIGINT:
        assert gate.returncode == 130 and b"Traceback" not in err, err
    until = time.monotonic() + 20
    while time.monotonic() < until and (processes_in(tmp_path) or list((store / "tmp").iterdir())):
        time.sleep(0.1)
    assert processes_in(tmp_path) == []
    assert list((store / "tmp").iterdir()) == [] and list(temporary.iterdir()) == []
    assert not (tmp_path / "report.json").exists() and not (tmp_path / "run").exists()
    assert not (store / "cache").exists() or list((store / "cache").rglob("entry.json")) == []
