"""Kept builds that are damaged are built again, never taken up and never a crash."""

from __future__ import annotations

import shutil

import pytest

from tests.small import BUILD, STRING, TOML, candidate, save
from verify.gating import check
from verify.store import Store


@pytest.mark.parametrize("what", ["entry", "old entry", "cut", "other", "gone"])
def test_a_damaged_entry_is_built_again(tmp_path, what):
    held, store = candidate(tmp_path), Store(tmp_path / "store")
    first = check(held, store=store)
    shutil.rmtree(tmp_path / "store" / "cache" / "runs")  # which is taken up first, as a whole (test_again.py)
    (entry,) = (tmp_path / "store" / "cache" / "builds").iterdir()
    file = entry / ("entry.json" if "entry" in what else "device-0001.npz")
    if what == "gone":
        file.unlink()
    elif what == "other":  # readable, and another case's
        file.write_bytes((entry / "device-0000.npz").read_bytes())
    else:
        file.write_bytes(b"{}" if what == "old entry" else file.read_bytes()[:40])
    again = check(held, store=store)
    assert not again.environment["cache"] and again.outcome is first.outcome
    assert check(held, store=store).environment["cache"]


def test_text_is_kept_and_read_back(tmp_path):
    from onnx import helper

    save(
        tmp_path / "m.onnx",
        [helper.make_node("Identity", ["x"], ["y"])],
        [("x", STRING, [1, 2])],
        [("y", STRING, [1, 2])],
    )
    build = BUILD.replace(
        "np.random.default_rng(i).normal(size=(1, 4)).astype(np.float32)", "np.array([['é', str(i)]])"
    )
    held, store = candidate(tmp_path, TOML, build), Store(tmp_path / "store")
    for _ in range(2):
        verdict = check(held, store=store)
        assert {leg.outcome.value for tier in verdict.tiers.values() for leg in tier.legs[:1]} <= {
            "passed",
            "inconclusive",
        }
        assert not [f for f in verdict.findings if f.severity == "fail"], verdict
