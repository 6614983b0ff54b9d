"""Content keys, locks and atomic renames for cached builds and run folders."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from verify.core import UsageError
from verify.schemas import CURRENT


def file_digest(path: Path) -> str:
    """sha256 of a file in hexadecimal, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def key_of(parts: Mapping[str, Any]) -> str:
    """A key over JSON-like parts: the sha256 of their canonical JSON."""
    text = json.dumps(parts, sort_keys=True, default=str, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=1)
def code_version() -> str:
    """A digest of this package's own sources: a changed checker or builder never meets an old cache entry."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()


@lru_cache(maxsize=1)
def packages() -> Mapping[str, str]:
    """The version of every installed project, by its normalised name (lower case, hyphens).

    Both stand in the names of the folders that installers write (packaging.python.org, "Recording installed projects").
    To parse their metadata takes eight times as long: 120 ms for 80 of them (an EPYC core).
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        try:
            names = sorted(os.listdir(folder or "."))
        except OSError:  # an archive, or nothing at all
            continue
        for name in names:
            stem, _, kind = name.rpartition(".")
            if kind in ("dist-info", "egg-info"):
                project, _, version = stem.partition("-")
                found.setdefault(re.sub("[-_.]+", "-", project).lower(), version or _stated(Path(folder, name)))
    return found


def _stated(info: Path) -> str:
    """The version of a project that is developed in place: its folder's name does not say it."""
    from importlib.metadata import PathDistribution

    return PathDistribution(info).version or ""


@dataclass(frozen=True)
class Store:
    """A folder of cached entries (`cache/<kind>/<key>`), run folders (`runs`) and work folders (`tmp`)."""

    root: Path

    def _folder(self, *parts: str) -> Path:
        folder = self.root.joinpath(*parts)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot be written: {error.strerror}", str(folder), "name another with --cache") from None
        return folder

    def find(self, kind: str, key: str) -> Path | None:
        """A complete cached entry, or None."""
        entry = self.root / "cache" / kind / key
        return entry if (entry / "entry.json").is_file() else None

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Held by one process at a time, so that two gates of a candidate build once; freed by the kernel on death."""
        with (self._folder("locks") / key).open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def work(self) -> Iterator[Path]:
        """A folder of one's own, removed at the end, and by a watcher should this process be killed."""
        from verify.process import sweeping

        folder = Path(tempfile.mkdtemp(prefix="work-", dir=self._folder("tmp"))).resolve()
        with sweeping(folder):
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def keep(self, folder: Path, kind: str, key: str, entry: Mapping[str, Any]) -> Path:
        """Move a filled folder to its place in the cache in one rename; `entry` becomes its entry.json."""
        document = {"schema": f"npu-verify/cache/{CURRENT['cache']}", **entry}
        (folder / "entry.json").write_text(json.dumps(document, default=str))
        target = self._folder("cache", kind) / key
        if target.exists():  # incomplete or superseded; the kernel refuses to rename onto a folder that is not empty
            shutil.rmtree(target)
        folder.rename(target)
        return target


def publish(folder: Path, target: Path) -> None:
    """Rename a filled folder to `target`; FileExistsError where there is one by now: evidence is never overwritten."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise FileExistsError(error.errno, "already exists", str(target)) from None
        raise


def link(source: Path, target: Path) -> None:
    """A hard link where the file system allows one, else a copy: run folders hold evidence without doubling it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def copy(source: Path, target: Path) -> None:
    """A file of its own, whatever becomes of the source."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)
