"""The source's and the graph's own runs, which everything else is held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from verify.backends.graph import GraphBackend
from verify.bundle import left_out
from verify.cases import prepare
from verify.core import Artifact, Case, NotComparable, Tensors, UsageError
from verify.frozen import Watch, decided, taking
from verify.graphs import info
from verify.plan import LAYER_CASES
from verify.protocols import Session
from verify.stage import Stage, record
from verify.steady import contradicted, unsteady
from verify.usercode import is_reference


def references(stage: Stage, graph: Artifact, source: Session) -> None:
    """The source's and the graph's own recordings; the graph's inner tensors for the cases that need them."""
    candidate, wanted = stage.candidate, info.read(graph.path)
    indexed = any(wanted.indexed(name) for name in wanted.outputs)
    with (
        stage.progress.step("running source and graph"),
        GraphBackend(instrument=False).open(candidate, graph) as plain,
    ):

        def of_source(case: Case) -> tuple[Tensors, Tensors, Mapping[str, Any]]:
            stage.taken.append(Watch())
            with taking(stage.taken[-1]):
                return source.run(prepare(candidate, case.inputs)), {}, {}

        def of_graph(case: Case) -> tuple[Tensors, Tensors, Mapping[str, Any]]:
            fed = prepare(candidate, case.inputs)
            return plain.run(fed), {}, {"inputs": fed, "given": case.inputs}

        evidence = getattr(source, "evidence", "reference")
        if evidence == "replay":
            stage.notes.append("the source model is not here: its outputs are those that were recorded with the bundle")
            stage.notes += [f"not in the bundle: {note}" for note in left_out(candidate.folder)]
        stage.recordings["source"] = record(stage, "source", of_source, evidence)
        if not is_reference(candidate.variant.graph or candidate.graph):
            stage.notes += decided(stage.taken)
        axes = max((v.ndim for r in stage.recordings["source"] for v in r.outputs.values()), default=0)
        if candidate.batch_axis and candidate.batch_axis >= axes:  # no slot would be looked at
            what = f"batch_axis = {candidate.batch_axis}, and no output has more than {axes} axes"
            raise UsageError(what, str(candidate.folder / "candidate.toml"), "count from 0, or leave it out")
        stage.notes += contradicted(stage.cases, stage.recordings["source"])
        stage.recordings["graph"] = record(stage, "graph", of_graph, "reference")
        for role, session in (("source", source), ("graph", plain)):
            again = session.run(prepare(candidate, stage.cases[0].inputs))
            changed = unsteady(stage.recordings[role][0].outputs, again)
            if changed:
                stage.facts["unsteady"] = role
                what = f"gives another answer when it is asked again ({changed}), so nothing can be held against it"
                do = "seed it, keep no state between calls, and switch dropout off"
                raise NotComparable(what, f"{candidate.name}, {role}, case {stage.cases[0].name}", do)
    if indexed or (stage.plan.layers and candidate.variant.builder == "rknn"):
        some = len(stage.cases) if indexed else LAYER_CASES
        held = list(stage.recordings["graph"])
        with GraphBackend(instrument=True).open(candidate, graph) as opened:
            for i, case in enumerate(stage.cases[:some]):
                fed = prepare(candidate, case.inputs)
                _, layers = opened.run_all(fed)
                inputs = {name: value for name, value in fed.items() if value.dtype.kind in "fiu"}  # rounded too
                held[i] = replace(held[i], layers={**inputs, **layers})
        stage.recordings["graph"] = tuple(held)
