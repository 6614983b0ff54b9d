"""The task's own score, paired per sample with the source model: non-inferior within the declared margin?"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from verify.core import Accuracy as Declared
from verify.core import Candidate, Measurement, RunSpec, Tier, Where, runs
from verify.scores.sequential import bounds, samples_needed
from verify.scoring import losses
from verify.trial import Trial


class Accuracy:
    """Mean loss (source's score minus candidate's, within [-1, 1]) with an anytime-valid interval, per score.

    Where the source scores no more than the margin, no candidate could lose that much: then the interval is open.
    """

    name, tier = "accuracy", Tier.END_TO_END

    def plan(self, candidate: Candidate) -> Collection[RunSpec]:
        return runs("source", "simulator", "device", cases="score")

    def check(self, trial: Trial) -> Iterator[Measurement]:
        declared = trial.candidate.accuracy or Declared()
        for leg in trial.legs(self.tier):
            scored = trial.scored.get(leg.candidate)
            if scored is None:
                continue
            for metric, (source, candidate) in scored.pairs.items():
                if not source:
                    continue
                lost = losses(source, candidate)
                interval = bounds(lost, declared.alpha)
                means = sum(source) / len(source), sum(candidate) / len(candidate)
                note = f"source {means[0]:.4f}, {leg.candidate} {means[1]:.4f}, {len(lost)} samples"
                if scored.repeated:
                    note += f" ({scored.repeated} more are repeated and count once)"
                if means[0] <= declared.margin:
                    interval = interval[0], 1.0
                    note += "; the source itself scores no more than the margin, so that much cannot be lost"
                elif interval[0] <= declared.margin < interval[1]:
                    note += f"; not decided, n needed: about {samples_needed(lost, declared.margin, declared.alpha):,}"
                yield Measurement(
                    Where(metric, "", leg.name),
                    "loss",
                    sum(lost) / len(lost),
                    grain="score",
                    n=len(lost),
                    interval=interval,
                    note=note,
                    null={"alpha": declared.alpha, "margin": declared.margin, "source": means[0]},
                )
