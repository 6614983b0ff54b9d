"""The doctor names what is wrong and the command that mends it; facts of an interpreter are made up where needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from verify import doctor
from verify.core import Missing

GOOD = {
    "python": "3.11.7",
    "platform": "Linux x86_64",
    "packages": {
        "npu-verify": "0.1.0",
        "rknn-toolkit2": "2.5.0",
        "numpy": "1.26.4",
        "onnx": "1.18.0",
        "onnxruntime": "1.22.1",
        "setuptools": "81.0.0",
        "torch": "2.13.0+cpu",
        "opencv-python-headless": "4.11.0.86",
    },
    "verify": ["npu-verify"],
    "requires": ["numpy <=1.26.4", "onnx <=1.18.0,>=1.16.1", "torch <=2.4.0,>=1.10.1", "opencv-python >=4.5.5.64"],
    "tmpdir": "/tmp",
    "free": 5000,
}


def look(monkeypatch, rknn="", **changes):
    """The doctor's lines by name, for an interpreter with these facts; `rknn` is the end of RKNN()'s error."""
    packages = {**GOOD["packages"], **changes.pop("packages", {})}
    seen = {**GOOD, **changes, "packages": {k: v for k, v in packages.items() if v}}

    def output(argv, limit=60.0):
        if "RKNN" not in argv[2]:
            return "noise\n" + json.dumps(seen)
        if rknn:
            raise Missing(f"{argv[0]} failed with exit code 1: {rknn}")
        return ""

    monkeypatch.setattr(doctor, "output", output)
    monkeypatch.setattr(doctor, "_pins", lambda seen: [])
    return {line.name: line for line in doctor.diagnose()}


def test_nothing_is_wrong_with_the_slim_set(monkeypatch):
    lines = look(monkeypatch)
    assert {line.status for line in lines.values()} == {"ok", "note"}
    assert lines["torch"].status == "note"  # newer than the vendor lists: known, and no reason to stop


@pytest.mark.parametrize(
    "name, changes, status, fix",
    [
        ("python", {"python": "3.13.0"}, "wrong", "use such"),
        ("python", {"platform": "Linux aarch64"}, "wrong", "use such"),
        ("numpy", {"packages": {"numpy": "2.2.0"}}, "wrong", "'numpy<=1.26.4'"),
        ("setuptools", {"packages": {"setuptools": "84.2.1"}}, "wrong", "'setuptools<82'"),
        ("setuptools", {"packages": {"setuptools": "82.0.0"}}, "wrong", "'setuptools<82'"),
        ("setuptools", {"packages": {"setuptools": ""}}, "missing", "'setuptools<82'"),
        ("onnx", {"packages": {"onnx": "1.19.0"}}, "wrong", "<=1.18"),
        ("onnx", {"packages": {"onnx": "1.9.0"}}, "wrong", ">=1.16.1"),
        ("rknn-toolkit2", {"packages": {"rknn-toolkit2": "2.3.2"}}, "wrong", "rknn-toolkit2==2.5.0"),
        ("RKNN()", {"packages": {"rknn-toolkit2": ""}}, "missing", "rknn-toolkit2==2.5.0"),
        ("opencv", {"packages": {"opencv-python-headless": ""}}, "missing", "opencv-python-headless"),
        ("opencv", {"packages": {"opencv-python": "4.9.0"}}, "wrong", "uninstall opencv-python opencv"),
        ("import verify", {"verify": ["npu-verify", "verify"]}, "wrong", "uninstall verify"),
        ("temporary folder", {"tmpdir": ""}, "wrong", "TMPDIR"),
        ("temporary folder", {"free": 12}, "wrong", "TMPDIR"),
        ("RKNN()", {"rknn": "ModuleNotFoundError: No module named 'pkg_resources'"}, "wrong", "'setuptools<82'"),
        ("RKNN()", {"rknn": "ImportError: libGL.so.1: cannot open"}, "wrong", "opencv-python-headless"),
        ("RKNN()", {"rknn": "ModuleNotFoundError: No module named 'psutil'"}, "wrong", "'psutil'"),
        ("RKNN()", {"rknn": "Illegal instruction"}, "wrong", "shows all of it"),
    ],
)
def test_each_fault_is_named_with_its_cure(monkeypatch, name, changes, status, fix):
    line = look(monkeypatch, **changes)[name]
    assert line.status == status and fix in line.fix, line


def test_another_interpreter_may_have_another_toolkit(monkeypatch):
    look(monkeypatch, packages={"rknn-toolkit2": "2.3.2"})
    lines = {line.name: line for line in doctor.diagnose("/opt/old/bin/python")}
    assert lines["rknn-toolkit2"].status == "note" and "npu-verify" not in lines


def test_an_interpreter_that_does_not_run_is_one_line():
    (line,) = doctor.diagnose("/nowhere/python")
    assert line.status == "missing" and "/nowhere/python" in line.found


def test_the_interpreter_of_these_tests_can_make_an_rknn():
    lines = {line.name: line for line in doctor.diagnose(sys.executable)}
    assert lines["RKNN()"].status == "ok", doctor.render(list(lines.values()))


def test_render_keeps_one_line_each_and_counts():
    text = doctor.render([doctor.Line("a", "ok", "1"), doctor.Line("b", "wrong", "2", "3", "mend")])
    assert text.splitlines()[1].split() == "wrong b 2 (wanted: 3) -> mend".split()
    assert text.splitlines()[2].startswith("1 to mend")


def _command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    argv = [sys.executable, "-m", "verify.cli", *arguments]
    return subprocess.run(argv, env=environment, cwd=folder, capture_output=True, text=True, timeout=120)


def test_another_distribution_that_ships_verify_is_found_by_its_metadata(tmp_path):
    info = tmp_path / "verify-1.1.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: verify\nVersion: 1.1.1\n")
    (info / "top_level.txt").write_text("verify\n")
    held = _command(tmp_path, "doctor")
    assert held.returncode == 1
    assert any(line.startswith("wrong") and "uninstall verify" in line for line in held.stdout.splitlines()), held
