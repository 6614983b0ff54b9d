"""A candidate in a folder of its own, checked as the command line would: what the public failure cases are run with."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

from verify.candidate import load
from verify.core import Outcome, Tier
from verify.gating import examine
from verify.store import Store
from verify.verdict import LegVerdict, Verdict

HEAD = """
import numpy as np
from verify.core import Case

def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)

def traced(model, example, path, **more):
    import torch
    torch.onnx.export(
        model.eval(), (torch.tensor(example),), str(path), opset_version=17, dynamo=False,
        input_names=["x"], output_names=["y"], **more,
    )
"""
TORCH = """
model = "m"
target = "cpu"
source = "build.py:source"
graph = "build.py:export"
cases = "build.py:cases"
[variant.fused]
"""
#: A runner of the user's own, made from `build.py`'s function `device(feeds)`.
RUNNER = """
from contextlib import contextmanager
import build

class Runner:
    run = staticmethod(build.device)

@contextmanager
def open():
    yield Runner
"""
OWN = """
model = "m"
target = "cpu"
source = "m.onnx"
graph = "m.onnx"
cases = "build.py:cases"
{more}
[variant.mine]
precision = "{precision}"
run = "runner.py:open"
"""


def own(precision: str = "fp16", more: str = "") -> str:
    return OWN.format(precision=precision, more=more)


def checked(folder: Path, toml: str, build: str, variant: str | None = None) -> Verdict:
    """Write candidate.toml, build.py and runner.py, and check one variant."""
    (folder / "candidate.toml").write_text(dedent(toml))
    (folder / "build.py").write_text(HEAD + dedent(build))
    (folder / "runner.py").write_text(RUNNER)
    return examine(load(folder / "candidate.toml", variant), store=Store(folder / "store"))


def leg(verdict: Verdict, name: str) -> LegVerdict:
    return next(leg for tier in verdict.tiers.values() for leg in tier.legs if leg.name == name)


def outcome(verdict: Verdict, name: str) -> Outcome:
    return leg(verdict, name).outcome


def tier(verdict: Verdict, of: Tier) -> Outcome:
    return verdict.tiers[of].outcome


def failing(verdict: Verdict, checker: str, of: str = "") -> list[Any]:
    return [f for f in verdict.findings if f.checker == checker and f.severity == "fail" and of in ("", f.leg)]
