"""Streams that are closed, full or narrow, and disks that are full: a code that is true, and no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.small import BUILD, TOML, candidate
from verify.cli import COMMANDS, main


def shell(line, cwd, **env):
    """A line of bash in which "$@" is `npu-verify`."""
    command = ["bash", "-c", line, "bash", sys.executable, "-m", "verify.cli"]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=200, env={**os.environ, **env}, errors="replace"
    )


@pytest.fixture
def files(tmp_path):
    y = np.arange(12, dtype=np.float32)
    np.savez(tmp_path / "a.npz", **{"t\u00fcr": y})
    np.savez(tmp_path / "b.npz", **{"t\u00fcr": y * 2})
    return tmp_path


@pytest.mark.parametrize(("other", "code"), [("a", 0), ("b", 1)])
def test_closed_streams_change_no_code(files, other, code):
    for closed in (">&-", "2>&-", "<&-", ">&- 2>&- <&-"):
        done = shell(f'"$@" compare a.npz {other}.npz {closed}', files)
        assert done.returncode == code and "Traceback" not in done.stderr, (closed, done.stderr)


def test_a_full_standard_output_is_no_verdict(files):
    done = shell('"$@" compare a.npz a.npz >/dev/full', files)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "No space left" in done.stderr


def test_a_name_that_the_terminal_cannot_say_is_said_otherwise(files):
    narrow = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = shell('"$@" compare a.npz b.npz', files, **narrow)
    assert done.returncode == 1 and "t\\xfcr" in done.stdout, done.stderr


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path):
    candidate(tmp_path, TOML, BUILD)
    done = shell('ulimit -f 1; "$@" check candidate.toml --quiet', tmp_path)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "File too large" in done.stderr and not list((tmp_path / ".npu-verify").glob("tmp/*"))
    assert not list((tmp_path / ".npu-verify").glob("runs/*"))


def test_a_plugin_that_exits_gives_no_verdict(monkeypatch, capsys, tmp_path):
    def leave(options):
        raise SystemExit(0)

    monkeypatch.setitem(COMMANDS, "doctor", leave)
    assert main(["doctor"]) == 2 and "before there was a verdict" in capsys.readouterr().err


def test_what_user_code_prints_and_where_it_goes_is_kept_apart(tmp_path):
    folder = tmp_path / "a b"
    folder.mkdir()
    (tmp_path / "away").mkdir()
    candidate(folder, TOML, BUILD + f"\nimport os\nprint('noise')\nos.chdir({str(tmp_path / 'away')!r})\n")
    (folder / "p.toml").write_text("")
    done = shell('"$@" check candidate.toml --policy p.toml --json - --junit j.xml --run r', folder)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert "noise" in done.stderr and report["run"] and (folder / "j.xml").exists() and (folder / "r").is_dir()
    assert not list((tmp_path / "away").iterdir())
    done = shell('"$@" check "a b/candidate.toml" --json - --cache c', tmp_path)
    commands = {m["reproduce"] for m in json.loads(done.stdout)["findings"]}
    assert commands == {"npu-verify check 'a b/candidate.toml' --variant fused"}
