"""`check` and `gate`: one engine, two answers. `gate` returns only what passed."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verify import again, recording
from verify.capture import capture
from verify.core import Candidate, UsageError, VerifyError
from verify.journal import Journal
from verify.judge import judge
from verify.measuring import measure
from verify.plan import LAYER_CASES, union
from verify.policy import Policy
from verify.protocols import load
from verify.schemas import stamp
from verify.stage import Stage
from verify.store import Store, copy, link, publish
from verify.stored import Run, to_document
from verify.trial import Trial
from verify.verdict import Verdict, _plain


class Rejected(VerifyError):
    """The gate's refusal; `verdict` says why."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        super().__init__(f"{verdict.outcome.value}", verdict.name, "see the verdict")

    def __str__(self) -> str:
        return str(self.verdict)


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
    stamped = datetime.datetime.now().strftime("%Y%m%d-%H%M%S-%f")  # two in one second are two
    target = run or store.root / "runs" / f"{candidate.model}-{candidate.variant.name}-{stamped}-{os.getpid()}"
    shown = os.path.relpath(target) if not os.path.relpath(target).startswith("..") else str(target)
    key, started = again.key_of_run(candidate, checkers), time.time()
    with store.work() as work:
        kept = again.recall(candidate, key, store, progress, work)
        if kept is not None:
            record = again.renamed(kept.record, kept.build, command, shown)
            verdict = judge(record, policy)
            _write(kept.folder, record, kept.document, verdict, progress)
            _place(kept.folder, target)
            return verdict
        trial, stage = capture(candidate, union(candidate, checkers), store, progress, work, started)
        with progress.step("measuring"):
            record = measure(trial, checkers, command)
        logs = _logs(trial, stage, shown)

        legs = tuple(dataclasses.replace(leg, log=logs.get(leg.log, leg.log)) for leg in record.legs)
        record = dataclasses.replace(record, legs=legs, folder=shown)
        verdict = judge(record, policy)
        folder = work / "run"
        document = _write(folder, record, _recordings(stage, trial, folder), verdict, progress)
        for name, path in stage.files.items():
            ours = path.resolve().is_relative_to(store.root.resolve())
            (link if ours else copy)(path, folder / name)  # a user's file may be written again where it lies
        again.remember(stage, trial, record, key, document, folder)
        _place(folder, target)
    return verdict


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


def _recordings(stage: Stage, trial: Trial, folder: Path) -> dict[str, Any]:
    """Write every recording without its inner tensors, and what the layer cases were fed.

    Returns what run.json says of them and of the scores.
    """
    entries = []
    for role, held in stage.recordings.items():
        for index, item in enumerate(held):
            plain = dataclasses.replace(item, layers={})
            entry = recording.save(plain, folder / "recordings", f"{role}-{index:04d}")
            if (
                role == "graph" and index < LAYER_CASES and item.integrity.get("inputs")
            ):  # localize ranks layers by them
                entry = recording.save_inputs(entry, item.integrity["inputs"], folder / "recordings")
            entries.append(entry)
    scored = {role: _plain(dataclasses.asdict(held)) for role, held in trial.scored.items()}
    return {"recordings": entries, "scored": scored}


def _write(folder: Path, record: Run, more: Mapping[str, Any], verdict: Verdict, journal: Journal) -> dict[str, Any]:
    """The three documents of a run folder; returns run.json's."""
    folder.mkdir(exist_ok=True)
    rest = {name: more[name] for name in ("recordings", "scored")}
    document = {"schema": stamp("run"), **_plain(to_document(record)), **rest}
    (folder / "run.json").write_text(json.dumps(document))
    (folder / "verdict.json").write_text(verdict.to_json())
    (folder / "log.jsonl").write_text(journal.text())
    return document


def _place(folder: Path, target: Path) -> None:
    """The folder's last step: it appears as a whole, or not at all."""
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
