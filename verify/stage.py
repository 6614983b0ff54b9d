"""What one capture gathers on its way to a Trial, and the first steps of it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verify.core import Artifact, Candidate, Case, Missing, Recording, Tensors, UsageError
from verify.frozen import Site, Watch, of_export, watching
from verify.graphs.signature import signature
from verify.plan import Plan
from verify.store import Store, file_digest


@dataclass
class Stage:
    """What one capture gathers on its way to a Trial.

    `files` are what the run folder should hold, `opened` what user code read, `sites` where the exporter took values
    out of its trace, `taken` the values that the source took there, case by case.
    """

    candidate: Candidate
    plan: Plan
    store: Store
    progress: Any
    work: Path
    cases: list[Case] = field(default_factory=list)
    recordings: dict[str, tuple[Recording, ...]] = field(default_factory=dict)
    missing: dict[str, Missing] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    files: dict[str, Path] = field(default_factory=dict)
    opened: set[Path] = field(default_factory=set)
    sites: list[Site] = field(default_factory=list)
    taken: list[Watch] = field(default_factory=list)
    started: float = field(default_factory=time.time)


def graph_of(stage: Stage) -> Artifact:
    """The ONNX graph of the candidate: a file, or exported now; what the exporter froze or warned of is kept."""
    from verify.cases import export_graph

    declared = stage.candidate.variant.graph or stage.candidate.graph
    with watching(stage.candidate, declared) as watch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        path = export_graph(stage.candidate, stage.work)
    sites, told = of_export(watch, caught)
    stage.sites += sites
    stage.notes += told
    stage.files["graph.onnx"] = path
    for weights in signature(path).external:
        stage.files[str(weights.relative_to(path.parent))] = weights
    return Artifact("graph", path, file_digest(path))


def given(candidate: Candidate) -> Artifact | None:
    """The file built elsewhere that the variant names, if it names one; raises UsageError when it is not there."""
    if not candidate.variant.artifact:
        return None
    path = candidate.folder / candidate.variant.artifact
    if not path.is_file():
        raise UsageError("no such file", str(path), "give the path of the built file, relative to candidate.toml")
    return Artifact("device", path, file_digest(path))


def record(
    stage: Stage, role: str, run: Callable[[Case], tuple[Tensors, Tensors, Mapping[str, Any]]], evidence: str
) -> tuple[Recording, ...]:
    """Run every case once in one role; `run` returns outputs, inner tensors and the integrity record."""
    done = []
    for case in stage.cases:
        start = time.perf_counter()
        outputs, layers, integrity = run(case)
        seconds = time.perf_counter() - start
        done.append(Recording(role, case.name, outputs, layers, integrity, {}, seconds, evidence))
    return tuple(done)
