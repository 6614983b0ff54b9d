"""`check` and `gate`: one engine, two answers. `gate` returns only what passed."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import shutil
from pathlib import Path
from typing import Any

from verify import recording
from verify.capture import capture
from verify.core import Candidate, UsageError, VerifyError
from verify.journal import Journal
from verify.judge import judge
from verify.measuring import measure
from verify.plan import union
from verify.policy import Policy
from verify.protocols import load
from verify.schemas import stamp
from verify.stage import Stage
from verify.store import Store, link, publish
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
