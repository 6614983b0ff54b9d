"""What a plugin must look like, and the loading of entry points."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from verify.core import (
    PLUGIN_API,
    Array,
    Artifact,
    Build,
    Candidate,
    Case,
    Measurement,
    RunSpec,
    Tensors,
    Tier,
    UsageError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from verify.trial import Trial


class Session(Protocol):
    """An opened artifact. `run` takes named feeds and returns every output in the graph's order."""

    def run(self, feeds: Tensors, /) -> Tensors: ...


class Backend(Protocol):
    """Opens an artifact in one role; raises Missing when it cannot be had here."""

    role: str

    def open(self, candidate: Candidate, artifact: Artifact, /) -> AbstractContextManager[Session]: ...


class LiveBuild(Session, Protocol):
    """A build that is still in its child process: it can simulate and dump layers until it is closed."""

    build: Build
    simulates: bool

    def run(self, feeds: Tensors, /) -> Tensors: ...

    def layers(self, case: Case, into: Path, /) -> LayerDump: ...


class LayerDump(Protocol):
    """Per-layer dumps of one case: `golden` (float32 run of the optimised graph) and `simulated`, by layer name."""

    golden: Tensors
    simulated: Tensors
    order: tuple[str, ...]


class Builder(Protocol):
    """Compiles once, in one child process. Leaving the context ends the child."""

    def open(
        self, candidate: Candidate, graph: Artifact, calibration: Collection[Case], work: Path, /
    ) -> AbstractContextManager[LiveBuild]: ...

    def environment(self, candidate: Candidate, /) -> Mapping[str, str]: ...


class Checker(Protocol):
    """Measures one thing in one tier; holds no threshold."""

    name: str
    tier: Tier

    def plan(self, candidate: Candidate, /) -> Collection[RunSpec]: ...

    def check(self, trial: Trial, /) -> Iterable[Measurement]: ...


class Score(Protocol):
    """The task's score of one sample, or several by name; higher is better, within [0, 1].

    `expected` are the case's labels, or the source model's outputs where the case has none.
    """

    def __call__(self, expected: Tensors, outputs: Tensors, /) -> float | Mapping[str, float] | Array: ...


@lru_cache(maxsize=2)
def _installed(_path: tuple[str, ...]) -> Any:
    """Every entry point of every project on this import path: each look at them reads a file of each project."""
    from importlib.metadata import entry_points

    return entry_points()


def load(group: str, name: str) -> Any:
    """The object that entry point `name` of `group` names; raises UsageError, with the nearest names, without one."""
    found = {entry.name: entry for entry in _installed(tuple(sys.path)).select(group=group)}
    if name not in found:
        from difflib import get_close_matches

        near = get_close_matches(name, found, 3, 0.5) or sorted(found)
        raise UsageError(f"unknown {group.rpartition('.')[2].rstrip('s')} {name!r}", do=f"known: {', '.join(near)}")
    try:
        plugin = found[name].load()
    except Exception as error:  # a plugin may fail in any way; what is required and does not load is never skipped
        raise UsageError(
            f"{group} {name!r} does not load: {error!r}", str(found[name].value), "reinstall or remove that plugin"
        ) from error
    stated = getattr(plugin, "plugin_api", PLUGIN_API)
    if stated != PLUGIN_API:
        do = "install a version of it that fits this npu-verify"
        raise UsageError(f"{group} {name!r} was written for plugin API {stated}, this is {PLUGIN_API}", do=do)
    return plugin
