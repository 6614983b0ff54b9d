"""What README and docs say is run: commands with their output, TOML, Python. A marker above a block says what it is."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"<!-- (\w+) -->\n```(\w+)\n(.*?)```", re.DOTALL)


def blocks(kind: str) -> Iterator[str]:
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for found, _, text in BLOCK.findall(path.read_text()):
            if found == kind:
                yield text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a reader stands: an ONNX model, and files of tensors to compare."""
    from onnx import TensorProto, helper, numpy_helper, save

    folder = tmp_path_factory.mktemp("readme")
    draw = np.random.default_rng(0)
    w = draw.standard_normal((8, 4), np.float32)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, k)) for n, k in (("x", 8), ("y", 4)))
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    save(model, str(folder / "model.onnx"))
    a, b = draw.standard_normal((2, 16), np.float32)
    np.savez(folder / "reference.npz", a=a, b=b)
    np.savez(folder / "candidate.npz", a=a.astype(np.float16), b=b.astype(np.float16))
    np.savez(folder / "scaled.npz", a=a * np.float32(1.02), b=b)
    return folder


def environment() -> dict[str, str]:
    """The command lies beside the interpreter, whether its environment is active or not."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def session(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines that it must print."""
    out: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            out.append((line[2:], []))
        else:
            out[-1][1].append(line)
    return out


def matches(printed: list[str], wanted: list[str]) -> bool:
    """Whether the wanted lines come in that order; "..." in a line stands for anything, alone for any lines."""
    rest = iter(printed)
    patterns = [re.sub(r"([*?[])", r"[\1]", w).replace("...", "*") for w in wanted if w != "..."]
    return all(any(fnmatch.fnmatchcase(line, pattern) for line in rest) for pattern in patterns)


def test_the_console_blocks_print_what_they_say(folder):
    # one shell for all of them, as a reader has: `echo $?` is about the command before
    commands = [pair for text in blocks("run") for pair in session(text)]
    assert len(commands) >= 6
    script = "\n".join(f"{command}\nstatus=$?; echo '<end>'; (exit $status)" for command, _ in commands)
    argv = ["bash", "-c", script]
    held = subprocess.run(argv, cwd=folder, env=environment(), capture_output=True, text=True, timeout=240)
    for (command, wanted), printed in zip(commands, held.stdout.split("<end>\n"), strict=False):
        assert matches(printed.splitlines(), wanted), f"$ {command}\n{printed}\nwanted:\n" + "\n".join(wanted)


def test_the_matcher_is_strict():
    assert matches(["a 1", "b", "c"], ["a ...", "c"])
    assert not matches(["c", "a 1"], ["a ...", "c"])
    assert not matches(["ab"], ["a"])


def test_the_candidates_load(tmp_path):
    from verify import Candidate
    from verify.candidate import names

    (text,) = blocks("candidate")
    (tmp_path / "candidate.toml").write_text(text)
    for variant in names(tmp_path / "candidate.toml"):
        assert Candidate.load(tmp_path / "candidate.toml", variant).model == "detector"


@pytest.mark.parametrize("command, variant, exit", [("check", "fp16", 0), ("gate", "mine", 0)])
def test_the_build_and_the_runner_work_with_the_candidate(tmp_path, command, variant, exit):
    for kind, name in (("candidate", "candidate.toml"), ("build", "build.py"), ("runner", "runner.py")):
        (text,) = blocks(kind)
        (tmp_path / name).write_text(text)
    argv = ["npu-verify", command, "candidate.toml", "--variant", variant, "--quiet"]
    held = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=240)
    assert held.returncode == exit, held.stdout + held.stderr
    assert ("what runner.py:open runs on" in held.stdout) == (variant == "mine")
    assert "FAILED" not in held.stdout and "accuracy" not in held.stdout, held.stdout  # nothing denied, nor left open


def test_every_key_is_documented():
    from verify import candidate, variants

    text = (ROOT / "docs" / "candidate.md").read_text()
    keys = (*candidate.TOP, *candidate.INPUT, *candidate.ACCURACY, *variants.VARIANT)
    assert [key for key in keys if f"`{key}`" not in text] == []
    assert [table for table in candidate.TABLES if f"[{table}" not in text] == []


def test_every_key_of_the_report_is_documented():
    from dataclasses import fields

    from verify.verdict import Finding, Verdict

    text = (ROOT / "docs" / "report.md").read_text()
    assert [f.name for f in (*fields(Verdict), *fields(Finding)) if f"`{f.name}`" not in text] == []


def test_every_metric_and_its_limits_are_documented():
    from verify.limits import LIMITS, NULLED, limit

    def cell(key, precision):
        if key[1] in NULLED:
            return "its null"
        held = limit(*key, precision)
        if held is None:
            return "`margin`"
        warns = " (warns)" if held.action == "warn" else ""
        return "stated" if held.action == "report" else f"{held.value:g}{warns}"

    rows = [re.split(r" *\| *", line)[1:-1] for line in (ROOT / "docs" / "metrics.md").read_text().splitlines()]
    told = {(row[0].strip("`"), row[1].strip("`")): row[3:] for row in rows if len(row) == 6 and row[0][:1] == "`"}
    assert told == {key: [cell(key, precision) for precision in ("fp32", "fp16", "w8a8")] for key in LIMITS}


def test_the_policies_load(tmp_path):
    from verify import Policy

    (text,) = blocks("policy")
    (tmp_path / "policy.toml").write_text(text)
    policy = Policy.load(tmp_path / "policy.toml")
    assert len(policy.waivers) == 1 and policy.limit("layers", "relative_l2", "fp16").value == 0.05


def test_the_plugins_work():
    scope: dict[str, object] = {}
    (checker,), (score,) = blocks("checker"), blocks("score")
    exec(checker, scope)
    body = checker.split("class TopOne:")[1].strip().splitlines()
    assert scope["TopOne"]().plan(None) and len(body) < 15
    exec(score, scope)
    assert scope["score"]({"label": np.array(1)}, {"logits": np.array([0.0, 2.0])}) == 1.0


def test_the_python_blocks_run(folder):
    subprocess.run(
        ["npu-verify", "init", "model.onnx", "--out", "mymodel"], cwd=folder, env=environment(), capture_output=True
    )
    (text,) = blocks("python")
    argv = [sys.executable, "-c", text]
    held = subprocess.run(argv, cwd=folder, env=environment(), capture_output=True, text=True, timeout=120)
    assert held.returncode == 0 and held.stdout.startswith("inconclusive device (no board)"), held
    (text,) = blocks("pytest")
    (folder / "test_mine.py").write_text(text)
    argv = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(folder), "test_mine.py"]
    held = subprocess.run(argv, cwd=folder, env=environment(), capture_output=True, text=True, timeout=120)
    assert held.returncode == 0 and "1 passed" in held.stdout, held.stdout
