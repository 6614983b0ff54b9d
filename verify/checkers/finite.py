"""NaN and infinities, counted and compared as masks."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from verify.core import Array, Candidate, Measurement, RunSpec, Tier, Where, runs
from verify.trial import Trial


def nonfinite(wanted: Array, got: Array) -> tuple[int, int, str]:
    """Elements that are non-finite in one but not alike in the other, those alike in both, and a note that says where.

    Any shapes that agree; integers are always finite, and strings neither.
    """
    kinds = wanted.dtype.kind, got.dtype.kind
    if any(kind not in "fciub" for kind in kinds) or not any(kind in "fc" for kind in kinds):
        return 0, 0, ""
    bad_wanted, bad_got = ~np.isfinite(wanted), ~np.isfinite(got)
    both = bad_wanted & bad_got
    alike = both & ((np.isnan(wanted) & np.isnan(got)) | (wanted == got))
    differing = (bad_wanted | bad_got) & ~alike
    count = int(differing.sum())
    if not count:
        return 0, int(alike.sum()), ""
    first = tuple(int(i) for i in np.argwhere(differing)[0])
    nan, inf = int((np.isnan(got) & differing).sum()), int((np.isinf(got) & differing).sum())
    lost = int((bad_wanted & ~bad_got).sum())
    parts = [f"{nan} NaN" if nan else "", f"{inf} Inf" if inf else "", f"{lost} lost" if lost else ""]
    finite = np.abs(wanted[np.isfinite(wanted)].astype(np.float64))
    peak = f"; the reference peaks at {finite.max():.4g} here" if finite.size else ""
    over = " (65504 exceeded)" if finite.size and finite.max() > 65504 else ""  # largest finite IEEE binary16
    return count, int(alike.sum()), f"{', '.join(p for p in parts if p)}, first at index {first}{peak}{over}"


class Finite:
    """Counts non-finite elements that the reference does not have alike, in outputs and in aligned inner tensors."""

    name, tier = "finite", Tier.DEVICE

    def plan(self, candidate: Candidate) -> Collection[RunSpec]:
        return runs("source", "graph", "device") | runs("simulator", cases="layers", instrumented=True)

    def check(self, trial: Trial) -> Iterator[Measurement]:
        for tier in (Tier.GRAPH, Tier.DEVICE):
            for leg in trial.legs(tier):
                for where, wanted, got in trial.pairs(leg.reference, leg.candidate):
                    yield from self._measure(where, wanted, got, "tensor")
        for where, wanted, got, layer in trial.layers():
            yield from self._measure(where, wanted, got, "layer", f"compiled layer {layer}: ")

    def _measure(self, where: Where, wanted: Array, got: Array, grain: str, prefix: str = "") -> Iterator[Measurement]:
        differing, alike, note = nonfinite(wanted, got)
        yield Measurement(where, "nonfinite", differing, grain=grain, n=got.size, note=prefix + note if note else "")
        if alike:
            note = f"{alike} elements are not finite in the reference itself"
            yield Measurement(where, "nonfinite_in_both", alike, grain=grain, n=got.size, note=note)
