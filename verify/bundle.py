"""A bundle: a folder that lists every file of its own with its sha256, so that what arrives is what was packed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verify import schemas
from verify.core import Measurement, UsageError
from verify.store import file_digest

MANIFEST = "bundle.json"


def seal(folder: Path, facts: Mapping[str, Any]) -> Path:
    """Write the manifest over everything that lies in `folder`; `facts` are kept in it. Returns its path."""
    manifest = folder / MANIFEST
    manifest.unlink(missing_ok=True)
    listed = {name: file_digest(folder / name) for name in _files(folder)}
    manifest.write_text(json.dumps({"schema": schemas.stamp("bundle"), **facts, "files": listed}, indent=1) + "\n")
    return manifest


def load(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle, after every file was found unchanged; raises UsageError for any other state.

    Files that were added count as well: one more case would change what is checked. Hidden files and folders at the top
    (a cache, for example) are not looked at.
    """
    document = schemas.read(folder / MANIFEST, "bundle")
    listed, do = document.get("files"), "get the bundle again, or pack it again"
    if not isinstance(listed, dict) or not listed:
        raise UsageError("lists no files", str(folder / MANIFEST), do)
    found = set(_files(folder)) - {MANIFEST}
    for name in sorted(set(listed) | found):
        if name not in found:
            raise UsageError("is missing", str(folder / name), do)
        if name not in listed:
            raise UsageError("was not packed", str(folder / name), "remove it, or work outside the bundle")
        if file_digest(folder / name) != listed[name]:
            raise UsageError("was changed since it was packed", str(folder / name), do)
    return document


def checked(folder: Path) -> None:
    """Raise UsageError when `folder` is a bundle that is not as it was packed; any other folder is fine."""
    if (folder / MANIFEST).exists():
        load(folder)


def exported(folder: Path) -> tuple[Measurement, ...]:
    """What the packed run says that its export had frozen, () for what is no bundle: a bundle cannot export again."""
    if not (folder / MANIFEST).exists():
        return ()
    from verify.stored import from_document

    held = from_document(schemas.read(folder / "run.json", "run")).measurements
    return tuple(m for m in held if m.metric in ("frozen_branches", "baked_shapes"))


def left_out(folder: Path) -> list[str]:
    """What a check here cannot do as the packed candidate declares it, [] for what is no bundle: its own score."""
    if not (folder / MANIFEST).exists():
        return []
    notes = schemas.read(folder / MANIFEST, "bundle").get("notes", ())
    return [str(note) for note in notes if str(note).startswith("the score ")]


def _files(folder: Path) -> list[str]:
    """Every file below, relative, in order; raises UsageError for a link, which could lead out of the bundle."""
    out = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if name.parts[0].startswith("."):
            continue
        if path.is_symlink():
            raise UsageError("is a link", str(path), "a bundle holds plain files only")
        if path.is_file():
            out.append(name.as_posix())
    return out
