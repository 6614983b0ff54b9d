"""Whether the toolkit's optimised graph still computes what the graph says, before anything is rounded to the variant.

The toolkit dumps each layer of its optimised graph twice: simulated, and as a float32 run of that graph ("golden").
The second carries every rewrite and none of the variant's roundings, so that what a wrong rewrite does stands out a
thousand times more sharply than in the simulated values; and it says nothing of kernels, which only the replay tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from verify.core import Array, Measurement, Missing, NotComparable, Tensors, Where
from verify.floor import draws
from verify.graphs.align import Match, restore

if TYPE_CHECKING:
    from verify.floor.kept import Floor

#: Draws of float32 rounding: their root mean square is known to a fifth, which a limit of two decades need not know.
K = 4
#: The rms of one float32 rounding, relative: what an exact draw counts as.
LEAST = 2.0**-24


def moved(matches: Mapping[str, Match], references: Tensors, goldens: Tensors) -> dict[str, float]:
    """Per layer, the relative L2 distance of its float32 run from the reference's tensor; infinite where another
    element is not finite than in the reference."""
    found = {}
    for layer, match in matches.items():
        if layer in goldens and match.tensor in references:
            try:
                got = restore(goldens[layer], match)
            except NotComparable:  # of another size in this case: structure says so
                continue
            found[layer] = _distance(np.asarray(references[match.tensor]), got)
    return found


def _distance(wanted: Array, got: Array) -> float:
    fine = np.isfinite(wanted)
    if not np.array_equal(fine, np.isfinite(got)):
        return float("inf")
    if not fine.all():
        wanted, got = wanted[fine], got[fine]
    d = np.subtract(got, wanted, dtype=np.float64)
    return float(np.sqrt(d.ravel() @ d.ravel() / max(d.size, 1))) / draws.scale_of(wanted)


def single(path: Path, cases: Sequence[tuple[str, Tensors, Tensors]]) -> dict[tuple[str, str], float]:
    """The relative rms of float32 rounding by (case, tensor), of the tensors given; {} where the graph has no model."""
    try:
        drawn = draws.draw(path, "fp32", {}, {}, cases, k=K)
    except Missing:
        return {}
    return {place: float(np.sqrt(sample.tensor.mean())) for place, sample in drawn.samples.items()}


def rewritten(floor: Floor | None, optimised: Mapping[str, float], where: Where, layer: str) -> Iterator[Measurement]:
    """`rewritten` of one layer in one case: its distance over what float32 rounding makes; nothing without a floor."""
    base = floor.single.get((where.case, where.tensor)) if floor else None
    if base is not None and layer in optimised:
        apart, least = optimised[layer], max(base, LEAST)
        note = (
            f"compiled layer {layer}: the toolkit's own float32 run of its optimised graph is {apart:.2g} away, "
            f"float32 rounding makes {least:.2g}"
        )
        yield Measurement(where, "rewritten", apart / least, "x float32 rounding", "rewrite", note=note)
