"""A whole run taken up again: the source is asked, and where it says the same, nothing else is done twice.

What a verdict holds is that the built file agrees with the source. So the source always runs, whatever the cache says:
weights that a library read by itself show in its answers. The export, the graph's runs and the measurements of files
that have not changed are those of last time.
"""

from __future__ import annotations

import gc
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verify import cached, environs, schemas
from verify.core import Artifact, Build, Candidate, Missing, Recording, UsageError, VerifyError
from verify.environs import watching_environment
from verify.graphs.signature import recalled, signature, to_document
from verify.opened import state
from verify.protocols import load
from verify.store import Store, code_version, file_digest, key_of, link, packages
from verify.stored import Run, from_document
from verify.usercode import ignore, is_reference, recording_files

if TYPE_CHECKING:
    from verify.stage import Stage
    from verify.trial import Trial

KIND = "runs"


@dataclass(frozen=True)
class Recalled:
    """A stored run whose files lie in `folder`; `document` is its run.json but for what names this very run."""

    record: Run
    document: Mapping[str, Any]
    build: str
    folder: Path


def key_of_run(candidate: Candidate, checkers: Sequence[Any]) -> str:
    """What can be known without running user code, as a key; "" for a run that is never taken up whole.

    A runner of the user's own and a file built elsewhere are run every time, checkers of others measure every time.
    """
    from verify.cases import digest_depends, digest_scored
    from verify.host import host

    variant = candidate.variant
    if not variant.builder or variant.run or variant.artifact:
        return ""
    if not all(type(checker).__module__.startswith("verify.checkers.") for checker in checkers):
        return ""
    declared, graph = variant.graph or candidate.graph, ""
    if not is_reference(declared):
        path = candidate.folder / declared
        graph = file_digest(path) if path.is_file() else ""  # the files of its weights are the entry's to check
    return key_of(
        {
            "code": code_version(),
            "candidate": {**asdict(candidate), "traits": sorted(candidate.traits)},
            "require": [checker.name for checker in checkers],
            "graph": graph,
            "scored": digest_scored(candidate),
            "depends": digest_depends(candidate),
            "toolkit": load("verify.builders", variant.builder)().environment(candidate),
            "packages": packages(),
            "python": [sys.version, sys.executable],
            "host": host(),
        }
    )


def recall(candidate: Candidate, key: str, store: Store, progress: Any, work: Path) -> Recalled | None:
    """The kept run of this key, if its files, what user code opened, and what the source says are as they were."""
    entry, folder = store.find(KIND, key) if key else None, work / "run"
    if entry is None:
        return None
    try:
        with store.lock(key):  # another gate may be replacing it
            document = schemas.lift(json.loads((entry / "entry.json").read_text()), "cache", str(entry))
            for name in document["files"]:
                link(entry / name, folder / name)
        whole = all(file_digest(folder / name) == held for name, held in document["files"].items())
        whole &= all(environs.digest(name) == held for name, held in document["environ"].items())
        whole &= all(state(Path(name)) == held for name, held in document["opened"].items())
        graph = _graph(candidate, folder)
        beside = {} if graph.parent == folder else {graph.name: document["graph"], **document["weights"]}
        whole &= all(state(graph.parent / name) == held for name, held in beside.items())
        whole = whole and _as_absent(candidate, document, store, folder)
        if whole:
            recalled(graph, document["signature"])  # its bytes are those of then: this run's digests say so
        ignore(folder)
        if whole and _same_source(candidate, Artifact("graph", graph, document["graph"]), document, progress):
            return Recalled(from_document(document["run"]), document["run"], document["build"], folder)
    except (OSError, ValueError, KeyError, AttributeError, TypeError, UsageError):  # cut short, or of another version
        pass
    shutil.rmtree(folder, ignore_errors=True)
    return None


def _as_absent(candidate: Candidate, document: Mapping[str, Any], store: Store, folder: Path) -> bool:
    """Whether the device is missing for the same reason as then; this machine itself was run within the cache."""
    from verify import capture
    from verify.plan import Plan
    from verify.stage import Stage

    if not document["missing"]:
        return True
    stage = Stage(candidate, Plan(frozenset(), ()), store, None, folder)
    build = Build(candidate.variant.builder, Artifact("device", folder / document["artifact"], ""))
    try:
        with capture.device(stage, build):
            return False
    except Missing as error:
        return bool([error.what, error.do] == document["missing"])


def _graph(candidate: Candidate, folder: Path) -> Path:
    """The graph that the candidate names, or the one that was exported then."""
    declared = candidate.variant.graph or candidate.graph
    return folder / "graph.onnx" if is_reference(declared) else candidate.folder / declared


@contextmanager
def _hurrying() -> Iterator[None]:
    """Look for unreachable cycles less often: an import of torch makes 10^6 objects, next to none of them garbage.

    It takes 1.4 s in place of 1.6 s of one EPYC core (median of 6).
    """
    usual = gc.get_threshold()
    gc.set_threshold(50_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def _same_source(candidate: Candidate, graph: Artifact, document: Mapping[str, Any], progress: Any) -> bool:
    """Whether cases and calibration are the same, and the source's answers, to the bit."""
    from verify.backends.source import SourceBackend
    from verify.cases import digest_cases, load_calibration, load_cases, prepare
    from verify.keys import fingerprint

    title = "loading the model and asking it again, the rest is kept"
    # what is seen of user code counts in the whole run too, if it comes to that: modules are read once a process
    with progress.step(title, expected_seconds=2), _hurrying(), recording_files(), watching_environment():
        try:
            cases = load_cases(candidate, graph)
            same = bool([digest_cases(cases), digest_cases(load_calibration(candidate, graph))] == document["cases"])
            if same:
                with SourceBackend().open(candidate, graph) as source:
                    said = [Recording("source", c.name, source.run(prepare(candidate, c.inputs))) for c in cases]
                same = bool(fingerprint(said) == document["source"])
        except VerifyError:  # the whole run will say it
            same = False
    return same


def remember(stage: Stage, trial: Trial, record: Run, key: str, document: Mapping[str, Any], folder: Path) -> None:
    """Keep a run folder under `key`, unless something in it is missing, broken, or was run outside the cache."""
    from verify.cases import digest_cases
    from verify.keys import fingerprint

    odd = trial.facts.get("not_comparable") or trial.facts.get("unsteady") or record.crashed or record.broken
    odd = odd or set(trial.missing) - {"device"} or any(leg.log for leg in record.legs)
    absent, graph = trial.missing.get("device"), trial.facts["graph"]
    local = stage.candidate.target == "cpu"  # its device was run within the cache; a board is asked every time
    if not key or trial.build is None or odd or local is not ("device" in stage.recordings):
        return
    entry, declared = stage.work / "again", to_document(signature(graph.path), graph.path.parent)
    names = [str(p.relative_to(folder)) for p in sorted(folder.rglob("*")) if p.is_file()]
    names = [name for name in names if name not in ("run.json", "verdict.json", "log.jsonl")]
    for name in names:
        link(folder / name, entry / name)
    held = {
        "run": document,
        "build": trial.facts["key"],
        "artifact": trial.build.artifact.path.name,
        "missing": [absent.what, absent.do] if absent else [],
        "graph": graph.sha256,
        "signature": declared,
        "weights": {name: file_digest(graph.path.parent / name) for name in declared["external"]},
        "cases": [digest_cases(stage.cases), stage.facts["calibration"]],
        "source": fingerprint(stage.recordings["source"]),
        **cached.used(stage, trial.facts["key"]),
        "files": {name: file_digest(entry / name) for name in names},
    }
    with stage.store.lock(key):
        stage.store.keep(entry, KIND, key, held)


def renamed(record: Run, build: str, command: str, shown: str) -> Run:
    """The record of last time as that of this run: where it lies, what asked for it, and that it is from the cache."""
    return replace(record, environment={**record.environment, "cache": build}, command=command, folder=shown)
