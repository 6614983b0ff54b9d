"""Every required checker over one trial: what they measured, and what kept one from measuring."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verify.core import Candidate, Measurement, Missing, NotComparable, Tier
from verify.graphs.info import GraphInfo
from verify.host import host
from verify.ruling import rule
from verify.stage import given
from verify.store import packages
from verify.stored import LegRecord, Run
from verify.trial import Leg, Trial, legs_of

#: Packages whose versions can change a number, for the report's environment.
NAMED = ("rknn-toolkit2", "onnxruntime", "onnx", "torch", "numpy", "protobuf", "onnxslim", "npu-verify")


def expected_legs(name: str, candidate: Candidate, graph: GraphInfo) -> tuple[str, ...]:
    """The legs that a built-in checker must measure where they were run; facts of the graph decide what applies."""
    numeric = [out for out in graph.outputs if graph.indexed(out) is None]
    legs = legs_of(candidate)
    graphs = [leg.name for leg in legs if leg.tier is not Tier.END_TO_END]
    devices = [leg.name for leg in legs if leg.tier is Tier.DEVICE]
    whole = [leg.name for leg in legs if leg.tier is Tier.END_TO_END]
    simulated = ["graph~simulator"] if candidate.variant.builder == "rknn" else []
    applies: Mapping[str, list[str]] = {
        "structure": graphs,
        "finite": graphs,
        "coverage": graphs,
        "diversity": graphs,
        "indices": graphs if len(numeric) < len(graph.outputs) else [],
        "parity": ["source~graph"] if numeric else [],
        "layers": devices if numeric else [],
        "range": [],  # it speaks of scales, which not every build has
        "regions": simulated,
        "accuracy": whole,
        "agreement": whole,
    }
    return tuple(applies.get(name, []))


def measure(trial: Trial, checkers: list[Any], command: str) -> Run:
    """Run every checker; a leg whose structure is broken gets no other number."""
    candidate, legs = trial.candidate, legs_of(trial.candidate)
    tiers = {leg.name: leg.tier for leg in legs}
    broken = dict(trial.facts.get("not_comparable", {}))
    measurements: list[Measurement] = []
    crashed: dict[str, str] = {}
    ran: dict[str, tuple[str, ...]] = {}
    unformed: dict[str, str] = {}
    present = {leg.name for leg in legs if all(r in trial.recordings for r in (leg.reference, leg.candidate))}
    if Tier.END_TO_END in tiers.values():
        present -= {leg.name for leg in legs if leg.tier is Tier.END_TO_END and leg.candidate not in trial.scored}

    for checker in sorted(checkers, key=lambda c: c.name != "structure"):
        ran[checker.name] = tuple(
            n for n in expected_legs(checker.name, candidate, trial.graph) if n in present - {*broken, *unformed}
        )
        try:
            for m in checker.check(trial):
                tier = m.tier or tiers.get(m.where.leg, checker.tier)
                measurements.append(dataclasses.replace(m, checker=checker.name, tier=tier))
        except NotComparable as error:
            place = error.where.partition(",")[0]
            if place in tiers:
                broken.setdefault(place, str(error))
            else:  # said of no leg, so no leg would be denied by it
                crashed[checker.name] = str(error)
        except Missing as error:
            crashed[checker.name] = str(error)
        except (Exception, SystemExit) as error:  # a plugin's fault denies, and must not hide the others' findings
            frame = traceback.extract_tb(error.__traceback__)[-1]
            crashed[checker.name] = f"{error!r} at {Path(frame.filename).name}:{frame.lineno}"
        if checker.name == "structure":
            for m in measurements:
                if m.metric == "mismatches" and not m.value <= 0:
                    broken.setdefault(m.where.leg, m.note)
            unformed = _unformed(legs, broken)
            trial = dataclasses.replace(trial, broken=frozenset({*broken, *unformed}))
    ruling = rule(trial, broken, measurements)
    unformed.update(ruling.doubted)
    return Run(
        candidate=_identity(trial),
        precision=candidate.variant.precision,
        legs=tuple(
            LegRecord(leg.tier, leg.name, "", unformed[leg.name])
            if leg.name in unformed
            else _leg(leg, trial, leg.name in present)
            for leg in legs
        ),
        ran=ran,
        measurements=ruling.measurements,
        crashed=crashed,
        broken=broken,
        budgets=_budgets(candidate),
        exhausted=tuple(role for role, held in trial.scored.items() if held.exhausted),
        coverage=_coverage(trial),
        environment=_environment(trial),
        notes=(*ruling.notes, *trial.notes),
        referee=ruling.referee,
        misfed=ruling.misfed,
        command=command,
    )


def _leg(leg: Any, trial: Trial, present: bool) -> LegRecord:
    if present or leg.name in trial.facts.get("not_comparable", {}):
        held = trial.recordings.get(leg.candidate)
        return LegRecord(leg.tier, leg.name, held[0].evidence if held else "")
    for role in (leg.candidate, leg.reference):
        if role in trial.missing:
            error = trial.missing[role]
            return LegRecord(leg.tier, leg.name, "", error.what, error.do, error.log)
    why = trial.facts.get("not_comparable", {}).get(f"graph~{leg.candidate}")
    return LegRecord(leg.tier, leg.name, "", f"{leg.candidate} gave nothing to compare" + (f": {why}" if why else ""))


def _budgets(candidate: Candidate) -> dict[str, float]:
    from verify.core import Accuracy

    declared = candidate.accuracy or Accuracy()
    budgets = {"accuracy.loss": declared.margin}
    for metric, value in candidate.budgets.items():
        budgets[metric if "." in metric else f"regions.{metric}"] = value
    return budgets


def _identity(trial: Trial) -> dict[str, Any]:
    candidate, graph = trial.candidate, trial.facts["graph"]
    artifacts = [{"role": "graph", "name": graph.path.name, "sha256": graph.sha256}]
    elsewhere = given(candidate)
    if elsewhere:
        artifacts.append({"role": "device", "name": elsewhere.path.name, "sha256": elsewhere.sha256})
    if trial.build:
        built = trial.build.artifact
        role = "rebuild" if elsewhere else built.role
        artifacts.append({"role": role, "name": built.path.name, "sha256": built.sha256})
    return {
        "model": candidate.model,
        "variant": candidate.variant.name,
        "target": candidate.target,
        "precision": candidate.variant.precision,
        "artifacts": artifacts,
    }


def _coverage(trial: Trial) -> dict[str, Any]:
    from verify.checkers.coverage import tensors
    from verify.floor.over import without

    outputs = list(trial.graph.outputs)
    if not (trial.alignment or trial.unmatched):
        return {"compared": len(outputs), "total": len(outputs), "uncovered": []}
    covered, uncovered = tensors(trial)
    floor = trial.facts.get("floor")
    if floor is not None and not floor.reason:  # only plain ratios judge a tensor without a floor: not covered by it
        cases = [r.case for r in trial.recordings.get("graph", ())]
        unmodelled = set(without(floor, [name for name in covered if name in trial.graph.producer], cases))
        covered, uncovered = [n for n in covered if n not in unmodelled], [*uncovered, *sorted(unmodelled)]
    return {"compared": len(covered), "total": len(covered) + len(uncovered), "uncovered": uncovered}


def _environment(trial: Trial) -> dict[str, Any]:
    installed, built = packages(), dict(trial.build.environment) if trial.build else {}
    local = trial.candidate.target == "cpu"
    return {
        "toolkit": built.get("rknn-toolkit2"),
        "runtime": f"onnxruntime {installed.get('onnxruntime')}" if local else None,
        "driver": None,  # of a board: there is none yet
        "soc": None,
        "isa": host()["isa"],
        "host": dict(host()),
        "packages": {name: installed[name] for name in NAMED if name in installed},
        "build": built,
        "cases": len(trial.recordings.get("source", ())),
        "cache": trial.facts.get("hit", ""),
        "builder": trial.candidate.variant.builder,
    }


def _unformed(legs: Sequence[Leg], broken: Mapping[str, str]) -> dict[str, str]:
    """The scores of a role whose outputs do not pair with the graph's, and why they say nothing."""
    roles = {leg.candidate: leg.name for leg in legs if leg.tier is Tier.DEVICE and leg.name in broken}
    return {
        leg.name: f"the outputs do not pair in {roles[leg.candidate]}, so scores say nothing"
        for leg in legs
        if leg.tier is Tier.END_TO_END and leg.candidate in roles and leg.name not in broken
    }
