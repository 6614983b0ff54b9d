"""Candidates with nothing wrong in them: whatever alarms on one is a false alarm.

Each is one model with weights of its own or of the fixture, and two inputs of its own. Compiled by the vendor's
toolkit (graph~simulator), or run by onnxruntime (source~graph and graph~device).
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from power import benign, plugin, trial
from power.gates import Gate, ask
from power.live import Shared, opened
from power.models import MODELS, fixture, subject
from power.net import Net
from verify.candidate import load
from verify.core import Tensors, VerifyError
from verify.npz import write_npz

#: How the fixtures call what draws inputs from a seed.
DRAWN = {"encoder12": "_drawn", "encoder12_outliers": "_drawn", "cnn_detect": "_pictures", "ppocr_rec": "_lines"}
ROUNDS = 10
LEVELS = ("all", "extended", "basic")
TOML = """model = "{model}"
target = "{target}"
source = "{source}"
graph = "model.onnx"
cases = "cases/*.npz"
time_limit = 120
[variant.{variant}]
precision = "{precision}"
{more}
"""


@dataclass(frozen=True)
class Kind:
    """A way to be honest; `count` of them in the full run, `short` in the short one."""

    name: str
    models: tuple[str, ...]
    variant: str
    count: int
    short: int = 0


KINDS = (
    Kind("vendor build, other inputs", ("encoder2b", "cnn_detect", "encoder4", "outliers4"), "fp16", 600, 2),
    Kind("vendor build, other inputs", ("encoder2b", "cnn_detect", "encoder4", "outliers4"), "int8", 600, 2),
    Kind("vendor build, other weights", ("encoder1", "cnn_detect"), "fp16", 200, 1),
    Kind("vendor build, other weights", ("encoder1", "cnn_detect"), "int8", 200, 1),
    Kind("onnxruntime, optimised", ("encoder2b", "cnn_detect", "encoder4"), "cpu", 500, 3),
    Kind("sums in another order", ("encoder2b", "cnn_detect", "encoder4"), "cpu", 300, 2),
    Kind("LayerNorm fused", ("encoder2b", "encoder4"), "cpu", 300, 1),
    Kind("division by constants inverted", ("encoder2b", "encoder4"), "cpu", 200, 1),
    Kind("onnxslim", ("encoder2b", "cnn_detect", "encoder4"), "cpu", 200, 1),
)
REWRITES: Mapping[str, benign.Rewrite] = {
    "sums in another order": benign.reordered,
    "LayerNorm fused": benign.unfused,
    "division by constants inverted": benign.inverted,
    "onnxslim": benign.slimmed,
}


def inputs(name: str, seed: int, count: int = 2) -> list[Tensors]:
    """Inputs of one candidate, drawn as the fixture draws its own."""
    source, layers, batch = MODELS[name]
    drawn = list(getattr(fixture(source, layers), DRAWN[source])(1000 + seed, count * batch))
    return [
        {k: np.concatenate([c.inputs[k] for c in drawn[i * batch : (i + 1) * batch]]) for k in drawn[0].inputs}
        for i in range(count)
    ]


def candidate(folder: Path, kind: Kind, name: str, seed: int, models: Path) -> Path:
    """The folder of one honest candidate."""
    model, rng = subject(name, models), np.random.default_rng(seed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for i, fed in enumerate(inputs(name, seed)):
        (folder / "cases").mkdir(exist_ok=True)
        write_npz(folder / "cases" / f"c{i}.npz", fed)
    shutil.copytree(model.folder / "calib", folder / "calib")
    net = Net.load(model.graph, {})
    if kind.variant == "cpu" or "weights" in kind.name:
        benign.reweighted(net, rng)
    net.save(folder / "model.onnx")
    source, more = "model.onnx", ""
    if kind.name in REWRITES:
        changed = Net.load(folder / "model.onnx", {})
        if not REWRITES[kind.name](changed, rng):
            raise SystemExit(f"{kind.name}: nothing to rewrite in {name}")
        # written out is the source, fused the graph; every other rewrite is the graph
        source = "source.onnx"
        (changed if kind.name == "LayerNorm fused" else net).save(folder / "source.onnx")
        (net if kind.name == "LayerNorm fused" else changed).save(folder / "model.onnx")
    if kind.variant == "cpu":
        more = f'onnxruntime = {{ optimization = "{LEVELS[seed % 3]}", threads = {1 + seed % 2} }}'
    elif kind.variant == "int8":
        more = 'calibration = "calib/*.npz"'
    precision = {"cpu": "fp32", "fp16": "fp16", "int8": "w8a8"}[kind.variant]
    target = "cpu" if kind.variant == "cpu" else "rk3588"
    text = TOML.format(model=name, target=target, source=source, variant=kind.variant, precision=precision, more=more)
    (folder / "candidate.toml").write_text(text)
    return folder


def alarms(folder: Path, variant: str, gates: Mapping[str, Gate], store: Path) -> dict[str, Any]:
    """Which legs fail, and which gates would."""
    try:
        verdict, seen, _ = trial.examined(folder, variant, store)
    except VerifyError as error:
        return {"error": str(error)[:300]}
    legs = [leg for tier in verdict.tiers.values() for leg in tier.legs]
    failed = [leg.name for leg in legs if leg.outcome.value == "failed"]
    missing = [leg.name for leg in legs if leg.outcome.value == "inconclusive" and not leg.name.endswith("~device")]
    row: dict[str, Any] = {"alarms": failed, "missing": missing}
    if failed:
        row["why"] = [f.message[:200] for f in verdict.findings if f.severity == "fail"][:3]
    if seen is None:
        return row
    other = "simulator" if "simulator" in seen.recordings else "device"
    pairs = [(w.tensor, a, b) for w, a, b in seen.pairs("graph", other)] if other in seen.recordings else []
    final = ask(gates, [*pairs, *((w.tensor, a, b) for w, a, b in seen.pairs("source", "graph"))])
    layers = ask(gates, trial.tensors(seen, seen.alignment)) if other == "simulator" and pairs else final
    return {**row, "gates": layers, "final": final}


def run(bench: Any, full: bool) -> None:
    """Every kind in turn, a tenth of each at a time, until the clock or the count says stop."""
    for turn in range(ROUNDS if full else 1):
        for kind in KINDS:
            count = kind.count if full else kind.short
            for part, name in enumerate(kind.models):
                seeds = list(range(part, count, len(kind.models)))
                size = -(-len(seeds) // ROUNDS) if full else len(seeds)
                some(bench, kind, name, seeds[turn * size : (turn + 1) * size])


def some(bench: Any, kind: Kind, name: str, seeds: list[int]) -> None:
    """Candidates of one kind on one model; what was measured before is left out."""
    work = bench.trial.with_name(bench.trial.name + "-live")
    keys = {seed: f"honest/{kind.name}/{kind.variant}/{name}/{seed}" for seed in seeds}
    with contextlib.ExitStack() as stack:
        shared: Shared | None = None
        for seed in seeds:
            if keys[seed] in bench.results.rows or bench.late():
                continue
            folder = candidate(bench.trial, kind, name, seed, bench.root / "models")
            if "inputs" in kind.name:
                shared = shared or stack.enter_context(opened(folder, kind.variant, work))
                plugin.GIVEN[load(folder / "candidate.toml").folder] = shared
            try:
                row = alarms(folder, kind.variant, bench.gates, bench.store)
            finally:
                plugin.GIVEN.clear()
            more = {"kind": "honest", "honest": kind.name, "model": name, "variant": kind.variant}
            bench.results.add(keys[seed], {**more, **row})
    shutil.rmtree(work, ignore_errors=True)
