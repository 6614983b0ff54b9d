"""How far the outputs of the scored samples are from the source's: may veto, never pass."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from verify.core import Candidate, Measurement, RunSpec, Tier, Where, runs
from verify.trial import Trial

METRICS = {"relative_error": "relative_error", "cosine_distance": "cosine_distance", "top1_flip": "top1_flips"}


class Agreement:
    """Mean relative error, cosine distance and share of changed top-1 over the scored samples, worst output each."""

    name, tier = "agreement", Tier.END_TO_END

    def plan(self, candidate: Candidate) -> Collection[RunSpec]:
        return runs("source", "simulator", "device", cases="score")

    def check(self, trial: Trial) -> Iterator[Measurement]:
        for leg in trial.legs(self.tier):
            scored = trial.scored.get(leg.candidate)
            if scored is None:
                continue
            cosines = scored.distance.get("cosine_distance", ())
            cosine = f"mean cosine to the source {1 - sum(cosines) / len(cosines):.3f}" if cosines else ""
            for key, metric in METRICS.items():
                values = scored.distance.get(key, ())
                if values:
                    mean = sum(values) / len(values)
                    note = "" if key == "top1_flip" else cosine
                    where = Where("outputs", "", leg.name)
                    yield Measurement(where, metric, mean, "", "sample", len(values), note=note)
