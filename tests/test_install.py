"""tools/install.sh ends with one clear line when something is missing; nothing is downloaded here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def checkout(tmp_path):
    """What the script needs of a checkout, and a folder `bin` for interpreters that are none."""
    for name in ("tools/install.sh", "tools/pins.txt", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    return tmp_path


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def install(checkout: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(checkout), "PYTHON": sys.executable, **variables}
    argv = ["bash", "tools/install.sh"]
    return subprocess.run(argv, cwd=checkout, env=environment, capture_output=True, text=True, timeout=120)


def last_words(held: subprocess.CompletedProcess[str]) -> str:
    """The one line on stderr of a run that failed."""
    assert held.returncode == 1 and held.stderr.startswith("npu-verify: ") and held.stderr.count("\n") == 1, held
    return held.stderr


def test_an_interpreter_that_does_not_run(checkout):
    assert "PYTHON=/nowhere" in last_words(install(checkout, PYTHON="/nowhere"))


def test_no_python_in_range(checkout):
    """Launchers that exist and fail when they are run are passed over."""
    for name in ("python3", "python3.10", "python3.11", "python3.12"):
        program(checkout / "bin" / name, "echo no such version >&2; exit 127")
    held = install(checkout, PYTHON="", PATH=f"{checkout}/bin:{os.environ['PATH']}")
    assert "no working Python 3.10, 3.11 or 3.12" in last_words(held)


def test_a_python_without_venv(checkout):
    bare = program(checkout / "bin" / "bare", f'case "$*" in *ensurepip*) exit 1;; esac; exec {sys.executable} "$@"')
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    assert version in last_words(install(checkout, PYTHON=bare))


def test_no_network(checkout):
    # port 9 of this machine answers nothing
    held = install(checkout, PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_CONFIG_FILE=os.devnull, PIP_RETRIES="0")
    assert "no network" in last_words(held)
    assert not (checkout / ".venv" / "installed").exists() and not (checkout / ".venv" / "tmp").exists()


def test_a_full_disk(checkout):
    program(checkout / "bin" / "df", "echo head; echo disk 100 88 12 88% /")
    held = install(checkout, PATH=f"{checkout}/bin:{os.environ['PATH']}")
    assert "too little disk: 12 MB free" in last_words(held)
    assert not (checkout / ".venv").exists()


def test_what_is_installed_is_not_installed_again(checkout):
    """With a pip that only counts: the second run calls it not once, a changed pin calls it again."""
    fake = program(
        checkout / "bin" / "python",
        f"""case "$*" in
*"-m venv"*) mkdir -p .venv/bin; cp "$0" .venv/bin/python;;
*"-m pip"*) echo "$*" >> {checkout}/calls;;
*) exec {sys.executable} "$@";;
esac""",
    )
    calls = checkout / "calls"
    assert install(checkout, PYTHON=fake, TORCH_INDEX="https://example.invalid/cpu").returncode == 0
    first = calls.read_text().splitlines()
    assert len(first) == 3 and "--index-url https://example.invalid/cpu torch==" in first[1]
    assert "--index-url" not in first[0] + first[2]
    assert install(checkout, PYTHON=fake, TORCH_INDEX="https://example.invalid/cpu").stdout == ""
    assert len(calls.read_text().splitlines()) == 3
    with (checkout / "tools" / "pins.txt").open("a") as stream:
        stream.write("# changed\n")
    assert install(checkout, PYTHON=fake, TORCH_INDEX="https://example.invalid/cpu").returncode == 0
    assert len(calls.read_text().splitlines()) == 6
