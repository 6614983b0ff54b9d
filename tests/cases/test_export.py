"""What an exporter loses without an error: branches, batch sizes, writes through views."""

from __future__ import annotations

import pytest

from tests.cases.kit import TORCH, checked, failing, leg, outcome
from verify.candidate import load
from verify.core import Outcome
from verify.gating import examine
from verify.pack import pack
from verify.reports.progress import quiet
from verify.store import Store

BRANCH = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        {guard}
        if {condition}:
            return x * 2
        return x - 10

def source():
    return Model().eval()

def export(path):
    traced(Model(), np.ones((1, 4), np.float32), path)

def cases():
    return [Case("plus", {{"x": np.ones((1, 4), np.float32)}}), Case("other", {{"x": {other}}})]
"""
RAMP = "np.arange(1, 5, dtype=np.float32)[None]"


def branch(condition: str, other: str, guard: str = "pass") -> str:
    return BRANCH.format(condition=condition, other=other, guard=guard)


def test_a_frozen_branch_fails_where_a_case_takes_the_other_way(tmp_path):
    verdict = checked(tmp_path, TORCH, branch("x.sum() > 0", "-np.ones((1, 4), np.float32)"))
    assert outcome(verdict, "source~graph") is Outcome.FAILED and verdict.blame == ("export",)
    assert {f.case for f in failing(verdict, "parity")} == {"other"}
    assert "9 apart" in failing(verdict, "parity")[0].message
    assert "froze" in verdict.next_steps[0] and "if x.sum() > 0" in verdict.next_steps[0]


def test_a_frozen_branch_that_every_case_takes_is_no_full_pass(tmp_path):
    verdict = checked(tmp_path, TORCH, branch("x.sum() > 0", RAMP))
    held = leg(verdict, "source~graph")
    assert held.outcome is Outcome.INCONCLUSIVE
    assert "froze a branch, and every case goes the same way" in held.reason and "if x.sum() > 0" in held.reason
    assert "other way" in verdict.next_steps[0]


def test_a_number_taken_out_of_the_data_is_no_full_pass_either(tmp_path):
    verdict = checked(
        tmp_path, TORCH, branch("x.argmax(-1).item() >= 0 and x.shape[0] == 1", "np.ones((1, 4), 'f') * 3")
    )
    assert outcome(verdict, "source~graph") is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("condition", ["x.shape[1] > 3", "x.size(0) % 2 == 1", "x.dim() == 2"])
def test_what_follows_from_fixed_shapes_is_a_note(tmp_path, condition):
    verdict = checked(tmp_path, TORCH, branch(condition, RAMP, guard="assert (x > -9).all()"))
    assert outcome(verdict, "source~graph") is Outcome.PASSED


@pytest.mark.parametrize(
    ("condition", "other", "told"),
    [
        ("x.sum() > 0", RAMP, True),
        ("x.sum() > 0", "-np.ones((1, 4), np.float32)", False),
        ("x.shape[1] > 3", RAMP, False),
    ],
)
def test_a_graph_from_a_file_has_the_sources_own_branch_noted(tmp_path, condition, other, told):
    build = branch(condition, other)
    checked(
        tmp_path,
        TORCH,
        build
        + "\nsaved = export\ndef export(path):\n    saved(path)\n    saved(__file__.replace('build.py', 'm.onnx'))\n",
    )
    verdict = checked(tmp_path, TORCH.replace("build.py:export", "m.onnx"), build)
    assert any("one branch covered" in note for note in verdict.notes) == told


def test_a_bundle_remembers_what_its_export_froze(tmp_path):
    (tmp_path / "made").mkdir()
    checked(tmp_path / "made", TORCH, branch("x.sum() > 0", RAMP))
    pack(load(tmp_path / "made" / "candidate.toml"), tmp_path / "bundle", Store(tmp_path / "store"), quiet())
    verdict = examine(load(tmp_path / "bundle" / "candidate.toml"), store=Store(tmp_path / "other"))
    assert outcome(verdict, "source~graph") is Outcome.INCONCLUSIVE
    assert "froze a branch" in leg(verdict, "source~graph").reason


BATCH = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.reshape(int(x.shape[0]), -1).sum(1)

def source():
    return Model().eval()

def export(path):
    traced(Model(), np.ones((1, 2, 3), np.float32), path, dynamic_axes={"x": {0: "b"}, "y": {0: "b"}})

def cases():
    return [Case(f"b{b}", {"x": normal(i, b, 2, 3)}) for i, b in enumerate(BATCHES)]
"""


def test_a_baked_batch_is_a_wrong_shape_and_no_number_is_formed(tmp_path):
    verdict = checked(tmp_path, TORCH, "BATCHES = 1, 2" + BATCH)
    assert leg(verdict, "source~graph").reason == "output y: shape (2,) vs (1,)" and verdict.blame == ("export",)
    assert not failing(verdict, "parity") and outcome(verdict, "graph~device") is Outcome.PASSED
    assert "int(x.shape[0])" in verdict.next_steps[0]


def test_a_baked_batch_of_which_the_cases_show_one_size_is_no_full_pass(tmp_path):
    once = BATCH.replace('f"b{b}"', 'f"c{i}"')
    verdict = checked(tmp_path, TORCH, "BATCHES = 1, 1" + once)
    assert outcome(verdict, "source~graph") is Outcome.INCONCLUSIVE
    assert "x, axis 0 (1)" in leg(verdict, "source~graph").reason
    fixed = checked(
        tmp_path, TORCH.replace("[variant", "[input.x]\nshape = [1, 2, 3]\n[variant"), "BATCHES = 1, 1" + once
    )
    assert outcome(fixed, "source~graph") is Outcome.PASSED


@pytest.mark.parametrize(
    ("write", "wanted"),
    [
        ("v = y.transpose(0, 1); v[0] = 9.0", Outcome.FAILED),
        ("v = y.view(-1); v[1:3] = 9.0", Outcome.FAILED),
        ("y[:, 0] += 9.0", Outcome.PASSED),
    ],
)
def test_writes_through_views_are_missed(tmp_path, write, wanted):
    build = f"""
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        y = x * 1
        {write}
        return y

def source():
    return Model().eval()

def export(path):
    traced(Model(), np.zeros((2, 3), np.float32), path)

def cases():
    return [Case("zeros", {{"x": np.zeros((2, 3), np.float32)}}), Case("noise", {{"x": normal(0, 2, 3)}})]
"""
    verdict = checked(tmp_path, TORCH, build)
    assert outcome(verdict, "source~graph") is wanted
    if wanted is Outcome.FAILED:
        assert verdict.blame == ("export",) and outcome(verdict, "graph~device") is Outcome.PASSED
        assert not any("split the Concat" in f.next for f in verdict.findings)
