"""Second thoughts on what was measured: who is wrong where source and graph differ, and whether a leg was misfed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from verify.core import Measurement
from verify.limits import limit
from verify.trial import Trial, legs_of

#: Float32 leaves this much undetermined at most; a source that is further from itself in float64 is wrong, not rounded
#: (house choice: a hundred times the limit of an honest pair).
ROUNDED = 1e-2
#: Two honest float32 runs may be further apart than one of them is from float64, in an ill-conditioned model by several
#: times: after 30 random tanh layers torch is 4e-4 off, onnxruntime as much elsewhere (above that, house choice).
TIMES = 10.0


@dataclass(frozen=True)
class Ruling:
    """`referee` names who is wrong, `misfed` maps a leg to (input, how), `doubted` a leg to why it shows nothing."""

    measurements: tuple[Measurement, ...]
    referee: str = ""
    misfed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    doubted: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def rule(trial: Trial, broken: Mapping[str, str], measurements: Sequence[Measurement]) -> Ruling:
    """Ask the float64 referee where source and graph differ, and feed the graph otherwise where any leg does."""
    from verify.graphs.misfed import misfed
    from verify.graphs.referee import culprit, referee

    if trial.facts.get("unsteady"):  # no referee could ask it either
        return Ruling(tuple(measurements), {"source": "source harness", "graph": "export"}[trial.facts["unsteady"]])
    held = tuple(_rounded(trial, m) if _beyond(m) else m for m in measurements)
    fed = {} if not _differing(held) else misfed(trial, _differing(held))
    notes = tuple(f"{leg}: input {name}: {how}" for leg, (name, how) in fed.items())
    if not ("source~graph" in broken or any(_beyond(m) for m in held)):
        return Ruling(held, "", fed, {}, notes)
    ruling = referee(trial)
    if ruling != "reference" or "source~graph" in fed:
        return Ruling(held, "" if ruling == "undetermined" else ruling, fed, {}, notes)
    doubted = {
        leg.name: _doubt(trial, leg.candidate)
        for leg in legs_of(trial.candidate)
        if leg.reference == "graph" and leg.candidate in trial.recordings
    }
    place = culprit(trial)
    where = f" at {place.where.node} ({place.where.op})" if place else ""
    note = f"the graph in float64 agrees with the source: onnxruntime, without optimisation, is wrong{where}"
    kept = [m for m in held if m.where.leg not in doubted]
    return Ruling((*([place] if place else []), *kept), ruling, {}, doubted, (note,))


def _beyond(m: Measurement) -> bool:
    """Whether a source~graph number is beyond its built-in limit."""
    bound = limit("parity", m.metric)
    return m.checker == "parity" and not m.interval and bound is not None and not m.value <= bound.value


def _differing(measurements: Sequence[Measurement]) -> dict[str, str]:
    """The legs whose outputs differ by themselves, each with the case that differs most."""
    worst: dict[str, Measurement] = {}
    for m in measurements:
        wrong = _beyond(m) or (m.checker == "layers" and m.grain == "tensor" and m.value > FACTOR)
        if m.metric == "relative_l2" and wrong and not m.value <= getattr(worst.get(m.where.leg), "value", 0.0):
            worst[m.where.leg] = m
    return {leg: m.where.case for leg, m in worst.items()}


#: From here on a different feed is looked for: what a wrong layout, mean or colour order moves is far more than this
#: (house choice: fp16's own limit).
FACTOR = 0.1


def _rounded(trial: Trial, m: Measurement) -> Measurement:
    """The measurement, undecided where float32 does not determine the source's own output any better."""
    from verify.graphs.referee import wide_source
    from verify.metrics import difference, over_peak

    source = next((r for r in trial.recordings.get("source", ()) if r.case == m.where.case), None)
    graph = next((r for r in trial.recordings.get("graph", ()) if r.case == m.where.case), None)
    if m.metric == "unequal" or source is None or graph is None or "inputs" not in graph.integrity:
        return m
    wide = wide_source(trial, graph)
    if wide is None or wide.get(m.where.tensor) is None:
        return m
    exact = wide[m.where.tensor]
    own = difference(exact, source.outputs[m.where.tensor])
    size = over_peak(own, exact) if m.metric == "max_over_peak" else own.relative_l2
    if not (own.relative_l2 <= ROUNDED and m.value <= TIMES * size):
        return m
    note = f"float32 rounding alone: the source is {size:.2g} off itself in float64; {m.note}"
    return dataclasses.replace(m, interval=(0.0, m.value), note=note)


def _doubt(trial: Trial, role: str) -> str:
    from verify.graphs.referee import distance

    theirs = {r.case: r.outputs for r in trial.recordings[role]}
    apart = max(distance(r.outputs, theirs.get(r.case, {})) for r in trial.recordings["source"])
    return f"its reference is wrong, see tier 1; source and {role} are {apart:.2g} apart (relative L2)"
