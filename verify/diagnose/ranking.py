"""How much of the final error each compiled layer's number format causes: its own error times its gain to the outputs.

Errors of layers are taken as independent, so their squares add up (first order; measured against real builds by
`--repair`).
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from verify import recording
from verify.core import Array, Measurement, Missing, Tensors
from verify.diagnose.groups import groups
from verify.diagnose.inject import Reference, reference, spread
from verify.graphs import info

if TYPE_CHECKING:
    from verify.stored import Run

AGAIN = "run the check again with this version: it keeps what is needed"


@dataclasses.dataclass(frozen=True)
class Ranked:
    """Compiled `layers` that are kept in float together, all of them quantised, and the tensor that they end in.

    `share` of the squared output error, predicted; `snr` of the layers alone, in dB (the vendor's figure); `gain`:
    relative output error over relative error of the layers; `output` is that output error.
    """

    layers: tuple[str, ...]
    tensor: str
    node: str
    op: str
    share: float
    snr: float
    gain: float
    output: float


def ranking(run: Run, entries: Sequence[Mapping[str, Any]], folder: Path) -> tuple[Ranked, ...]:
    """Ranked layers of a stored run, the worst first; `entries` are run.json's recordings.

    Raises Missing (with what to do) where the run does not hold each layer's own error, the inputs or the graph.
    """
    alone = _alone(run.measurements)
    if not alone:
        raise Missing("the run has no layer's own error", str(folder), AGAIN)
    path = folder / "graph.onnx"
    if not path.is_file():
        raise Missing("no graph.onnx in the run folder", str(folder), AGAIN)
    fed = {e["case"]: recording.inputs(e, folder / "recordings") for e in entries if e.get("inputs")}
    cases = [case for case in alone if case in fed]
    if not cases:
        raise Missing("the inputs of the cases whose layers were dumped are not stored", str(folder), AGAIN)
    tensors = {layer: m.where.tensor for case in cases for layer, m in alone[case].items()}
    quantised = {k for case in cases for k, m in alone[case].items() if m.null.get("quantised", True)}
    held = reference(path, set(tensors.values()))
    found: dict[str, list[tuple[float, float]]] = {}
    for case in cases:
        for tensor, numbers in _case(held, fed[case], alone[case]).items():
            found.setdefault(tensor, []).append(numbers)
    places = {m.where.tensor: m.where for held_alone in alone.values() for m in held_alone.values()}
    mean = {tensor: (_rms(own for own, _ in each), _rms(out for _, out in each)) for tensor, each in found.items()}
    total = sum(output**2 for _, output in mean.values() if math.isfinite(output))
    ranked = []
    for layers in groups(info.read(path), {k: v for k, v in tensors.items() if v in mean and k in quantised}):
        each = {tensors[layer]: mean[tensors[layer]] for layer in layers}
        own, output = (math.sqrt(sum(pair[i] ** 2 for pair in each.values())) for i in (0, 1))
        place = places[tensors[layers[-1]]]
        share = output**2 / total if total > 0 else 0.0
        snr = -20 * math.log10(own) if own > 0 else math.inf
        gain = output / own if own > 0 else 0.0
        ranked.append(Ranked(layers, place.tensor, place.node, place.op, share, snr, gain, output))
    # what is not finite comes first: a layer that makes a NaN decides everything
    return tuple(sorted(ranked, key=lambda r: (math.isfinite(r.output), -r.share)))


def _alone(measurements: Sequence[Measurement]) -> dict[str, dict[str, Measurement]]:
    """Each compiled layer's own relative error, by case and compiled layer; 0 where the vendor states none.

    The latter are those inside what the compiler fuses, which must be kept in float with the rest of it.
    """
    found: dict[str, dict[str, Measurement]] = {}
    for m in measurements:
        if m.metric == "relative_l2" and m.grain == "layer" and m.null.get("layer"):
            found.setdefault(m.where.case, {})[str(m.null["layer"])] = dataclasses.replace(m, value=0.0)
    for m in measurements:
        if m.metric == "isolated_l2" and m.null.get("layer") and math.isfinite(m.value):
            found.setdefault(m.where.case, {})[str(m.null["layer"])] = m
    return found if any(m.value > 0 for held in found.values() for m in held.values()) else {}


def _case(held: Reference, feeds: Tensors, alone: Mapping[str, Measurement]) -> dict[str, tuple[float, float]]:
    """(own relative error, relative output error) by tensor, in one case.

    Layers that hold one tensor round it one after the other, so their squares add up there. The error is normal noise
    of that size (seeded by the tensor's name): the vendor states its norm only.
    """
    outputs, exact = held.exact(feeds)
    own: dict[str, float] = {}
    for m in alone.values():
        own[m.where.tensor] = math.hypot(own.get(m.where.tensor, 0.0), m.value)
    found = {}
    for tensor, size in own.items():
        if tensor in exact:
            error = _noise(tensor, exact[tensor], size)
            moved = spread(outputs, held.run(feeds, {tensor: error})) if size > 0 else 0.0
            found[tensor] = (size, moved)
    return found


def _noise(tensor: str, exact: Array, size: float) -> Array:
    noise = np.random.default_rng(zlib.crc32(tensor.encode())).standard_normal(np.shape(exact))
    norms = [float(np.linalg.norm(np.asarray(a, np.float64).ravel())) for a in (exact, noise)]
    return np.asarray(noise * (size * norms[0] / norms[1] if norms[1] else 0.0))


def _rms(values: Any) -> float:
    squares = [value**2 for value in values]
    return math.sqrt(sum(squares) / len(squares))
