"""Is a leg wrong only because one side was fed otherwise? The graph, fed in the ways that are known, tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from verify.core import Array, Candidate, Tensors, VerifyError
from verify.graphs.referee import distance
from verify.inputs import TO_NCHW, laid_out
from verify.trial import Trial

#: Another feed explains a leg if it leaves less than this share of the difference (house choice).
EXPLAINED = 0.1
#: And no more than this share of the signal: honest integer builds are up to half of it off (verify.limits).
HALF = 0.5


def misfed(trial: Trial, legs: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """(input, how it was fed) by leg, where the graph fed so returns what the leg's other side returned.

    `legs` maps a leg to the case to look at. Images only, and inputs with a declared mean; one input at a time.
    """
    from verify.backends.graph import GraphBackend

    candidate, found = trial.candidate, {}
    with GraphBackend().open(candidate, trial.facts["graph"]) as session:
        for leg, case in legs.items():
            reference, other = leg.split("~")
            graph = next((r for r in trial.recordings.get("graph", ()) if r.case == case), None)
            role = reference if reference != "graph" else other
            got = next((r for r in trial.recordings.get(role, ()) if r.case == case), None)
            if graph is None or got is None or "given" not in graph.integrity:
                continue
            raw, fed = graph.integrity["given"], graph.integrity["inputs"]
            now = distance(got.outputs, graph.outputs)
            best = min(EXPLAINED * now, HALF)
            for name, how, value in _feeds(candidate, raw, fed):
                try:
                    left = distance(got.outputs, session.run({**fed, name: value}))
                except VerifyError:
                    continue
                if left < best:
                    best, found[leg] = left, (name, f"the {role} has it {how}")
    return found


def _feeds(candidate: Candidate, raw: Tensors, fed: Tensors) -> Iterator[tuple[str, str, Array]]:
    """(input, what was done to it, the value), of the graph's shape and dtype, declared ones first."""
    plain = laid_out(candidate, raw)
    for index, (name, value) in enumerate(fed.items()):
        if value.dtype.kind != "f":
            continue
        made = [*_normalised(candidate, index, name, plain[name], value)]
        if value.ndim == 4:
            made += [*_laid(value), *_coloured(value), *_scaled(value)]
        for how, other in made:
            if other.shape == value.shape:
                yield name, how, np.ascontiguousarray(other, dtype=value.dtype)


def _normalised(candidate: Candidate, index: int, name: str, plain: Array, value: Array) -> Iterator[tuple[str, Array]]:
    spec = candidate.inputs.get(name)
    settings = candidate.variant.settings.get("rknn", {})
    pairs = [("mean and std", spec.mean, spec.std)] if spec and spec.mean else []
    means, stds = (settings.get(key) or () for key in ("mean_values", "std_values"))
    if index < min(len(means), len(stds)):
        pairs.append(("mean_values and std_values", tuple(means[index]), tuple(stds[index])))
    for what, mean, std in pairs:
        if value.ndim < 2 or value.shape[1] != len(mean) or len(std) != len(mean):
            continue
        shape = (1, -1, *(1,) * (value.ndim - 2))
        m, s = (np.asarray(x, np.float32).reshape(shape) for x in (mean, std))
        scale = f" (scale factor {std[0]:g})" if len(set(std)) == 1 and std[0] != 1 else ""
        yield f"normalised once more by {what}{scale}", (value - m) / s
        yield f"not normalised by {what}{scale}", plain if spec and spec.mean else value * s + m


def _laid(value: Array) -> Iterator[tuple[str, Array]]:
    n, c, h, w = value.shape
    yield "read as nhwc although it is nchw", value.transpose(TO_NCHW)
    yield "read as nhwc although it is nchw", value.reshape(n, h, w, c).transpose(TO_NCHW)
    yield "read as nchw although it is nhwc", value.transpose(0, 2, 3, 1).reshape(value.shape)


def _coloured(value: Array) -> Iterator[tuple[str, Array]]:
    if value.shape[1] == 3:
        yield "with its colours in the other order (rgb, bgr)", value[:, ::-1]


def _scaled(value: Array) -> Iterator[tuple[str, Array]]:
    yield "divided by 255 once more (scale factor 255)", value / 255
    yield "not divided by 255 (scale factor 255)", value * 255
