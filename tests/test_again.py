"""A run that nothing changed for is taken up whole, says the same, and is run anew for any byte that may matter."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from tests.build.rknn_models import conv
from tests.small import BUILD, TOML, candidate, linear, normal
from tests.test_cli import IMAGES, NPU
from verify import again, environs, opened
from verify.gating import check
from verify.policy import REQUIRED, Policy
from verify.store import Store

#: Weights that Python never sees anybody open: fread of the C library reads them.
NATIVE = """
import ctypes
from pathlib import Path

def read(path):
    c = ctypes.CDLL(None)
    c.fopen.restype = ctypes.c_void_p
    held, text = c.fopen(str(path).encode(), b"rb"), ctypes.create_string_buffer(16)
    c.fread(text, 1, 15, ctypes.c_void_p(held))
    c.fclose(ctypes.c_void_p(held))
    return float(text.value)
"""
OWN = """
def run(feeds):
    import onnxruntime
    y = onnxruntime.InferenceSession(str(Path(__file__).with_name("m.onnx"))).run(None, dict(feeds))[0]
    return {"y": y * np.float32(read(Path(__file__).with_name("scale.txt")))}

def export(path):
    path.write_bytes(Path(__file__).with_name("m.onnx").read_bytes())
"""
EXPORTING = BUILD.replace('return "m.onnx"', "return run") + NATIVE + OWN
EXPORTED = TOML.replace('graph = "m.onnx"', 'graph = "build.py:export"')


def exporting(folder, build=EXPORTING, toml=EXPORTED):
    if not (folder / "scale.txt").exists():
        (folder / "scale.txt").write_text("1.0")
    return candidate(folder, toml, build)


def steps(folder):
    return [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()]


def whole(folder):
    """Whether the run in this folder was taken up whole: nothing but the source was run."""
    return steps(folder) == ["loading the model and asking it again, the rest is kept"]


@pytest.fixture
def run(tmp_path):
    """check(candidate) into a folder of its own; returns verdict and folder."""
    store, count = Store(tmp_path / "store"), iter(range(99))

    def once(held, policy=None):
        folder = tmp_path / f"run{next(count)}"
        return check(held, policy, store=store, run=folder), folder

    return once


def same(first, second):
    """Everything that the two say but where they lie and whether the cache was used."""
    a, b = json.loads(first.to_json()), json.loads(second.to_json())
    assert not a["environment"].pop("cache") and b["environment"].pop("cache")
    assert a.pop("run") != b.pop("run")
    return a == b


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_second_run_says_the_same_and_leaves_the_same(tmp_path, run):
    held = exporting(tmp_path)
    (first, one), (second, two), (third, three) = run(held), run(held), run(held)
    assert first.outcome.value == "inconclusive" and not whole(one) and whole(two) and whole(three)
    assert same(first, second) and same(first, third)
    a, b = contents(one), contents(two)
    assert list(a) and a.keys() == b.keys()
    assert [name for name in a if a[name] != b[name]] == [
        name for name in a if name in ("run.json", "verdict.json", "log.jsonl")
    ]
    stored = json.loads(b["run.json"])
    assert stored["folder"] == second.run and stored["environment"]["cache"]
    assert json.loads(b["verdict.json"]) == json.loads(second.to_json())


def test_a_real_build(tmp_path, run):
    conv(tmp_path / "m.onnx")
    held = candidate(tmp_path, NPU, IMAGES)
    (first, one), (second, two) = run(held), run(held)
    assert whole(two) and same(first, second) and contents(one).keys() == contents(two).keys()
    held = candidate(tmp_path, NPU, IMAGES.replace('calibration = "build.py:cases"', ""))
    conv(tmp_path / "m.onnx", (1, 3, 4, 4))
    (tmp_path / "build.py").write_text(IMAGES.replace("3, 3, 3", "3, 4, 4"))
    assert not whole(run(held)[1])


def test_weights_that_only_a_library_read_show_in_what_the_source_says(tmp_path, run):
    held = exporting(tmp_path)
    assert run(held)[0].outcome.value == "inconclusive"  # three samples decide no margin
    (tmp_path / "scale.txt").write_text("1.5")
    verdict, folder = run(held)
    assert not whole(folder) and verdict.outcome.value == "failed"


@pytest.mark.parametrize("what", ["graph", "cases", "config", "module", "toolkit", "python", "variable", "depends"])
def test_a_change_is_run_anew(tmp_path, run, monkeypatch, what):
    build = EXPORTING + "import os, helper\nos.environ.get('OF_MINE')\n"
    (tmp_path / "helper.py").write_text("A = 1\n")
    (tmp_path / "more.txt").write_text("1")
    toml = 'depends = ["more.txt"]\n' + EXPORTED
    held = exporting(tmp_path, build, toml)
    run(held)
    assert whole(run(held)[1])
    if what == "graph":
        _touched(tmp_path / "m.onnx")
    elif what == "cases":
        held = exporting(tmp_path, build.replace("default_rng(i)", "default_rng(i + 7)"), toml)
    elif what == "config":
        held = exporting(tmp_path, build, toml + 'onnxruntime = { optimization = "basic" }\n')
    elif what == "module":
        (tmp_path / "helper.py").write_text("A = 2\n")
    elif what == "toolkit":
        monkeypatch.setattr(again, "packages", lambda: {"onnxruntime": "9.9"})
    elif what == "python":
        monkeypatch.setattr(again.sys, "version", "3.99")
    elif what == "variable":
        monkeypatch.setenv("OF_MINE", "2")
    else:
        (tmp_path / "more.txt").write_text("2")
    assert not whole(run(held)[1])
    assert whole(run(held)[1])


def _touched(path):
    """The same graph with another byte in it."""
    import onnx

    model = onnx.load(str(path))
    model.producer_name = "somebody else"
    onnx.save(model, str(path))


def test_a_graph_file_is_held_by_its_bytes_and_those_of_its_weights(tmp_path, run):
    held = candidate(tmp_path)
    linear(tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    run(held)
    verdict, folder = run(held)
    assert whole(folder) and (folder / "w.bin").is_file()
    raw = bytearray((tmp_path / "w.bin").read_bytes())
    raw[:4] = normal(7, 1).tobytes()
    (tmp_path / "w.bin").write_bytes(bytes(raw))
    assert not whole(run(held)[1])


def test_a_graph_that_is_written_again_where_it_lies_leaves_the_evidence_alone(tmp_path, run):
    _, folder = run(candidate(tmp_path))
    before = (folder / "graph.onnx").read_bytes()
    _touched(tmp_path / "m.onnx")
    assert (folder / "graph.onnx").read_bytes() == before != (tmp_path / "m.onnx").read_bytes()


@pytest.mark.parametrize("what", ["entry", "cut", "other", "gone"])
def test_a_damaged_entry_is_run_anew(tmp_path, run, what):
    held = exporting(tmp_path)
    first, _ = run(held)
    (entry,) = (tmp_path / "store" / "cache" / "runs").iterdir()
    file = entry / ("entry.json" if what == "entry" else "recordings/device-0001.npz")
    held_bytes = b"{}" if what == "entry" else (entry / "recordings/device-0000.npz").read_bytes()
    file.unlink()  # a hard link: the first run's own file stays as it was
    if what != "gone":
        file.write_bytes(held_bytes[:40] if what == "cut" else held_bytes)
    second, folder = run(held)
    assert not whole(folder) and same(first, second)
    assert whole(run(held)[1])


def test_what_user_code_reads_while_the_source_is_asked_counts_in_the_run_that_follows(tmp_path, run, monkeypatch):
    """As in a new process: the module is read, then the source says something else, and everything is run anew."""
    held = exporting(tmp_path, EXPORTING + "import os\nos.environ.get('OF_MINE')\n")
    run(held)
    monkeypatch.setattr(environs, "_SEEN", {})
    monkeypatch.setattr(opened, "_SEEN", {})
    for name in [name for name in sys.modules if name.startswith("_verify_user_")]:
        del sys.modules[name]
    (tmp_path / "scale.txt").write_text("1.5")
    assert not whole(run(held)[1]) and whole(run(held)[1])
    monkeypatch.setenv("OF_MINE", "2")
    assert not whole(run(held)[1])


def test_a_board_that_came_is_asked(tmp_path, run, monkeypatch):
    conv(tmp_path / "m.onnx")
    held = candidate(tmp_path, NPU, IMAGES)
    run(held)

    class Board:
        def run(self, feeds):
            return {"y": np.zeros((1, 4, 3, 3), np.float32)}

    @contextmanager
    def board(stage, build):
        assert build.artifact.path.is_file()
        yield Board(), "hardware"

    monkeypatch.setattr("verify.capture.device", board)
    verdict, folder = run(held)
    assert not whole(folder) and verdict.outcome.value == "failed"
    assert not whole(run(held)[1])  # and asked every time


def test_what_is_random_is_never_taken_up(tmp_path, run):
    held = exporting(tmp_path, EXPORTING.replace("np.random.default_rng(i)", "np.random.default_rng()"))
    run(held)
    assert not whole(run(held)[1])


def test_the_policy_judges_what_was_kept_and_other_checkers_are_run(tmp_path, run):
    held = exporting(tmp_path)
    assert run(held)[0].outcome.value == "inconclusive"  # three samples decide no margin
    (tmp_path / "p.toml").write_text("[limit.parity]\nrelative_l2 = -1.0\n")
    verdict, folder = run(held, Policy.load(tmp_path / "p.toml"))
    assert whole(folder) and verdict.outcome.value == "failed"
    fewer = Policy(require=tuple(name for name in REQUIRED if name != "range"))
    assert not whole(run(held, fewer)[1])


def test_checkers_of_others_and_runners_of_ones_own_are_run_every_time(tmp_path):
    held = exporting(tmp_path)

    class Foreign:
        name = "foreign"

    assert again.key_of_run(held, []) and not again.key_of_run(held, [Foreign()])
    for change in ({"run": "r.py:open"}, {"artifact": "m.rknn"}, {"builder": ""}):
        assert not again.key_of_run(replace(held, variant=replace(held.variant, **change)), [])


def test_a_failed_run_is_kept_too_but_not_one_that_broke(tmp_path, run):
    (tmp_path / "scale.txt").write_text("1.5")
    held = exporting(tmp_path)
    assert run(held)[0].outcome.value == "failed" and whole(run(held)[1])
    held = exporting(tmp_path, EXPORTING.replace('{"y": y *', '{"y": np.zeros(5) *'))
    run(held)
    assert not whole(run(held)[1])
