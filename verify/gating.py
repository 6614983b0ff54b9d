"""`check` and `gate`: one engine, two answers. `gate` returns only what passed."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import shutil
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verify import recording
from verify.capture import Stage, capture, given
from verify.core import Candidate, Measurement, Missing, NotComparable, Tier, UsageError, VerifyError
from verify.graphs.info import GraphInfo
from verify.host import host
from verify.journal import Journal
from verify.judge import LegRecord, Run, judge, to_document
from verify.plan import union
from verify.policy import Policy
from verify.protocols import load
from verify.ruling import rule
from verify.schemas import stamp
from verify.store import Store, link, packages, publish
from verify.trial import Leg, Trial, legs_of
from verify.verdict import Verdict, _plain

#: Packages whose versions can change a number, for the report's environment.
NAMED = ("rknn-toolkit2", "onnxruntime", "onnx", "torch", "numpy", "protobuf", "onnxslim", "npu-verify")


class Rejected(VerifyError):
    """The gate's refusal; `verdict` says why."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        super().__init__(f"{verdict.outcome.value}", verdict.name, "see the verdict")

    def __str__(self) -> str:
        return str(self.verdict)


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


def examine(
    candidate: Candidate,
    policy: Policy | None = None,
    *,
    run: Path | None = None,
    store: Store | None = None,
    progress: Any = None,
    command: str = "",
) -> Verdict:
    """Capture, measure, judge, and store the run; raises UsageError for unusable input.

    `run` is the folder to leave behind (default: one under the store's `runs`); it appears complete or not at all.
    """
    from verify.reports.progress import quiet

    policy, progress = policy or Policy(), Journal(progress or quiet())
    store = store or Store(Path(".npu-verify"))
    checkers = [load("verify.checkers", name)() for name in policy.require]
    with store.work() as work:
        trial, stage = capture(candidate, union(candidate, checkers), store, progress, work)
        with progress.step("measuring"):
            record = measure(trial, checkers, command)
        stamped = datetime.datetime.now().strftime("%Y%m%d-%H%M%S-%f")  # two in one second are two
        name = f"{candidate.model}-{candidate.variant.name}-{stamped}-{os.getpid()}"
        target = run or store.root / "runs" / name
        shown = os.path.relpath(target) if not os.path.relpath(target).startswith("..") else str(target)
        logs = _logs(trial, stage, shown)

        legs = tuple(dataclasses.replace(leg, log=logs.get(leg.log, leg.log)) for leg in record.legs)
        record = dataclasses.replace(record, legs=legs, folder=shown)
        verdict = judge(record, policy)
        _leave(stage, trial, record, verdict, target, work, progress)
    return verdict


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


def _unformed(legs: Sequence[Leg], broken: Mapping[str, str]) -> dict[str, str]:
    """The scores of a role whose outputs do not pair with the graph's, and why they say nothing."""
    roles = {leg.candidate: leg.name for leg in legs if leg.tier is Tier.DEVICE and leg.name in broken}
    return {
        leg.name: f"the outputs do not pair in {roles[leg.candidate]}, so scores say nothing"
        for leg in legs
        if leg.tier is Tier.END_TO_END and leg.candidate in roles and leg.name not in broken
    }


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

    outputs = list(trial.graph.outputs)
    if not (trial.alignment or trial.unmatched):
        return {"compared": len(outputs), "total": len(outputs), "uncovered": []}
    covered, uncovered = tensors(trial)
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


def _logs(trial: Trial, stage: Stage, shown: str) -> dict[str, str]:
    """Logs of failed builds are kept in the run folder: the work folder goes away."""
    moved = {}
    for role, error in trial.missing.items():
        if error.log and Path(error.log).exists():
            name = "build.log" if role == "simulator" else f"{role}.log"
            if error.log not in moved:  # a failed build is the reason for both roles
                stage.files[name] = Path(error.log)
                moved[error.log] = f"{shown}/{name}"
    return moved


def _leave(
    stage: Stage, trial: Trial, record: Run, verdict: Verdict, target: Path, work: Path, journal: Journal
) -> None:
    folder = work / "run"
    folder.mkdir()
    entries = []
    for role, held in stage.recordings.items():
        for index, item in enumerate(held):
            plain = dataclasses.replace(item, layers={})
            entries.append(recording.save(plain, folder / "recordings", f"{role}-{index:04d}"))
    document = {"schema": stamp("run"), **_plain(to_document(record)), "recordings": entries}
    document["scored"] = {role: _plain(dataclasses.asdict(held)) for role, held in trial.scored.items()}
    (folder / "run.json").write_text(json.dumps(document))
    (folder / "verdict.json").write_text(verdict.to_json())
    (folder / "log.jsonl").write_text(journal.text())
    for name, path in stage.files.items():
        link(path, folder / name)
    try:
        publish(folder, target)
    except FileExistsError:
        raise UsageError("already exists by now", str(target), "name another with --run") from None
    except OSError:  # another file system: copy beside the target first, so that the last step is still a rename
        near = target.with_name(f".{target.name}.new-{os.getpid()}")
        try:
            shutil.copytree(folder, near)
            publish(near, target)
        except OSError as error:
            shutil.rmtree(near, ignore_errors=True)
            raise UsageError(f"cannot be written: {error.strerror}", str(target), "name another with --run") from None


def check(candidate: Candidate, policy: Policy | None = None, **options: Any) -> Verdict:
    """Run whatever can run here. The verdict's `outcome` may be inconclusive; nothing is ever signed."""
    return examine(candidate, policy, **options)


def gate(candidate: Candidate, policy: Policy | None = None, **options: Any) -> Verdict:
    """Every tier, on hardware; returns the verdict if it passed, raises Rejected (with the verdict) otherwise."""
    verdict = examine(candidate, policy, **options)
    if not verdict.passed:
        raise Rejected(verdict)
    return verdict
