"""Did the build choose its number ranges well? Clipped, overflowed, below one step, destroyed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from verify.core import Array, Candidate, Measurement, RunSpec, Tier, Where, runs
from verify.trial import Trial

FP16_MAX = 65504.0  # largest finite number of IEEE binary16


#: What a compiler fuses into the operator before it, which then has the range of the result: what lies outside is meant
#: to be cut off.
CUTS = frozenset({"Relu", "Clip", "HardSigmoid"})


def _cut_later(trial: Trial, tensor: str) -> str:
    """Which ends of this tensor all its readers cut off: "both", "low" (below a hard swish's -3), or "" for neither."""
    readers = [node for node in trial.graph.nodes if tensor in node.inputs]
    if not readers or tensor in trial.graph.outputs:
        return ""
    if {node.op for node in readers} <= CUTS:
        return "both"
    gates = _gates(trial, tensor)
    low = (n.op == "HardSwish" or set(n.outputs) & gates or (n.op == "Mul" and set(n.inputs) & gates) for n in readers)
    return "low" if all(low) else ""


def _gates(trial: Trial, tensor: str) -> set[str]:
    """What is derived from `tensor` on the way to a hard sigmoid: HardSigmoid, or Add and Clip, and a division."""
    clipped = {node.inputs[0] for node in trial.graph.nodes if node.op == "Clip"}
    found: set[str] = set()
    for node in trial.graph.nodes:
        first = tensor in node.inputs and (node.op == "HardSigmoid" or node.op == "Add" and node.outputs[0] in clipped)
        later = node.op in ("Clip", "Div", "Mul") and set(node.inputs) & found and tensor not in node.inputs
        if first or later:
            found |= set(node.outputs)
    return found


class Range:
    """Per aligned tensor of the case set, what the build's scales do to the values that the reference really has.

    `destroyed` is the error over the signal of each block of an output (1 = zeros would do as well);
    `softmax_step` the quantiser's step at a softmax's input, in logits.
    """

    name, tier = "range", Tier.DEVICE

    def plan(self, candidate: Candidate) -> Collection[RunSpec]:
        return runs("graph") | runs("simulator", cases="layers", instrumented=True)

    def check(self, trial: Trial) -> Iterator[Measurement]:
        precision = trial.candidate.variant.precision
        scales = trial.build.scales if trial.build else {}
        for where, wanted, _, layer in trial.layers():
            if wanted.dtype.kind != "f":
                continue
            cut = _cut_later(trial, where.tensor)
            if layer in scales and cut != "both":
                yield from self._quantiser(where, wanted, scales[layer], layer, -np.inf if cut else None)
            elif precision == "fp16":
                over = int((np.abs(wanted) > FP16_MAX).sum())
                if over:
                    peak = f"the reference reaches {np.abs(wanted).max():.4g}; fp16 ends at 65504"
                    note = f"compiled layer {layer}: {peak}"
                    yield Measurement(where, "over_65504", over, n=wanted.size, note=note)
        yield from self._softmax(trial)
        for leg in trial.legs(self.tier):
            for where, wanted, got in trial.pairs(leg.reference, leg.candidate):
                if wanted.dtype.kind == "f" and np.isfinite(wanted).all() and np.isfinite(got).all():
                    yield from self._blocks(trial, where, wanted, got)

    def _quantiser(
        self, where: Where, wanted: Array, scale: Mapping[str, Any], layer: str, least: float | None
    ) -> Iterator[Measurement]:
        """`least` replaces the range's lower end where nothing below it is ever used."""
        low, high, step = (float(scale[key]) for key in ("min", "max", "scale"))
        values = wanted[np.isfinite(wanted)]
        if not values.size:
            return
        below = low - step / 2 if least is None else least
        clipped = float(((values < below) | (values > high + step / 2)).mean())
        span = f"the case spans {values.min():.4g} to {values.max():.4g}"
        note = f"compiled layer {layer}: range [{low:.4g}, {high:.4g}], {span}"
        yield Measurement(where, "clipped", clipped, "share", n=values.size, note=note)
        nonzero = values[values != 0]
        if nonzero.size:
            small = float((np.abs(nonzero) < step / 2).mean())
            note += f"; one step is {step:.4g}"
            yield Measurement(where, "below_step", small, "share", n=nonzero.size, note=note)

    def _softmax(self, trial: Trial) -> Iterator[Measurement]:
        """Scales that the .quantization.cfg gives for tensors inside a fused attention, which no dump shows.

        Their names end in `_q_add` (after the mask) or `_q_matmul` (rknn-toolkit2 2.5.0, as written in that file).
        """
        if trial.build is None:
            return
        for name, scale in trial.build.scales.items():
            fused, _, inner = name.rpartition("_q_")
            parts = [inner, "add"] if fused + "_q_add" in trial.build.scales else [inner, "matmul"]
            if not fused or parts[0] != parts[1]:
                continue
            step, low, high = (float(scale[key]) for key in ("scale", "min", "max"))
            note = (
                f"the softmax inside {fused} gets its input in steps of {step:.4g}, range [{low:.6g}, {high:.4g}]: "
                f"a weight may be wrong by a factor of e^{step / 2:.3g}"
            )
            where = Where(name, "", "graph~simulator", "", "Softmax", fused)
            yield Measurement(where, "softmax_step", step, "logits", note=note)

    def _blocks(self, trial: Trial, where: Where, wanted: Array, got: Array) -> Iterator[Measurement]:
        blocks = trial.graph.blocks(where.tensor)
        pieces = [("", wanted, got)]
        if blocks:
            axis, named = blocks
            cuts = np.cumsum([extent for _, extent in named])[:-1]
            parts = zip(named, np.split(wanted, cuts, axis), np.split(got, cuts, axis), strict=True)
            pieces = [(f"block from {name}", a, b) for (name, _), a, b in parts]
        for part, a, b in pieces:
            signal = float(np.linalg.norm(a.astype(np.float64).ravel()))
            error = float(np.linalg.norm((b.astype(np.float64) - a.astype(np.float64)).ravel()))
            if signal == 0.0:  # nothing there to destroy; `layers` compares the values
                continue
            nonzero = int(np.count_nonzero(b))
            note = f"{nonzero} of {b.size} elements are non-zero" if nonzero < np.count_nonzero(a) / 2 else ""
            node = trial.graph.producer[where.tensor].name if part else where.node
            place = Where(where.tensor, where.case, where.leg, part, where.op, node)
            grain = "block" if part else "tensor"
            yield Measurement(place, "destroyed", error / signal, "", grain, b.size, note=note)
