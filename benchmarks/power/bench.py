"""One trial after the other, each leaving a line that a later run goes on from."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from power import faults, plugin, trial
from power.faults import memory
from power.gates import Gate
from power.models import Subject
from power.net import Net
from power.right import Honest, right


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
