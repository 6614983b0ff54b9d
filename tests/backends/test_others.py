"""The backends of the device role that need no onnxruntime."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.small import BUILD, TOML, candidate, normal
from verify.backends.npu import NpuBackend
from verify.backends.replay import ReplayBackend, store
from verify.backends.user import UserBackend
from verify.core import Artifact, Missing, NotComparable, UsageError

X = {"x": normal(9, 1, 4)}


def run(folder: Path, runner: str, feeds=X):
    (folder / "runner.py").write_text(runner)
    held = candidate(folder, TOML + 'run = "runner.py:open"', BUILD)
    with UserBackend().open(held, Artifact("device", folder / "runner.py", "")) as session:
        return session, session.run(feeds)


GOOD = """
from contextlib import contextmanager
import numpy as np
closed = []
class Runner:
    buffer = np.zeros((1, 4), np.float32)
    def run(self, feeds):
        feeds["x"] *= 2
        self.buffer[:] = feeds["x"]
        return {"y": self.buffer}
@contextmanager
def open():
    yield Runner()
    closed.append(True)
"""


def test_a_runner_gets_copies_and_gives_copies_and_is_closed(tmp_path):
    (tmp_path / "runner.py").write_text(GOOD)
    held = candidate(tmp_path, TOML + 'run = "runner.py:open"', BUILD)
    before = X["x"].copy()
    with UserBackend().open(held, Artifact("device", tmp_path, "")) as session:
        first = session.run(X)["y"]
        session.run({"x": np.zeros((1, 4), np.float32)})
        assert np.array_equal(first, before * 2) and np.array_equal(X["x"], before)
    (module,) = [m for name, m in sys.modules.items() if getattr(m, "__file__", "") == str(tmp_path / "runner.py")]
    assert module.closed == [True]


@pytest.mark.parametrize(
    ("runner", "message"),
    [
        ("def open(): return 3", "no context manager"),
        ("from contextlib import nullcontext\ndef open(): return nullcontext(3)", "without run"),
        ("def open(): raise OSError('no device node')", r"runner\.py:1: OSError: no device node"),
        (GOOD.replace("yield Runner()", "raise OSError('busy')"), r"runner\.py:\d+: OSError: busy"),
        (GOOD.replace('feeds["x"] *= 2', "1 / 0"), r"runner\.py:8: ZeroDivisionError"),
    ],
)
def test_a_runner_that_is_none_is_refused_in_one_line(tmp_path, runner, message):
    with pytest.raises(UsageError, match=message):
        run(tmp_path, runner)


def test_a_runner_that_returns_no_names_is_not_comparable(tmp_path):
    with pytest.raises(NotComparable, match="returned a list"):
        run(tmp_path, GOOD.replace('{"y": self.buffer}', "[self.buffer]"))


def test_a_missing_runner_is_refused(tmp_path):
    held = candidate(tmp_path, TOML + 'run = "absent.py:open"', BUILD)
    with pytest.raises(UsageError, match="no such file"), UserBackend().open(held, Artifact("device", tmp_path, "")):
        pass


def test_without_a_board_nothing_is_proven(tmp_path):
    with pytest.raises(Missing) as caught, NpuBackend().open(candidate(tmp_path), Artifact("device", tmp_path, "")):
        pass
    assert caught.value.what == "no board" and caught.value.do


def test_recorded_outputs_come_back_for_the_recorded_inputs_only(tmp_path):
    outputs = {"y/1": normal(1, 2), "s": np.array(["a", "b"]), "i": np.array([2**53 + 1])}
    store(tmp_path / "r", X, outputs)
    with ReplayBackend().open(candidate(tmp_path), Artifact("device", tmp_path / "r", "")) as session:
        found = session.run(X)
        assert list(found) == list(outputs)
        assert all(np.array_equal(found[k], outputs[k]) and found[k].dtype == outputs[k].dtype for k in outputs)
        for other in ({"x": X["x"] + 1}, {"z": X["x"]}, {"x": X["x"].astype(np.float64)}):
            with pytest.raises(Missing, match="never recorded"):
                session.run(other)
    assert ReplayBackend.evidence == "replay"


def test_damaged_recordings_are_refused(tmp_path):
    store(tmp_path, X, {"y": X["x"]})
    for path in tmp_path.glob("*.npz"):
        path.write_bytes(b"x")
    with ReplayBackend().open(candidate(tmp_path), Artifact("device", tmp_path, "")) as session:
        with pytest.raises(UsageError, match="damaged"):
            session.run(X)
    with pytest.raises(UsageError, match="no such folder"):
        with ReplayBackend().open(candidate(tmp_path), Artifact("device", tmp_path / "absent", "")):
            pass
