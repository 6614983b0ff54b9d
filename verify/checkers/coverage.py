"""What was never compared, listed; an output that was never compared fails."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from verify.core import Candidate, Measurement, RunSpec, Tier, Where, runs
from verify.graphs.info import LAYOUT
from verify.trial import Trial


def tensors(trial: Trial) -> tuple[list[str], list[str]]:
    """The graph's inner tensors that a layer dump was matched to, and those that none was (fused away or renamed).

    Results of pure layout operators and constants are left out: their values stand elsewhere.
    """
    held = {name for match in trial.alignment.values() for name in (match.tensor, *match.aliases)}
    held |= set(trial.graph.outputs)
    inner = [
        name
        for node in trial.graph.nodes
        if node.op not in LAYOUT and node.op != "Constant"
        for name in node.outputs
        if name
    ]
    return [name for name in inner if name in held], [name for name in inner if name not in held]


class Coverage:
    """Counts the outputs never compared per leg, and the share of inner tensors that no dump shows."""

    name, tier = "coverage", Tier.DEVICE

    def plan(self, candidate: Candidate) -> Collection[RunSpec]:
        return runs("source", "graph", "device") | runs("simulator", cases="layers", instrumented=True)

    def check(self, trial: Trial) -> Iterator[Measurement]:
        wanted = set(trial.graph.outputs)
        for tier in (Tier.GRAPH, Tier.DEVICE):
            for leg in trial.legs(tier):
                seen = {where.tensor for where, _, _ in trial.pairs(leg.reference, leg.candidate)}
                missing = sorted(wanted - seen)
                note = f"never compared: {', '.join(missing)}" if missing else ""
                where = Where("outputs", "", leg.name)
                yield Measurement(where, "outputs_uncovered", len(missing), n=len(wanted), note=note)
        if trial.alignment or trial.unmatched:
            covered, uncovered = tensors(trial)
            total = len(covered) + len(uncovered)
            note = f"{len(uncovered)} of {total} inner tensors are fused away or renamed"
            share = len(uncovered) / total if total else 0.0
            where = Where("inner tensors", "", "graph~simulator")
            yield Measurement(where, "layers_uncovered", share, n=total, note=note)
