"""A build with its recordings, dumps and scores, kept under its content key and taken up again."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verify import environs, recording, schemas
from verify.core import Artifact, Build, LayerRow, UsageError
from verify.graphs.align import Match
from verify.opened import state
from verify.store import file_digest
from verify.trial import Scored

if TYPE_CHECKING:
    from verify.stage import Stage

KIND = "builds"


def keep(stage: Stage, key: str, build: Build | None) -> Build | None:
    """Move a finished build to the cache; what crashed, hung or could not be compared is never kept."""
    if build is None or stage.facts.get("not_comparable"):
        return build
    folder = stage.work / "entry"
    folder.mkdir()
    artifact = folder / build.artifact.path.name
    shutil.move(build.artifact.path, artifact)
    if build.log is not None:
        shutil.copy2(build.log, folder / "build.log")
    entries = []
    for role in ("simulator", "device"):
        for index, held in enumerate(stage.recordings.get(role, ())):
            entries.append(recording.save(held, folder, f"{role}-{index:04d}"))
    entry = {
        "build": {**asdict(build), "artifact": {"file": artifact.name, "sha256": build.artifact.sha256}, "log": None},
        "recordings": entries,
        "alignment": {name: asdict(match) for name, match in stage.facts.get("alignment", {}).items()},
        "unmatched": stage.facts.get("unmatched", {}),
        "assumed": {name: asdict(match) for name, match in stage.facts.get("assumed", {}).items()},
        "scored": {role: asdict(held) for role, held in stage.facts.get("scored", {}).items()},
        "notes": stage.notes,
        "files": {path.name: _state(path) for path in sorted(folder.iterdir())},
        **_used(stage),
    }
    return _restore(stage, stage.store.keep(folder, KIND, key, entry))


def _used(stage: Stage) -> dict[str, Any]:
    opened = {str(path): _opened(path, stage.started) for path in sorted(stage.opened) if path.exists()}
    return {"opened": opened, "environ": environs.asked(str(stage.candidate.folder.resolve()) + os.sep)}


def used(stage: Stage, key: str) -> dict[str, Any]:
    """What user code opened and which variables it asked for, in this run and when the build of `key` was made."""
    now, entry = _used(stage), stage.store.find(KIND, key)
    made = json.loads((entry / "entry.json").read_text()) if entry else {}
    return {name: {**now[name], **made.get(name, {})} for name in now}


def _state(path: Path) -> str:
    """The digest of a kept file; of layer dumps, which are large and cannot make anything pass, the size."""
    return str(path.stat().st_size) if path.name.endswith(".layers.npz") else file_digest(path)


def _opened(path: Path, started: float) -> str:
    """The digest of a file that user code opened; of one that was changed since then nobody knows what was read."""
    stat = path.stat()
    changed = path.is_file() and max(stat.st_mtime, stat.st_ctime) >= started
    return "changed while it was used" if changed else state(path)


def load(stage: Stage, key: str) -> Build | None:
    """The kept build of this key with its recordings, or None; one with a file of its own that is not as it was kept,
    or a file that user code had opened and that has changed, is not taken up."""
    entry = stage.store.find(KIND, key)
    if entry is None:
        return None
    try:
        document = schemas.lift(json.loads((entry / "entry.json").read_text()), "cache", str(entry))
        whole = all(_state(entry / name) == state for name, state in document["files"].items())
    except (OSError, ValueError, KeyError, AttributeError, UsageError):  # cut short, removed, or of another version
        return None
    opened = document.get("opened", {})
    whole &= all(environs.digest(name) == held for name, held in document.get("environ", {}).items())
    if not whole or any(state(Path(name)) != held for name, held in opened.items()):
        return None
    build = _restore(stage, entry)
    stage.facts["hit"] = key
    return build


def _restore(stage: Stage, folder: Path) -> Build:
    """Lay a cache entry's content out in the stage; also what a fresh build does last, so both ways agree."""
    document = schemas.lift(json.loads((folder / "entry.json").read_text()), "cache", str(folder))
    held: dict[str, Any] = document["build"]
    artifact = Artifact("device", folder / held["artifact"]["file"], held["artifact"]["sha256"])
    table = tuple(LayerRow(**row) for row in held["table"])
    log = folder / "build.log"
    build = Build(**{**held, "artifact": artifact, "table": table, "log": log if log.exists() else None})
    for role in ("simulator", "device"):
        found = tuple(recording.load(e, folder) for e in document["recordings"] if e["role"] == role)
        if found:
            stage.recordings[role] = found
    alignment, assumed = (
        {name: Match(**_tuples(match)) for name, match in document.get(kind, {}).items()}
        for kind in ("alignment", "assumed")
    )
    scored = {
        role: Scored(
            role,
            {name: (tuple(a), tuple(b)) for name, (a, b) in item["pairs"].items()},
            {name: tuple(values) for name, values in item["distance"].items()},
            item["exhausted"],
            item["evidence"],
            item["repeated"],
        )
        for role, item in document["scored"].items()
    }
    stage.facts.update(alignment=alignment, assumed=assumed, unmatched=document["unmatched"], scored=scored)
    stage.notes[:] = document["notes"]
    return build


def _tuples(item: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in item.items()}
