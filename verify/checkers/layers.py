"""Error accumulated up to each layer: simulator or device against the reference."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from verify.core import Array, Candidate, Measurement, RunSpec, Tier, Where, runs
from verify.graphs.info import INDEX, LAYOUT
from verify.metrics import by_axis, difference
from verify.trial import Trial


class Layers:
    """Relative L2 error of outputs, of their batch slots, and of every inner tensor that the build's dumps show.

    relative L2 = |got - wanted| / |wanted|. What lies below the format's resolution counts as the resolution:
    the quantiser's step where the build states one.
    """

    name, tier = "layers", Tier.DEVICE

    def plan(self, candidate: Candidate) -> Collection[RunSpec]:
        return runs("graph", "device") | runs("simulator", cases="layers", instrumented=True)

    def check(self, trial: Trial) -> Iterator[Measurement]:
        for leg in trial.legs(self.tier):
            for where, wanted, got in trial.pairs(leg.reference, leg.candidate):
                if wanted.dtype.kind in "fiub" and where.op not in INDEX:
                    yield self._measure(where, wanted, got, "tensor", 0.0)
                    if wanted.ndim > 1 and wanted.shape[0] > 1:
                        for slot, value in enumerate(by_axis(wanted, got, 0)):
                            place = Where(where.tensor, where.case, where.leg, f"slot {slot}", where.op, where.node)
                            yield Measurement(place, "relative_l2", float(value), "", "slot", wanted[slot].size)
        scales = trial.build.scales if trial.build else {}
        for where, wanted, got, layer in trial.layers():
            if wanted.dtype.kind == "f" and where.op not in LAYOUT:
                step = float(scales.get(layer, {}).get("scale") or 0.0)
                yield self._measure(where, wanted, got, "layer", step, f"compiled layer {layer}: ")
                alone = self._isolated(trial, where.case).get(layer)
                if alone is not None:
                    note = f"compiled layer {layer}: alone, fed with the optimised graph's own inputs (the vendor's figure)"
                    yield Measurement(where, "isolated_l2", alone, grain="isolated", n=wanted.size, note=note)

    def _isolated(self, trial: Trial, case: str) -> Mapping[str, float]:
        """Each compiled layer's own relative error, as the toolkit's accuracy analysis states it."""
        for recording in trial.recordings.get("simulator", ()):
            if recording.case == case:
                found: Mapping[str, float] = recording.integrity.get("isolated", {})
                return found
        return {}

    def _measure(
        self, where: Where, wanted: Array, got: Array, grain: str, step: float, prefix: str = ""
    ) -> Measurement:
        d = difference(wanted, got, scale_floor=step)
        note = f"{prefix}worst at index {d.max_index}, gain {d.gain:.4g}, {d.sqnr_db:.1f} dB"
        return Measurement(where, "relative_l2", d.relative_l2, grain=grain, n=d.n, note=note)
