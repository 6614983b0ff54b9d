"""Which reference tensor a compiled layer's dump holds: matched by value, on every case, up to an order of the axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from verify.core import Array, NotComparable, Tensors
from verify.graphs.info import LAYOUT
from verify.graphs.layouts import layouts

#: Golden dumps are float32 runs of an optimised graph: they agree with the reference to about 1e-4 of the tensor's rms
#: (12-layer encoder, rknn-toolkit2 2.5.0); tensors further apart than ten times that are not the same.
SAME = 1e-3
#: Of several tensors within SAME the nearest is meant if every other is this much further off (house choice).
NEARER = 4.0
#: Reference tensors this near to each other are one value under several names (float32 rounding of one operator).
EQUAL = 1e-6


@dataclass(frozen=True)
class Match:
    """`layer` of the compiled model holds the reference's `tensor`, of `shape`.

    Its dump, viewed as `view`, has its axes put into the order `permutation` and is then viewed as `shape`. `aliases`
    are reference tensors with the same values, up to layout.
    """

    layer: str
    tensor: str
    shape: tuple[int, ...]
    permutation: tuple[int, ...]
    aliases: tuple[str, ...] = ()
    view: tuple[int, ...] = ()


def restore(value: Array, match: Match) -> Array:
    """`value`, a dump of `match.layer`, laid out as the reference's tensor; raises NotComparable for another size."""
    value = np.asarray(value)
    if value.size != math.prod(match.shape):
        raise NotComparable(f"{value.shape} does not fit {match.shape}", f"graph~simulator, layer {match.layer}")
    return value.reshape(match.view).transpose(match.permutation).reshape(match.shape)


def align(
    goldens: Sequence[Tensors], references: Sequence[Tensors], producers: Mapping[str, str]
) -> tuple[dict[str, Match], dict[str, str]]:
    """Match the golden dumps of each case to the reference's tensors of the same case.

    `producers` maps a reference tensor to its operator. Returns the matches by layer, and for every other layer the
    reason why there is none. A match holds on every case in one layout; raises NotComparable without any case.
    """
    if not goldens or len(goldens) != len(references):
        raise NotComparable(f"{len(goldens)} dumps against {len(references)} reference runs", "layer dumps")
    known = _Reference(references, producers)
    matched: dict[str, Match] = {}
    unmatched: dict[str, str] = {}
    for layer in goldens[0]:
        if any(layer not in golden for golden in goldens):
            unmatched[layer] = "not dumped in every case"
            continue
        found = known.find(layer, [_flat(golden[layer]) for golden in goldens])
        if isinstance(found, Match):
            matched[layer] = found
        else:
            unmatched[layer] = found
    return matched, unmatched


@dataclass(frozen=True)
class _Held:
    """One tensor in one case: float32 values with non-finite ones as zeros, and what no order of axes changes."""

    value: Array
    finite: Array | None  # a mask, or None where every element is finite
    moments: tuple[float, float, float]
    rms: float


def _flat(value: Array) -> _Held:
    array = np.asarray(value)
    array = np.ascontiguousarray(array, dtype=np.float32).reshape(array.shape)
    mask = None
    total = float(np.abs(array).sum(dtype=np.float64)) if array.size else 0.0
    if not math.isfinite(total):
        mask = np.isfinite(array)
        array = np.where(mask, array, np.float32(0))
    return _Held(array, mask, *_moments(array))


def _moments(array: Array) -> tuple[tuple[float, float, float], float]:
    """Mean, mean magnitude and rms: in any order of the elements, each moves by no more than the rms of a change."""
    if not array.size:
        return (0.0, 0.0, 0.0), 0.0
    wide = array.astype(np.float64).reshape(-1)
    # dot products, for sums of squares of float32 values fit float64 and ordinary sums would need another copy
    rms = math.sqrt(float(wide.dot(wide)) / wide.size)
    return (float(wide.mean()), float(np.abs(wide, out=wide).mean()), rms), rms


class _Reference:
    """The reference's tensors of every case, found by size and moments."""

    def __init__(self, references: Sequence[Tensors], producers: Mapping[str, str]) -> None:
        self.producers = producers
        self.position = {name: i for i, name in enumerate(producers)}
        names = [n for n in references[0] if all(n in r for r in references)]
        self.tensors: dict[str, list[_Held]] = {}
        self.by_size: dict[int, list[str]] = {}
        for name in names:
            values = [np.asarray(r[name]) for r in references]
            if values[0].dtype.kind not in "fiub" or not values[0].size or len({v.shape for v in values}) > 1:
                continue
            self.tensors[name] = [_flat(v) for v in values]
            self.by_size.setdefault(values[0].size, []).append(name)

    def find(self, layer: str, dumps: Sequence[_Held]) -> Match | str:
        """The match of one layer, or the reason why there is none."""
        first = dumps[0].value
        same_size = self.by_size.get(first.size, [])
        if any(dump.value.shape != first.shape for dump in dumps):
            return "its shape differs between the cases"
        if not same_size:
            return f"no reference tensor has {first.size} elements (dump of shape {first.shape})"
        laid: dict[str, tuple[float, tuple[int, ...], tuple[int, ...]]] = {}
        for name in same_size:
            held = self.tensors[name]
            if all(_may_match(dump, wanted) for dump, wanted in zip(dumps, held, strict=True)):
                found = _layout(dumps, held)
                if found:
                    laid[name] = found
        if not laid:
            return self._why_not(layer, dumps, same_size)
        best = min(error for error, _, _ in laid.values())
        near = [name for name in laid if laid[name][0] <= max(EQUAL, best * NEARER)]
        chosen = self._choose(layer, near)
        others = [n for n in near if n != chosen]
        unlike = [n for n in others if not self._equal(chosen, n, laid)]
        if unlike:
            return f"ambiguous: {chosen} and {unlike[0]} are both within {laid[unlike[0]][0]:.2g} of it"
        _, view, order = laid[chosen]
        shape = self.tensors[chosen][0].value.shape
        return Match(layer, chosen, shape, order, tuple(sorted(others, key=self._place)), view)

    def _place(self, name: str) -> int:
        return self.position.get(name, -1)  # graph inputs come first

    def _choose(self, layer: str, near: Sequence[str]) -> str:
        """The tensor that the layer is named after, if it is one of this value; else the earliest real result."""
        real = [name for name in near if self.producers.get(name) not in LAYOUT] or list(near)
        named = [name for name in real if _named(layer, name)]
        return max(named, key=len) if named else min(real, key=self._place)

    def _equal(self, a: str, b: str, laid: Mapping[str, tuple[float, tuple[int, ...], tuple[int, ...]]]) -> bool:
        """Whether two tensors hold the same values in every case, once both are laid out like the dump."""
        for x, y in zip(self.tensors[a], self.tensors[b], strict=True):
            flat = [_undo(held.value, *laid[name][1:]).reshape(-1) for held, name in ((x, a), (y, b))]
            if not _apart(flat[0], flat[1]) <= EQUAL * x.rms:
                return False
        return True

    def _why_not(self, layer: str, dumps: Sequence[_Held], same_size: Sequence[str]) -> str:
        named = [n for n in same_size if _named(layer, n)]
        if named:
            name = max(named, key=len)
            wanted = self.tensors[name][0]
            apart = [_apart(dumps[0].value, laid) for laid in _laid_like(wanted.value, dumps[0].value.shape)]
            if apart and wanted.rms:
                return (
                    f"named after {name}, but the optimised graph's own values are {min(apart) / wanted.rms:.2g} apart"
                )
        origin = "" if any(_named(layer, n) for n in self.producers) else " (a graph input, or the compiler's own)"
        return f"none of the {len(same_size)} reference tensors of its size holds these values in every case{origin}"


def _named(layer: str, tensor: str) -> bool:
    """Whether a layer's name is a tensor's with suffixes ("-rs", "_tp", "#1"), not a longer name or another number."""
    rest = layer[len(tensor) :]
    numbered = rest[:1] in ("_", ".") and rest[1:2].isdigit()
    return bool(tensor) and layer.startswith(tensor) and not rest[:1].isalnum() and not numbered


def _may_match(dump: _Held, wanted: _Held) -> bool:
    bound = SAME * wanted.rms
    return all(abs(a - b) <= bound for a, b in zip(dump.moments, wanted.moments, strict=True))


def _layout(dumps: Sequence[_Held], held: Sequence[_Held]) -> tuple[float, tuple[int, ...], tuple[int, ...]] | None:
    """(worst relative error over the cases, view, order) of the best layout that holds on every case, or None."""
    best = None
    for view, order in layouts(dumps[0].value.shape, held[0].value.shape):
        worst = 0.0
        for dump, wanted in zip(dumps, held, strict=True):
            error = _error(dump, wanted, view, order)
            worst = max(worst, error)
            if not error <= SAME:
                break
        else:
            if best is None or worst < best[0]:
                best = worst, view, order
            if worst <= EQUAL:
                break
    return best


def _error(dump: _Held, wanted: _Held, view: tuple[int, ...], order: tuple[int, ...]) -> float:
    laid = dump.value.reshape(view).transpose(order).reshape(wanted.value.shape)
    if (dump.finite is None) != (wanted.finite is None):
        return math.inf
    if dump.finite is not None:
        mask = dump.finite.reshape(view).transpose(order).reshape(wanted.value.shape)
        if not np.array_equal(mask, wanted.finite):  # type: ignore[arg-type]
            return math.inf
    apart = _apart(laid, wanted.value)
    return apart / wanted.rms if wanted.rms else (math.inf if apart else 0.0)


def _apart(a: Array, b: Array) -> float:
    """rms of the difference; float32 is enough to tell 1e-6 apart."""
    d = np.subtract(a, b).reshape(-1)
    # a block at a time would be slower: dumps are small. float64, or squares of large float32 values overflow
    wide = d.astype(np.float64)
    return math.sqrt(float(wide.dot(wide)) / d.size)


def _undo(value: Array, view: tuple[int, ...], order: tuple[int, ...]) -> Array:
    """The reference's `value` laid out as the dump that `view` and `order` belong to."""
    return value.reshape([view[axis] for axis in order]).transpose(np.argsort(order))


def _laid_like(value: Array, shape: tuple[int, ...]) -> Iterator[Array]:
    for view, order in layouts(shape, value.shape):
        yield _undo(value, view, order).reshape(shape)
