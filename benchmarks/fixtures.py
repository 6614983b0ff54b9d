"""What the fixtures cost and earn: the table of fixtures/README.md.

    python benchmarks/fixtures.py [FIXTURE ...] [--variant NAME ...]

Builds every variant afresh and prints seconds of the build, milliseconds of an inference (median), the relative error
against the graph (the worst case) and its decibels, and the scores of source and variant over the samples that
decide the margin. A variant that the toolkit dies of is named with the reason.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from verify.backends.graph import GraphBackend
from verify.backends.source import SourceBackend
from verify.candidate import load, names
from verify.cases import export_graph, load_calibration, load_cases, prepare, rknn_input_settings, score_cases
from verify.core import Accuracy, Artifact, Candidate, Missing, Tensors
from verify.metrics import difference
from verify.protocols import Session
from verify.protocols import load as plugin
from verify.reports.progress import quiet
from verify.scores.sequential import decided
from verify.scoring import losses, score
from verify.store import file_digest

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


@dataclass
class Timed:
    """A session, what it is fed prepared as its builder wants it, each run timed."""

    session: Session
    candidate: Candidate
    seconds: list[float] = field(default_factory=list)

    def run(self, feeds: Tensors, /) -> Tensors:
        # the vendor's toolkit compiles mean and std in
        fed = feeds if self.candidate.variant.builder == "rknn" else prepare(self.candidate, feeds)
        start = time.perf_counter()
        outputs = self.session.run(fed)
        self.seconds.append(time.perf_counter() - start)
        return outputs


def measure(candidate: Candidate, work: Path) -> str:
    """One row of the table."""
    declared = candidate.accuracy or Accuracy()
    path = export_graph(candidate, work)
    graph = Artifact("graph", path, file_digest(path))
    cases, calibration = load_cases(candidate, graph), load_calibration(candidate, graph)
    built = candidate
    if candidate.variant.builder == "rknn":
        options = {**candidate.variant.settings.get("rknn", {}), **rknn_input_settings(candidate, path)}
        settings = {**candidate.variant.settings, "rknn": options}
        built = dataclasses.replace(candidate, variant=dataclasses.replace(candidate.variant, settings=settings))
    builder = plugin("verify.builders", candidate.variant.builder)()
    with (
        SourceBackend().open(candidate, graph) as source,
        GraphBackend(instrument=False).open(candidate, graph) as reference,
        builder.open(built, graph, calibration, work) as live,
    ):
        timed, errors = Timed(live, candidate), []
        for case in cases:
            wanted, got = reference.run(prepare(candidate, case.inputs)), timed.run(case.inputs)
            errors += [difference(value, got[name]).relative_l2 for name, value in wanted.items()]
        scored = score(
            candidate,
            score_cases(candidate, path),
            lambda case: source.run(prepare(candidate, case.inputs)),
            timed,
            "simulator" if live.simulates else "device",
            "simulator" if live.simulates else "hardware",
            quiet(),
        )
        decibels = -20 * math.log10(max(errors)) if max(errors) > 0 else math.inf
        pairs = scored.pairs.items()
        means = ", ".join(f"{name} {np.mean(a):.4f} -> {np.mean(b):.4f}" for name, (a, b) in pairs)
        verdicts = {decided(losses(a, b), declared.margin, declared.alpha) for _, (a, b) in pairs}
        word = "fail" if "fail" in verdicts else "pass" if verdicts == {"pass"} else "open"
        return (
            f"| {candidate.model} | {candidate.variant.name} | {live.build.seconds:.1f} | "
            f"{1000 * np.median(timed.seconds):.0f} | {max(errors):.2g} | {decibels:.1f} | "
            f"{means} | {scored.n} | {declared.margin:g}: {word} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fixtures", nargs="*", default=sorted(p.parent.name for p in FIXTURES.glob("*/candidate.toml")))
    parser.add_argument("--variant", action="append")
    options = parser.parse_args()
    print("| fixture | variant | build s | ms | rel. error | dB | score: source -> variant | n | margin |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for fixture in options.fixtures:
        path = FIXTURES / fixture / "candidate.toml"
        for variant in options.variant or names(path):
            candidate = load(path, variant)
            with tempfile.TemporaryDirectory() as work:
                try:
                    print(measure(candidate, Path(work)), flush=True)
                except Missing as error:
                    print(f"| {candidate.model} | {variant} | {error.what} | | | | | | |", flush=True)


if __name__ == "__main__":
    main()
