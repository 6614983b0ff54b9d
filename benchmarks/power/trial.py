"""One faulty build through the tool, and the same tensors through the gates."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from power import plugin
from power.gates import Gate, ask
from power.models import Subject, run
from power.right import Honest, relative
from verify.candidate import load
from verify.core import VerifyError
from verify.gating import examine
from verify.graphs.align import restore
from verify.judge import judge
from verify.policy import REQUIRED, Policy
from verify.store import Store
from verify.stored import from_document
from verify.trial import Trial
from verify.verdict import Verdict

#: Tier 3 asks whether the model still does its work: another question, and minutes of it.
POLICY = Policy(
    "power",
    (*(name for name in REQUIRED if name not in ("accuracy", "agreement")), "observed"),
    {("observed", "seen"): {"*": 0.0}},
)
LEG = "graph~simulator"
#: Grains that only recordings of layers give.
INNER = ("layer", "isolated", "region", "rewrite")


def folder_of(subject: Subject, root: Path) -> Path:
    """A candidate's folder beside the subject's: the same files under a place of its own."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for name in ("model.onnx", "candidate.toml"):
        os.link(subject.folder / name, root / name)
    for name in ("cases", "calib"):
        shutil.copytree(subject.folder / name, root / name, copy_function=os.link)
    return root


def examined(folder: Path, variant: str, store: Path) -> tuple[Verdict, Trial | None, dict[str, Any]]:
    """(verdict, trial, the stored run) of one candidate."""
    candidate, seen = load(folder / "candidate.toml", variant), plugin.Seen()
    plugin.WATCHERS[candidate.folder] = seen
    for kind in ("builds", "runs"):  # of the trial before, which never comes again: what is kept is in BUILDS
        shutil.rmtree(store / "cache" / kind, ignore_errors=True)
    target = store / "last"
    shutil.rmtree(target, ignore_errors=True)
    try:
        verdict = examine(candidate, POLICY, store=Store(store), run=target)
    finally:
        del plugin.WATCHERS[candidate.folder]
    return verdict, seen.trial, json.loads((target / "run.json").read_text())


def leg(verdict: Verdict, name: str = LEG) -> str:
    """The outcome of one leg."""
    for tier in verdict.tiers.values():
        for held in tier.legs:
            if held.name == name:
                return held.outcome.value
    return "absent"


def outputs_only(document: Mapping[str, Any]) -> str:
    """The leg's outcome when nothing of the layers is known."""
    return leg(without(document, INNER))


def without(document: Mapping[str, Any], grains: Collection[str]) -> Verdict:
    """The verdict without the measurements of some grains."""
    run = from_document(document)
    kept = tuple(m for m in run.measurements if m.grain not in grains)
    return judge(dataclasses.replace(run, measurements=kept), POLICY)


def simulated_only(document: Mapping[str, Any]) -> dict[str, Any]:
    """What the tool says without the toolkit's float32 run: by the simulated values alone, as of a wrong kernel."""
    verdict = without(document, ("rewrite",))
    first = dict(verdict.first_divergent or {})
    fails = {f"{f.checker}.{f.metric}" for f in verdict.findings if f.severity == "fail" and f.leg == LEG}
    found = {"tool": leg(verdict), "first": first, "metrics": sorted(fails)}
    return {**found, "regions": regions(document, first.get("tensor", ""))}


def regions(document: Mapping[str, Any], tensor: str) -> list[str]:
    """The nodes of the compiled region that ends at a tensor, as the tool replayed it."""
    for m in from_document(document).measurements:
        if m.grain == "region" and m.where.tensor == tensor and "nodes" in m.null:
            return list(m.null["nodes"])
    return []


def tensors(trial: Trial, alignment: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(tensor, wanted, got) of every layer that the honest build shows, in the graph's order, and of the outputs.

    Layers go by name here: where a fault moves the toolkit's own golden values, the match by value is lost, and the
    other gates shall not suffer from that.
    """
    position = trial.graph.position
    order = sorted(alignment.items(), key=lambda item: position.get(item[1].tensor, -1))
    for name, match in order:
        for wanted, got in zip(trial.recordings["graph"], trial.recordings["simulator"], strict=True):
            held = wanted.layers.get(match.tensor, wanted.outputs.get(match.tensor))
            if held is None or layer_missing(got, name, match):
                continue
            yield match.tensor, held, restore(got.layers[name], match)
    yield from finals(trial)


def layer_missing(recording: Any, name: str, match: Any) -> bool:
    return name not in recording.layers or np.size(recording.layers[name]) != int(np.prod(match.shape))


def finals(trial: Trial) -> Iterator[tuple[str, Any, Any]]:
    for where, wanted, got in trial.pairs("graph", "simulator"):
        yield where.tensor, wanted, got


def shift(right: Path, wrong: Path, subject: Subject) -> float:
    """How far the fault moves the outputs, without any rounding: relative L2, float32, the worst output and case."""
    worst = 0.0
    candidate = subject.candidate("fp16")
    for feeds in subject.cases():
        a, b = run(right, candidate, feeds)[0], run(wrong, candidate, feeds)[0]
        worst = max([worst, *(relative(a[n], b[n]) for n in a)])
    return worst


def measured(
    folder: Path, subject: Subject, variant: str, held: Mapping[str, Gate], store: Path, honest: Honest | None
) -> tuple[dict[str, Any], Trial | None]:
    """One row: what the tool and every gate say of one build."""
    start = time.perf_counter()
    row: dict[str, Any] = {"model": subject.name, "variant": variant}
    try:
        verdict, trial, document = examined(folder, variant, store)
    except VerifyError as error:
        return {**row, "error": str(error)[:300], "seconds": time.perf_counter() - start}, None
    first = verdict.first_divergent or {}
    row |= {"tool": leg(verdict), "first": dict(first), "outputs": outputs_only(document)}
    row["regions"] = regions(document, first.get("tensor", ""))
    row["simulated"] = simulated_only(document)
    fails = [f for f in verdict.findings if f.severity == "fail" and f.leg == LEG]
    row["metrics"] = sorted({f"{f.checker}.{f.metric}" for f in fails})
    row["warned"] = sorted({f.id for f in verdict.findings if f.severity == "warn" and f.leg == LEG})
    if trial is None or "simulator" not in trial.recordings:
        reason = next((leg.missing for leg in from_document(document).legs if leg.name == LEG), "")
        return {**row, "error": reason[:300] or "no simulator", "seconds": time.perf_counter() - start}, None
    row["tool_seconds"] = round(time.perf_counter() - start, 2)
    alignment = honest.alignment if honest else trial.alignment
    row["layers"] = {"matched": len(trial.alignment), "unmatched": len(trial.unmatched)}
    row["gates"] = ask(held, tensors(trial, alignment))
    row["final"] = ask(held, finals(trial))
    row["seconds"] = round(time.perf_counter() - start, 2)
    return row, trial


def named(found: Mapping[str, Any], honest: Honest, nodes: set[str], trial: Trial) -> dict[str, Any]:
    """Who named the right node, and the error that the right build makes in its outputs.

    Right is a faulty node itself, the first tensor behind it that this build dumps, or a compiled region, as the tool
    replayed it, that holds a faulty node. An operator that was put on an edge makes both its ends faulty.
    """
    region = honest.region(nodes, set(trial.recordings["simulator"][0].layers))

    def right(said: Mapping[str, Any]) -> bool:
        first = said["first"]
        held = honest.right(first.get("node", ""), first.get("tensor", ""), nodes, region)
        return bool(first) and (held or bool(nodes & set(said["regions"])))

    return {
        "named": right(found),
        "simulated_named": right(found["simulated"]),
        "gate_named": {g: bool(t) and honest.right("", t, nodes, region) for g, t in found["gates"].items()},
        "floor": max(honest.errors.values()),
    }
