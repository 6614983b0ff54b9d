"""What is run, in which order, and the lines that it leaves."""

from __future__ import annotations

import argparse
import atexit
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from power import faults, honest, plugin, trial
from power.faults import DEPTHS, memory
from power.gates import Gate, gates
from power.models import Subject, subject
from power.net import Net
from power.right import Honest, right
from power.table import render
from verify.store import code_version

#: The whole: models of which every depth is tried, and those (20 s a build) of which one depth a fault is.
WHOLE, LONG = ("encoder4", "outliers4", "cnn_detect", "ppocr_rec", "minilm"), ("encoder12", "encoder12_outliers")
#: The short run: a fault of each kind, on the models that build fastest.
SHORT = (
    ("encoder2b", "int8", "layer x 1.001", "middle"),
    ("encoder2b", "int8", "layer x 1.02", "late"),
    ("encoder2b", "int8", "channel x 1.1", "early"),
    ("encoder2b", "int8", "element to zero", "middle"),
    ("encoder2b", "int8", "two heads swapped", "late"),
    ("encoder2b", "int8", "scales off by one channel", "middle"),
    ("encoder2b", "int8", "8 rows stale", "early"),
    ("encoder2b", "int8", "bias lost", "late"),
    ("encoder2b", "int8", "epsilon 1e-3", "middle"),
    ("encoder2b", "int8", "relu for GELU", "early"),
    ("encoder2b", "int8", "saturated at 0.5", "middle"),
    ("encoder2b", "fp16", "layer x 1.003", "late"),
    ("encoder2b", "fp16", "channel x 1.01", "middle"),
    ("encoder2b", "fp16", "tanh for erf GELU", "late"),
    ("encoder2b", "fp16", "softmax over the wrong axis", "early"),
    ("encoder2b", "fp16", "residual lost", "middle"),
    ("encoder2b", "fp16", "rounded to 8 bits", "late"),
    ("encoder2b", "fp16", "offset 0.1 rms", "early"),
    ("cnn_detect", "int8", "channel to zero", "middle"),
    ("cnn_detect", "int8", "pad value", "early"),
    ("cnn_detect", "int8", "gain 1 %", "late"),
    ("cnn_detect", "fp16", "kernel flipped", "middle"),
    ("cnn_detect", "fp16", "truncated", "early"),
    ("cnn_detect", "fp16", "bias off by one channel", "late"),
)
PRECISIONS = ("fp16", "int8")
PARTS = 4


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
        print(line(self.rows[key]), flush=True)


@dataclass
class Bench:
    """Folders, gates, results and the clock."""

    root: Path
    gates: Mapping[str, Gate]
    results: Results
    until: float
    rights: dict[tuple[str, str], Honest] = field(default_factory=dict)

    @property
    def trial(self) -> Path:
        """One candidate at a time; a folder for each process, so that two parts may run side by side."""
        return self.root / f"trial-{os.getpid()}"

    @property
    def store(self) -> Path:
        return self.root / f"store-{os.getpid()}"

    def late(self) -> bool:
        return time.monotonic() > self.until

    def right(self, model: Subject, variant: str) -> Honest:
        """The right build of one model and precision, measured once a process; only the last is kept in memory."""
        if (model.name, variant) not in self.rights:
            folder = trial.folder_of(model, self.trial)
            row, seen = trial.measured(folder, model, variant, self.gates, self.store, None)
            key = f"right/{model.name}/{variant}"
            if key not in self.results.rows:
                self.results.add(key, {"kind": "right", **row})
            if seen is None:
                raise SystemExit(f"{model.name} {variant}: the right build fails: {row['error']}")
            self.rights.clear()
            self.rights[model.name, variant] = right(model, variant, seen)
        return self.rights[model.name, variant]


def compiled(bench: Bench, model: Subject, variant: str, fault: faults.Fault, depth: str) -> None:
    """One compiled fault at one depth."""
    key = f"{model.name}/{variant}/{fault.name}/{depth}"
    if key in bench.results.rows:
        return
    net = Net.load(model.graph, dict(model.inner))
    site = faults.at(fault.sites(net), depth)
    nodes = fault.put(net, site) if site is not None else set()
    row: dict[str, Any] = {"kind": "fault", "fault": fault.name, "group": fault.group, "depth": depth}
    row |= {"model": model.name, "variant": variant, "nodes": sorted(nodes)}
    if not nodes:
        bench.results.add(key, {**row, "void": "no such place in this model"})
        return
    held = bench.right(model, variant)
    folder = trial.folder_of(model, bench.trial)
    net.save(folder / plugin.FAULTY)
    try:
        row["shift"] = trial.shift(model.graph, folder / plugin.FAULTY, model)
    except Exception as error:  # onnxruntime's own kinds: the fault is no graph
        bench.results.add(key, {**row, "void": f"not a graph: {str(error)[:200]}"})
        return
    found, seen = trial.measured(folder, model, variant, bench.gates, bench.store, held)
    row |= found
    if seen is not None:
        if held.same(seen):
            row["void"] = "compiled away: every dump and output is that of the right build"
        row |= trial.named(found, held, nodes | net.beside, seen)
    bench.results.add(key, row)


def remembered(bench: Bench, model: Subject, variant: str, fault: memory.Memory, depth: str) -> None:
    """One memory fault in what the right build recorded: in a layer at this depth, or in the output."""
    key = f"{model.name}/{variant}/{fault.name}/{depth}"
    if key in bench.results.rows or ("NaN" in fault.name and variant != "fp16"):  # integers hold no NaN
        return
    held = bench.right(model, variant)
    row: dict[str, Any] = {"kind": "fault", "fault": fault.name, "group": fault.group, "depth": depth}
    row |= {"model": model.name, "variant": variant}
    tensor, given, moved = held.corrupted(fault, depth)
    if given is None:
        bench.results.add(key, {**row, "void": "no such place in this model"})
        return
    nodes = {n.name for n in held.graph.nodes if tensor in n.outputs}
    folder = trial.folder_of(model, bench.trial)
    candidate = model.candidate(variant, folder)
    plugin.GIVEN[candidate.folder] = given
    try:
        found, seen = trial.measured(folder, model, variant, bench.gates, bench.store, held)
    finally:
        del plugin.GIVEN[candidate.folder]
    row |= {"nodes": sorted(nodes), "shift": moved, **found}
    if seen is not None:
        row |= trial.named(found, held, nodes, seen)
    bench.results.add(key, row)


def line(row: Mapping[str, Any]) -> str:
    """One trial on the terminal."""
    if row["kind"] == "honest":
        return f"{row['key']}: {row.get('error') or ('ALARM ' + '; '.join(row['why']) if row['alarms'] else 'holds')}"
    said = row.get("void") or row.get("error") or f"{row['tool']}, first {row['first'].get('node', '-')}"
    named = " (right)" if row.get("named") else ""
    return f"{row['key']}: {said}{named}; moved {row.get('shift', 0):.2g}, {row.get('seconds', 0):.1f} s"


def whole() -> Iterator[tuple[str, str, str, str]]:
    """(model, variant, fault, depth) of the full run: three passes, each with every fault at one depth of a model.

    Every fourth fault of all models comes before the next ones, so that a run that is stopped is a fair sample.
    """
    depths, every = list(DEPTHS), list(enumerate(faults.compiled()))
    for turn in range(len(depths)):
        for part in range(PARTS):
            for name in (*WHOLE, *LONG) if turn == 0 else WHOLE:
                for variant in PRECISIONS:
                    for i, fault in every[part::PARTS]:
                        yield name, variant, fault.name, depths[(i // PARTS + turn) % len(depths)]
        for variant in PRECISIONS:
            yield "ppocr_det", variant, "resize mode", depths[turn]


def go(options: argparse.Namespace) -> None:
    root = options.cache.absolute()
    plugin.BUILDS = root / "builds"
    kind = "full" if options.full else "short"
    results = Results.open(root / f"{kind}-{code_version()[:12]}.jsonl")
    bench = Bench(root, gates(root), results, time.monotonic() + 60 * options.minutes)
    atexit.register(shutil.rmtree, bench.trial, ignore_errors=True)
    atexit.register(shutil.rmtree, bench.store, ignore_errors=True)
    by_name = {fault.name: fault for fault in faults.compiled()}
    chosen = [
        item
        for item in (whole() if options.full else SHORT)
        if (not options.model or item[0] in options.model)
        and (not options.variant or item[1] in options.variant)
        and (not options.fault or item[2] in options.fault)
    ]
    if options.only in (None, "faults"):
        for name, variant, fault, depth in chosen:
            if bench.late():
                break
            compiled(bench, subject(name, root / "models"), variant, by_name[fault], depth)
    if options.only in (None, "memory"):
        places = (*DEPTHS, "output") if options.full else ("middle", "output")
        for name in dict.fromkeys(item[0] for item in chosen):
            for variant in PRECISIONS:
                for fault in memory.FAULTS:
                    for depth in places:
                        if not bench.late() and (not options.variant or variant in options.variant):
                            remembered(bench, subject(name, root / "models"), variant, fault, depth)
    if options.only in (None, "honest"):
        honest.run(bench, options.full)
    print("\n" + render(results.rows))
