"""What is run, in which order, and the lines that it leaves."""

from __future__ import annotations

import argparse
import json
import pickle
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from power import faults, trial
from power.faults import DEPTHS
from power.gates import Gate, gates
from power.models import Subject, subject
from power.net import Net


@dataclass
class Results:
    """A file of JSON lines: a run that is stopped goes on where it was."""

    path: Path
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path) -> Results:
        found = cls(path)
        if path.is_file():
            for line in path.read_text().splitlines():
                row = json.loads(line)
                found.rows[row["key"]] = row
        return found

    def add(self, key: str, row: Mapping[str, Any]) -> None:
        self.rows[key] = {"key": key, **row}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as stream:
            stream.write(json.dumps(self.rows[key], default=float) + "\n")


@dataclass
class Bench:
    """Folders, gates, and the clock."""

    root: Path
    gates: Mapping[str, Gate]
    results: Results
    until: float
    honest: dict[tuple[str, str], trial.Honest] = field(default_factory=dict)

    def late(self) -> bool:
        return time.monotonic() > self.until

    def right(self, model: Subject, variant: str) -> trial.Honest:
        """The honest build of one model and precision; built once a process."""
        if (model.name, variant) not in self.honest:
            folder = trial.folder_of(model, self.root / "trial")
            row, seen = trial.measured(folder, model, variant, self.gates, self.root / "store", None)
            if seen is None:
                raise SystemExit(f"{model.name} {variant}: the honest build fails: {row['error']}")
            self.results.add(f"right/{model.name}/{variant}", {"kind": "right", **row})
            graphs, simulated = seen.recordings["graph"], seen.recordings["simulator"]
            pairs = [(n, trial.relative(a.outputs[n], b.outputs[n])) for a, b in zip(graphs, simulated, strict=True) for n in a.outputs]
            errors = {n: max(e for m, e in pairs if m == n) for n, _ in pairs}
            layers = [{n: np.array(v) for n, v in r.layers.items()} for r in simulated]
            self.honest[model.name, variant] = trial.Honest(
                model, variant, seen.alignment, seen.graph, graphs, list(zip([r.outputs for r in simulated], layers, strict=True)), errors, row
            )
        return self.honest[model.name, variant]


def compiled(bench: Bench, model: Subject, variant: str, fault: faults.Fault, depth: str) -> None:
    """One compiled fault at one depth."""
    key = f"{model.name}/{variant}/{fault.name}/{depth}"
    if key in bench.results.rows:
        return
    net = Net.load(model.graph, dict(model.inner))
    site = faults.at(fault.sites(net), depth)
    nodes = fault.put(net, site) if site is not None else set()
    row: dict[str, Any] = {"kind": "fault", "fault": fault.name, "group": fault.group, "depth": depth, "nodes": sorted(nodes)}
    if not nodes:
        bench.results.add(key, {**row, "model": model.name, "variant": variant, "void": "no such place in this model"})
        return
    honest = bench.right(model, variant)
    folder = trial.folder_of(model, bench.root / "trial")
    net.save(folder / "compiled.onnx")
    row["shift"] = trial.shift(model.graph, folder / "compiled.onnx", model)
    found, seen = trial.measured(folder, model, variant, bench.gates, bench.root / "store", honest)
    row |= found
    if seen is not None and same(seen, honest):
        row["void"] = "compiled away: every dump and output is that of the honest build"
    if seen is not None:
        first = found["first"]
        row["named"] = honest.right(first.get("node", ""), first.get("tensor", ""), nodes) if first else False
        row["gate_named"] = {g: bool(t) and honest.right("", t, nodes) for g, t in found["gates"].items()}
        row["floor"] = max(honest.errors.values())
    bench.results.add(key, row)
    print(line(bench.results.rows[key]), flush=True)


def same(seen: Any, honest: trial.Honest) -> bool:
    """Whether nothing that was recorded differs from the honest build's."""
    for recording, (outputs, layers) in zip(seen.recordings["simulator"], honest.simulated, strict=True):
        if any(not np.array_equal(recording.outputs[n], outputs[n], equal_nan=True) for n in outputs):
            return False
        if any(n in recording.layers and not np.array_equal(recording.layers[n], v, equal_nan=True) for n, v in layers.items()):
            return False
    return True


def line(row: Mapping[str, Any]) -> str:
    """One trial on the terminal."""
    said = row.get("void") or row.get("error") or f"{row['tool']}, first {row['first'].get('node', '-')}"
    named = " (right)" if row.get("named") else ""
    return f"{row['key']}: {said}{named}; moved {row.get('shift', 0):.2g}, {row.get('seconds', 0):.1f} s"


def go(options: argparse.Namespace) -> None:
    root = options.cache.absolute()
    results = Results.open(root / ("full.jsonl" if options.full else "short.jsonl"))
    bench = Bench(root, gates(root), results, time.monotonic() + 60 * options.minutes)
    for name in options.model or ["encoder4"]:
        model = subject(name, root / "models")
        for fault in faults.compiled():
            for depth in DEPTHS:
                for variant in options.variant or ("int8",):
                    if (options.fault and fault.name not in options.fault) or bench.late():
                        continue
                    compiled(bench, model, variant, fault, depth)
