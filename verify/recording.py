"""Recordings on disk: one .npz of outputs a case, one of inner tensors where the run was instrumented."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from verify.core import Array, Recording, Tensors


@dataclass(frozen=True)
class Lazy(Mapping[str, Array]):
    """The tensors of an .npz file, each read when it is asked for."""

    path: Path
    names: tuple[str, ...]

    def __getitem__(self, name: str) -> Array:
        if name not in self.names:
            raise KeyError(name)
        with np.load(self.path, allow_pickle=False) as held:
            return np.asarray(held[f"a{self.names.index(name)}"])

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def _write(path: Path, tensors: Tensors) -> list[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    # names may hold characters that a zip member may not, so members are numbered and the names kept beside them
    held = [np.asarray(value) for value in tensors.values()]
    held = [value.astype(str) if value.dtype.kind == "O" else value for value in held]  # text; pickles are never read
    np.savez(path, **{f"a{i}": value for i, value in enumerate(held)})
    return list(tensors)


def save(recording: Recording, folder: Path, stem: str) -> dict[str, Any]:
    """Write one recording; returns the JSON-like entry that `load` reads back (paths relative to `folder`)."""
    entry: dict[str, Any] = {
        "role": recording.role,
        "case": recording.case,
        "file": f"{stem}.npz",
        "outputs": _write(folder / f"{stem}.npz", recording.outputs),
        "integrity": {k: v for k, v in recording.integrity.items() if k not in ("inputs", "given")},
        "environment": dict(recording.environment),
        "seconds": recording.seconds,
        "evidence": recording.evidence,
    }
    if recording.layers:
        entry["layers_file"] = f"{stem}.layers.npz"
        entry["layers"] = _write(folder / f"{stem}.layers.npz", recording.layers)
    return entry


def save_inputs(entry: dict[str, Any], fed: Tensors, folder: Path) -> dict[str, Any]:
    """Write what was fed to a recorded run beside it; returns its entry with the inputs named."""
    name = entry["file"].removesuffix(".npz") + ".inputs.npz"
    return {**entry, "inputs_file": name, "inputs": _write(folder / name, fed)}


def inputs(entry: Mapping[str, Any], folder: Path) -> Tensors:
    """What `save_inputs` wrote, read lazily."""
    return Lazy(folder / entry["inputs_file"], tuple(entry["inputs"]))


def load(entry: Mapping[str, Any], folder: Path) -> Recording:
    """A recording from its entry; tensors are read lazily."""
    layers = Lazy(folder / entry["layers_file"], tuple(entry["layers"])) if entry.get("layers") else {}
    return Recording(
        role=entry["role"],
        case=entry["case"],
        outputs=Lazy(folder / entry["file"], tuple(entry["outputs"])),
        layers=layers,
        integrity=entry.get("integrity", {}),
        environment=entry.get("environment", {}),
        seconds=entry.get("seconds", 0.0),
        evidence=entry.get("evidence", "replay"),
    )
