"""The floor of one candidate: drawn once, and kept under the key of what it was drawn from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from verify import schemas
from verify.core import Artifact, Build, Missing, UsageError
from verify.floor import draws, grids, null, rewritten
from verify.floor.draws import Drawn, Sample
from verify.floor.null import Null
from verify.graphs import info
from verify.plan import LAYER_CASES
from verify.store import key_of

if TYPE_CHECKING:
    from verify.stage import Stage

KIND = "floors"


@dataclass(frozen=True)
class Floor:
    """What was drawn and the nulls fitted to it; `reason` says why there is nothing where there is nothing.

    `single` is the relative rms of float32 rounding by (case, tensor), for the toolkit's own float32 run.
    """

    drawn: Drawn = field(default_factory=lambda: Drawn({}))
    nulls: Mapping[str, Null] = field(default_factory=dict)
    reason: str = ""
    single: Mapping[tuple[str, str], float] = field(default_factory=dict)


def floor(stage: Stage, graph: Artifact, build: Build | None, key: str) -> Floor:
    """The floor of the tensors that a candidate shows: outputs, and inner ones that its dumps were matched to.

    `key` is that of the build with its recordings; "" keeps nothing.
    """
    variant = stage.candidate.variant
    roles = [role for role in ("simulator", "device") if role in stage.recordings]
    if not roles:
        return Floor(reason="nothing was run that it could be held against")
    dumps = [r.layers for r in stage.recordings.get("simulator", ()) if r.layers][:LAYER_CASES]
    if variant.precision != "fp32" and not dumps:
        return Floor(reason=f"no layer of the {variant.precision} build was seen: where it rounds is not known")
    name = key_of({"build": key, "k": [draws.K, rewritten.K], "seed": draws.SEED})
    kept = _load(stage, name) if key else None
    if kept is not None:
        return kept
    with stage.progress.step(f"drawing the floor, {draws.K} runs of {LAYER_CASES} cases", expected_seconds=5):
        found = _found(stage, graph, build, dumps)
    if key:
        _keep(stage, name, found)
    return found


def _found(stage: Stage, graph: Artifact, build: Build | None, dumps: Any) -> Floor:
    precision, cases = stage.candidate.variant.precision, _shown(stage, graph)
    single = rewritten.single(graph.path, cases) if dumps else {}
    if precision not in grids.MODELLED:
        return Floor(reason=f"no model of {precision}: how it rounds is not documented", single=single)
    try:
        drawn = _draw(stage, graph, build, dumps, cases)
    except Missing as error:
        return Floor(reason=error.what, single=single)
    return Floor(drawn, null.fit(drawn), single=single)


def _draw(stage: Stage, graph: Artifact, build: Build | None, dumps: Any, cases: Any) -> Drawn:
    held, precision = info.read(graph.path), stage.candidate.variant.precision
    scales = build.scales if build else {}
    points, splits = {}, {}
    if precision != "fp32":
        alignment = {**stage.facts.get("alignment", {}), **stage.facts.get("assumed", {})}
        points = grids.points(held, precision, scales, alignment, dumps)
        splits = grids.splits(held, scales, dumps)
    return draws.draw(graph.path, precision, scales, points, cases, splits=splits)


def _shown(stage: Stage, graph: Artifact) -> list[tuple[str, Any, dict[str, Any]]]:
    """Of each layer case its name, its feeds, and the reference's tensors that the candidate shows."""
    held = info.read(graph.path)
    alignment = {**stage.facts.get("alignment", {}), **stage.facts.get("assumed", {})}
    inner = {m.tensor for m in alignment.values() if held.op(m.tensor) not in ("", *info.LAYOUT)}
    cases = []
    for recording in stage.recordings["graph"][:LAYER_CASES]:
        values = {**recording.layers, **recording.outputs}
        names = [n for n in values if n in inner or n in recording.outputs]
        cases.append((recording.case, recording.integrity["inputs"], {n: np.asarray(values[n]) for n in names}))
    return cases


def _keep(stage: Stage, key: str, found: Floor) -> None:
    folder = stage.work / "floor"
    folder.mkdir()
    arrays, entries = {}, []
    for i, ((case, tensor), sample) in enumerate(found.drawn.samples.items()):
        arrays[f"t{i}"] = sample.tensor
        arrays |= {f"t{i}a{axis}": held.astype(np.float32) for axis, held in sample.axes.items()}
        plain = {"scale": sample.scale, "size": sample.size, "resolution": sample.resolution}
        entries.append({"case": case, "tensor": tensor, "axes": list(sample.axes), **plain})
    np.savez(folder / "samples.npz", **arrays)
    nulls = {kind: asdict(held) for kind, held in found.nulls.items()}
    single = [[case, tensor, size] for (case, tensor), size in found.single.items()]
    entry = {"samples": entries, "absent": found.drawn.absent, "k": found.drawn.k, "single": single}
    stage.store.keep(folder, KIND, key, {**entry, "nulls": nulls, "reason": found.reason})


def _load(stage: Stage, key: str) -> Floor | None:
    entry = stage.store.find(KIND, key)
    if entry is None:
        return None
    try:
        document = schemas.lift(json.loads((entry / "entry.json").read_text()), "cache", str(entry))
        samples = _samples(entry / "samples.npz", document["samples"])
        drawn = Drawn(samples, document["absent"], document["k"])
        nulls = {kind: Null(**held) for kind, held in document["nulls"].items()}
        single = {(case, tensor): size for case, tensor, size in document["single"]}
        return Floor(drawn, nulls, document["reason"], single)
    except (OSError, ValueError, KeyError, TypeError, UsageError):  # cut short, or of another version
        return None


def _samples(path: Path, entries: Any) -> dict[tuple[str, str], Sample]:
    found = {}
    with np.load(path, allow_pickle=False) as held:
        for i, entry in enumerate(entries):
            axes = {axis: held[f"t{i}a{axis}"].astype(np.float64) for axis in entry["axes"]}
            sample = Sample(held[f"t{i}"], axes, entry["scale"], entry["size"], entry["resolution"])
            found[entry["case"], entry["tensor"]] = sample
    return found
