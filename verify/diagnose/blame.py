"""Suspects, from the pattern of legs that hold and break (design, section 4); `undetermined` instead of a guess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from verify.core import Measurement, Outcome, Tier

if TYPE_CHECKING:
    from verify.judge import Judged
    from verify.stored import Run
    from verify.verdict import TierVerdict, Verdict

INTEGER = ("w8a8", "w8a16", "w4a16", "w16a16i_dfp")


def blame(tiers: Mapping[Tier, TierVerdict], judged: Sequence[Judged], run: Run) -> tuple[str, ...]:
    """Who is to blame for a failed verdict, most likely first; nobody when nothing failed."""
    failed = {leg.name for tier in tiers.values() for leg in tier.legs if leg.outcome is Outcome.FAILED}
    if not failed:
        return ()
    bad = [j.measurement for j in judged if j.state == "fail" and not j.waived]
    if not bad and not run.broken:  # a checker crashed: that is no evidence against anybody else
        return ("undetermined",)
    if failed & set(run.misfed):
        return ("input",)
    if "source~graph" in failed:
        known = {"source harness": "reference"}  # the report has one word for both sides of the reference
        return (known.get(run.referee, run.referee),) if run.referee else ("export", "reference")
    chosen = any(_chose_badly(j) for j in judged)
    quantised = run.precision in INTEGER
    simulator, device = "graph~simulator" in failed, "graph~device" in failed
    if simulator and _has(run, "graph~device") and not device:
        return ("simulator",)
    if simulator or (device and not _has(run, "graph~simulator")):
        if any(m.checker in ("structure", "coverage") for m in bad) or (failed & set(run.broken)):
            return ("compiler",) if run.environment.get("builder", "built") else ("undetermined",)
        if any(m.grain in ("region", "rewrite") for m in bad):  # no rounding of the variant explains these
            return ("compiler",)
        if quantised and not any(m.metric in ("factor", "over_floor") for m in bad):
            return ("quantiser", "precision") if chosen else ("precision", "quantiser")
        if any(m.checker == "finite" and "65504" in m.note for m in bad) or grown(judged):
            return ("precision",)
        return ("compiler",) if run.environment.get("builder", "built") else ("undetermined",)
    if device and "simulator~device" in failed:
        return ("board",)
    if "simulator~device" in failed and not device:
        return ("simulator",)
    if failed <= {"source~simulator", "source~device"}:
        return ("quantiser", "precision") if chosen else ("precision",)
    return ("undetermined",)


#: One layer multiplies the error before it by less than this where an error only accumulates (house choice: 30 tanh
#: layers multiply it by 1.3 each, a wrong rewrite of one layer by a hundred and more).
STEP = 5.0


def grown(judged: Sequence[Judged]) -> bool:
    """Whether the simulator's layers cross the limit by what came before: no layer jumps, and none is wrong alone."""
    errors: dict[str, list[Judged]] = {}
    for j in judged:
        m = j.measurement
        if m.checker == "layers" and m.grain == "isolated" and j.state != "pass":
            return False
        if m.metric == "over_floor":  # the floor grows with depth as an honest error does
            if j.state == "fail" and not j.waived:
                return False
            continue
        if m.checker == "layers" and m.grain == "layer":
            errors.setdefault(m.where.case, []).append(j)
    crossed = False
    for held in errors.values():
        at = next((i for i, j in enumerate(held) if j.state == "fail" and not j.waived), None)
        if at is None:
            continue
        before = max((j.measurement.value for j in held[:at]), default=0.0)
        if not held[at].measurement.value <= STEP * before:
            return False
        crossed = True
    return crossed


def seen_inside(measurements: Sequence[Measurement], leg: str) -> bool:
    """Whether inner tensors were compared in this leg, so that a first divergent node is more than the output's."""
    return any(m.where.leg == leg and m.grain in ("layer", "isolated") for m in measurements)


def _chose_badly(j: Judged) -> bool:
    """Whether the build's own choice of ranges destroyed something."""
    m = j.measurement
    named = m.checker == "range" and m.metric in ("softmax_step", "destroyed", "clipped")
    return (named or m.metric == "isolated_l2") and j.state in ("warn", "fail")


def _has(run: Run, leg: str) -> bool:
    return any(held.name == leg and not held.missing for held in run.legs)


ADVICE = {
    "structure": "compare the compiled model's outputs with the graph's, by name and shape; fix the conversion",
    "finite": "look at the first divergent node's range; keep that layer in a wider format or rescale it",
    "coverage": "make every output come back from the run, then check again",
    "diversity": "give this block a range of its own (split the Concat, or scale its parts alike before it)",
    "indices": "compare the values pointed at; indices of ties may differ, these do not",
    "parity": "compare source and graph on this case alone; look for traced branches, shapes and in-place writes",
    "layers": "start at the first divergent node: everything after it inherits its error",
    "range": "change the calibration or the quantiser's settings for this layer, or keep it in float",
    "accuracy": "use a more precise variant, or declare the loss that the product can bear as [accuracy] margin",
    "agreement": "use a more precise variant; the outputs no longer resemble the source's",
    "regions": "keep unsupported operators out of the compiled part, or raise [budget] departures",
}


#: How notes on what an export lost begin (verify.frozen).
TOLD = ("the exporter froze", "the exporter baked")
OTHERWISE = "the source is right: export otherwise (a later opset, smaller operators) or update onnxruntime"
FED = "input {name}: {how}; apply layout, mean and std in one place, as candidate.toml says in [input.{name}]"
EXPORTED = {
    "frozen_branches": "give a case that goes the other way at the line named; if outputs differ, use torch.where",
    "blind_cases": "give cases with real inputs, whose outputs differ from each other",
    "baked_shapes": "give cases of two sizes, or fix the axis with [input.NAME] shape",
}


def advice(m: Measurement, run: Run) -> str:
    """What to do next about one finding."""
    if m.metric == "softmax_step":
        return "give the attention mask a small negative value (say -20), or keep this attention in float"
    if m.metric == "over_65504":
        return "rescale this layer, or keep it in a wider format: fp16 ends at 65504"
    if m.where.leg in run.misfed and m.checker != "accuracy":
        name, how = run.misfed[m.where.leg]
        return FED.format(name=name, how=how)
    if m.metric in EXPORTED:
        return EXPORTED[m.metric]
    if m.where.leg == "source~graph" and m.checker in ADVICE:  # nothing was compiled yet
        return OTHERWISE if run.referee == "reference" else ADVICE["parity"]
    if m.metric == "dead_blocks" and "the block from" not in m.note:
        return ADVICE["layers"]
    if m.checker == "accuracy" and m.interval and m.interval[0] <= m.null.get("margin", 0.0):
        if m.null.get("source", 1.0) <= m.null.get("margin", 0.0):
            return "look at score and labels: higher must be better, and the source model must do well by it"
        return "give more scored cases; too few decide this margin"
    own = f"see what {m.checker} measures; its limit is the policy's: [limit.{m.checker}] {m.metric} = ..."
    return ADVICE.get(m.checker, own)


def next_steps(verdict: Verdict, judged: Sequence[Judged], run: Run) -> tuple[str, ...]:
    """What to do next, for the whole verdict, in order."""
    steps = []
    missing = [leg for leg in run.legs if leg.missing]
    if verdict.outcome is Outcome.FAILED:
        first = verdict.first_divergent
        steps += [FED.format(name=name, how=how) for name, how in dict(run.misfed).values()][:1]
        if "export" in verdict.blame:
            steps += [f"{note}; keep it in the graph" for note in run.notes if note.startswith(TOLD)]
        if run.misfed and "input" in verdict.blame:
            pass
        elif first and verdict.blame == ("precision",) and grown(judged):
            steps.append(
                f"the error grows up to {first['node']}, where it crosses the limit: no layer is wrong by itself"
            )
        elif first:
            place = f"{first['node'] or first['tensor']} ({first['op'] or 'tensor'}, {first['leg']})"
            inside = seen_inside(run.measurements, first["leg"])
            steps.append(
                f"look at {place}" if inside else f"look at {place} and what is before it: only outputs were seen"
            )
        softmax = next((j for j in judged if j.state == "warn" and j.measurement.metric == "softmax_step"), None)
        if softmax:
            steps.append(advice(softmax.measurement, run))
        if run.referee == "reference" and "reference" in verdict.blame:
            steps.append(OTHERWISE)
        if "undetermined" in verdict.blame and not run.environment.get("builder", "built"):
            steps.append(
                "see whether the runner feeds and reads what the graph does; a variant built here has more legs"
            )
        if "precision" in verdict.blame or "quantiser" in verdict.blame:
            inner = ("layer", "isolated")
            named = any(j.state in ("fail", "warn") and j.measurement.grain in inner for j in judged) or softmax
            keep = "keep the layers named above in float (hybrid quantisation), or "
            steps.append(f"{keep if named else ''}enable a more precise variant")
        if not steps:
            steps += [advice(j.measurement, run) for j in judged if j.state == "fail" and not j.waived][:1]
        steps += [f"mend the checker {name}, then check again" for name in run.crashed]
    else:  # once something failed, deciding what is still open changes nothing
        steps += [advice(j.measurement, run) for j in judged if j.state == "undecided"][:1]
    for leg in missing:
        if leg.do and leg.do not in steps:
            steps.append(leg.do)
        if leg.log and f"read {leg.log}" not in steps:
            steps.append(f"read {leg.log}")
    return tuple(steps)
