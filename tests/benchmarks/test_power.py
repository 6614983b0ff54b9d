"""The benchmark of power: faults change what they say and nothing else, and the table counts what it claims."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.small import FLOAT, artifact, normal, save
from verify.backends.graph import GraphBackend

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from power import benign, faults, plugin  # noqa: E402
from power.bench import Results  # noqa: E402
from power.faults import memory  # noqa: E402
from power.net import Net  # noqa: E402
from power.plan import SHORT, whole  # noqa: E402
from power.table import caught, render  # noqa: E402

X = normal(5, 1, 16, 16)


def block(path: Path) -> Path:
    """y = relu(LN(x) a + b) c + x, with 16 tokens of 16 channels and 64 hidden units."""
    from onnx import helper

    nodes = [
        helper.make_node("LayerNormalization", ["x", "g", "o"], ["n"], name="norm", axis=-1),
        helper.make_node("MatMul", ["n", "a"], ["na"], name="up"),
        helper.make_node("Add", ["na", "b"], ["h"], name="bias"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "c"], ["d"], name="down"),
        helper.make_node("Add", ["d", "x"], ["y"], name="residual"),
    ]
    held = {"g": 1 + normal(1, 16), "o": normal(2, 16), "a": normal(3, 16, 64), "b": normal(4, 64)}
    shape = [1, 16, 16]
    return save(path, nodes, [("x", FLOAT, shape)], [("y", FLOAT, shape)], {**held, "c": normal(6, 64, 16)})


def values(path: Path) -> dict[str, np.ndarray]:
    with opened(path) as session:
        outputs, inner = session.run_all({"x": X})
    return {"x": X, **inner, **outputs}


def opened(path: Path):
    from types import SimpleNamespace

    return GraphBackend(instrument=True).open(SimpleNamespace(name="block"), artifact(path))


@pytest.fixture
def right(tmp_path):
    return block(tmp_path / "right.onnx")


def test_the_catalogue_holds_what_the_docs_say():
    every = [f.name for f in (*faults.compiled(), *memory.FAULTS)]
    assert len(every) == len(set(every)) >= 40
    known = {f.name for f in faults.compiled()}
    assert {item[2] for item in (*SHORT, *whole())} <= known
    order = list(whole())
    assert len(order) == len(set(order))
    assert len({item[:2] for item in order[:200]}) == len({item[:2] for item in order}) - 2  # all but the resizer's


@pytest.mark.parametrize("fault", faults.compiled(), ids=lambda f: f.name)
def test_a_fault_changes_its_own_node_first(right, tmp_path, fault):
    wanted = values(right)
    net = Net.load(right, dict(wanted))
    site = faults.at(fault.sites(net), "middle")
    nodes = fault.put(net, site) if site is not None else set()
    if not nodes:
        pytest.skip("no such place here")
    net.save(tmp_path / "wrong.onnx")
    got = values(tmp_path / "wrong.onnx")
    order = {"n": "norm", "na": "up", "h": "bias", "r": "relu", "d": "down", "y": "residual"}
    changed = [t for t in order if not np.array_equal(wanted[t], got.get(t, wanted[t]))]
    assert changed and order[changed[0]] in nodes
    assert set(got["y"].shape) == set(wanted["y"].shape)


@pytest.mark.parametrize("fault", memory.FAULTS, ids=lambda f: f.name)
def test_a_memory_fault_changes_one_recording(fault):
    value, other = normal(1, 2, 16, 16), normal(2, 2, 16, 16)
    kept = value.copy(), other.copy()
    made = fault.put(value.copy(), other, np.random.default_rng(0))
    assert made.shape == value.shape and not np.array_equal(made, value)
    assert np.array_equal(value, kept[0]) and np.array_equal(other, kept[1])


@pytest.mark.parametrize("rewrite", [benign.reordered, benign.unfused])
def test_a_benign_rewrite_computes_the_same(right, tmp_path, rewrite):
    net = Net.load(right, {})
    assert rewrite(net, np.random.default_rng(0))
    net.save(tmp_path / "other.onnx")
    wanted, got = values(right)["y"], values(tmp_path / "other.onnx")["y"]
    assert np.allclose(wanted, got, rtol=1e-5, atol=1e-5) and not np.array_equal(wanted, got)


def row(**more):
    held = {"kind": "fault", "fault": "f", "group": "weights", "depth": "late", "model": "m", "variant": "int8"}
    held |= {"tool": "passed", "outputs": "passed", "first": {}, "nodes": ["n"], "named": False, "shift": 0.5}
    held |= {
        "floor": 0.1,
        "gates": {"g": ""},
        "final": {"g": ""},
        "gate_named": {"g": False},
        "layers": {"unmatched": 1},
        "simulated": {"tool": "passed", "metrics": []},
        "simulated_named": False,
    }
    return {**held, **more}


def test_what_alarms_on_the_right_build_too_caught_nothing():
    wrong = row(tool="failed", gates={"g": "t"}, final={"g": "t"})
    assert caught(wrong, row(), "npu-verify") and caught(wrong, row(), "g") and caught(wrong, row(), "g", "final")
    assert not any(caught(wrong, wrong, gate) for gate in ("npu-verify", "g"))
    replayed = {**wrong, "metrics": ["layers.isolated_odds", "layers.relative_l2"]}
    assert caught(replayed, {**wrong, "metrics": ["layers.relative_l2"]}, "npu-verify")
    assert not caught(row(), row(), "npu-verify") and not caught(row(), row(), "g")


def test_the_table(tmp_path):
    results = Results.open(tmp_path / "r.jsonl")
    results.add("right/m/int8", row(kind="right"))
    results.add("1", row(tool="failed", named=True, outputs="failed"))
    results.add("2", row(fault="missed"))
    results.add("3", row(fault="void", void="compiled away: all"))
    results.add("4", row(fault="refused", error="signal 11"))
    results.add("5", {"kind": "honest", "honest": "h", "variant": "cpu", "alarms": [], "gates": {"g": "t"}})
    text = render(Results.open(tmp_path / "r.jsonl").rows)
    assert "| weights | int8 | 1/2, 1 | 0/2, 0 | 0/2, 0 |" in text and "| weights | int8 | 1/2 | 0/2 |" in text
    assert "| all |  | 0/1 | 1/1 |" in text and "fewer than 3/1 = 3 alarm" in text
    assert "m int8, missed, late: passed; moves the output by 0.5, the right build errs by 0.1" in text
    assert "1 compiled away" in text and "Not compiled by the toolkit: 1 (refused)" in text and "void, late" not in text


def test_the_engine_loads_this_builder_and_checker_by_their_entry_points(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    from verify.protocols import load

    plugin.offered()
    assert load("verify.builders", "rknn") is plugin.Compiler
    assert load("verify.checkers", "observed") is plugin.Observed
    assert load("verify.builders", "onnxruntime").__module__ == "verify.build.onnxruntime"
