"""Error accumulated up to each layer: simulator or device against the reference."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from verify.core import Array, Candidate, Measurement, NotComparable, RunSpec, Tier, Where, runs
from verify.floor.measured import measured
from verify.floor.over import over, without
from verify.floor.rewritten import rewritten
from verify.graphs.info import LAYOUT
from verify.metrics import Difference, difference, factor, over_peak, unequal
from verify.slots import SLOTS, by_slot, outliers
from verify.trial import Trial

#: Of larger batches only the worst slot is reported; all are measured.
MANY = 64
#: The legs that the floor speaks of: a candidate against the float32 reference.
FLOORED = frozenset({"graph~simulator", "graph~device"})


def _batched(trial: Trial, wanted: Array) -> int | None:
    """The batch axis: the declared one, or the first; None unless an input has its extent, or leaves it open."""
    axis = trial.candidate.batch_axis or 0
    if axis < 0 or wanted.ndim < 2 or axis >= wanted.ndim or not 1 < wanted.shape[axis] <= SLOTS:
        return None
    extents = [_extent(trial.graph.shapes.get(name, (None,) * (axis + 1)), axis) for name in trial.graph.inputs]
    for recording in trial.recordings.get("graph", ())[:1]:
        extents += [_extent(value.shape, axis) for value in recording.integrity.get("inputs", {}).values()]
    return axis if None in extents or wanted.shape[axis] in extents else None


def _extent(shape: Sequence[int | None], axis: int) -> int | None:
    """The extent of an axis, None where it is open; 0 where there is no such axis."""
    return shape[axis] if axis < len(shape) else 0


class Layers:
    """Relative L2 error of outputs, of their batch slots, and of every inner tensor that the build's dumps show.

    `slot_outlier` says how many times worse a batch slot is than the median one, `max_over_peak` the worst element of
    an output over the output's largest, `factor` how far from 1 the gain is that explains an output's error alone (0 if
    none), `integers` how many integers or bool of an output are not equal. `over_floor` is an error over what an honest
    build makes (verify.floor), of a tensor and of the worst index along each axis, `no_floor` counts what has none.
    `rewritten` is how far the toolkit's float32 run of its optimised graph is away, over what float32 rounding makes.
    relative L2 = |got - wanted| / |wanted|. What lies below the format's resolution counts as the resolution:
    the quantiser's step where the build states one.
    """

    name, tier = "layers", Tier.DEVICE

    def plan(self, candidate: Candidate) -> Collection[RunSpec]:
        return runs("graph", "device") | runs("simulator", cases="layers", instrumented=True)

    def check(self, trial: Trial) -> Iterator[Measurement]:
        for leg in trial.legs(self.tier):
            yield from self._unfloored(trial, leg.name)
            for where, wanted, got in trial.pairs(leg.reference, leg.candidate):
                if trial.graph.indexed(where.tensor):
                    continue
                if wanted.dtype.kind in "SUO":
                    yield Measurement(where, "unequal", unequal(wanted, got)[0], n=wanted.size)
                    continue
                if wanted.dtype.kind in "iub":
                    yield self._whole(where, wanted, got)
                try:
                    yield from self._output(where, wanted, got)
                    axis = _batched(trial, wanted)
                    if axis is not None:
                        yield from self._slots(where, np.moveaxis(wanted, axis, 0), np.moveaxis(got, axis, 0))
                    yield from self._over(trial, where, wanted, got, "tensor")
                except NotComparable as error:  # said of two arrays, which know no leg
                    raise NotComparable(error.what, f"{leg.name}, output {where.tensor}", error.do) from None
        yield from measured(trial)
        scales = trial.build.scales if trial.build else {}
        for where, wanted, got, layer in trial.layers(assumed=True):
            if wanted.dtype.kind == "f" and where.op not in LAYOUT:
                yield from self._over(trial, where, wanted, got, "layer", f"compiled layer {layer}: ")
                optimised = self._told(trial, where.case, "optimised")
                yield from rewritten(trial.facts.get("floor"), optimised, where, layer)
                if layer not in trial.alignment:
                    continue
                step = float(scales.get(layer, {}).get("scale") or 0.0)
                null = {"layer": layer, "quantised": layer in scales}
                held = self._measure(where, wanted, got, "layer", step, f"compiled layer {layer}: ")
                yield replace(held, null=null)
                alone = self._told(trial, where.case, "isolated").get(layer)
                if alone is not None:
                    fed = "alone, fed with the optimised graph's own inputs (the vendor's figure)"
                    note = f"compiled layer {layer}: {fed}"
                    yield Measurement(where, "isolated_l2", alone, "", "isolated", wanted.size, note=note, null=null)

    def _output(self, where: Where, wanted: Array, got: Array) -> Iterator[Measurement]:
        d = difference(wanted, got)
        gain = factor(d)
        note = _note(d)
        if gain is not None:
            note = f"the candidate is about {gain:.4g} times the reference; " + note
        yield Measurement(where, "relative_l2", d.relative_l2, n=d.n, note=note)
        yield Measurement(where, "max_over_peak", over_peak(d, wanted), n=d.n, note=f"{d.max_abs:.4g} apart; " + note)
        yield Measurement(where, "factor", abs(gain - 1) if gain is not None else 0.0, n=d.n, note=note)

    def _over(
        self, trial: Trial, where: Where, wanted: Array, got: Array, grain: str, note: str = ""
    ) -> Iterator[Measurement]:
        floor = trial.facts.get("floor")
        if floor is not None and where.leg in FLOORED:
            axis, precision = _batched(trial, wanted), trial.candidate.variant.precision
            yield from over(floor, precision, where, wanted, got, grain, axis, note)

    def _unfloored(self, trial: Trial, leg: str) -> Iterator[Measurement]:
        """How many of the tensors compared have no floor, so that only the plain ratios judge them."""
        floor = trial.facts.get("floor")
        if floor is None or leg not in FLOORED:
            return
        names = [n for n in trial.graph.outputs if not trial.graph.indexed(n)]
        if leg == "graph~simulator":
            names += [m.tensor for m in trial.alignment.values() if trial.graph.op(m.tensor) not in ("", *LAYOUT)]
        names = list(dict.fromkeys(names))
        absent = without(floor, names, [r.case for r in trial.recordings.get("graph", ())])
        note = "; ".join(f"{name}: {why}" for name, why in list(absent.items())[:3])
        note += f"; and {len(absent) - 3} more" if len(absent) > 3 else ""
        yield Measurement(Where("tensors without a floor", "", leg), "no_floor", len(absent), n=len(names), note=note)

    def _whole(self, where: Where, wanted: Array, got: Array) -> Measurement:
        """How many integers or bool are not equal: one that is off by 1 in 20,000 is no rounding of it."""
        count, first = unequal(wanted, got)
        note = f"first at index {first}: {got[first]} instead of {wanted[first]}" if count else ""
        return Measurement(where, "integers", count, n=wanted.size, note=note)

    def _slots(self, where: Where, wanted: Array, got: Array) -> Iterator[Measurement]:
        each = by_slot(wanted, got)
        worse_by = outliers(each, wanted)
        shown = range(len(each)) if len(each) <= MANY else [int(each.argmax())]  # argmax finds NaN first
        for slot, value, worse in ((i, each[i], worse_by[i]) for i in shown):
            place = Where(where.tensor, where.case, where.leg, f"slot {slot}", where.op, where.node)
            yield Measurement(place, "relative_l2", float(value), "", "slot", wanted[slot].size)
            note = f"{worse:.3g} times the error of the batch's median slot"
            yield Measurement(place, "slot_outlier", float(worse), "", "slot", wanted[slot].size, note=note)

    def _told(self, trial: Trial, case: str, what: str) -> Mapping[str, float]:
        """Of each compiled layer, what the toolkit's accuracy analysis says: "isolated", its own relative error, or
        "optimised", how far the float32 run of the optimised graph is from the reference."""
        for recording in trial.recordings.get("simulator", ()):
            if recording.case == case:
                found: Mapping[str, float] = recording.integrity.get(what, {})
                return found
        return {}

    def _measure(
        self, where: Where, wanted: Array, got: Array, grain: str, step: float, prefix: str = ""
    ) -> Measurement:
        d = difference(wanted, got, scale_floor=step)
        return Measurement(where, "relative_l2", d.relative_l2, grain=grain, n=d.n, note=prefix + _note(d))


def _note(d: Difference) -> str:
    return f"worst at index {d.max_index}, gain {d.gain:.4g}, {d.sqnr_db:.1f} dB"
