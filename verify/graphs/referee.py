"""Who is to blame when source and graph differ: asked of float64 runs of both, never of a majority."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verify.core import Measurement, Recording, Tensors, Tier, VerifyError, Where

if TYPE_CHECKING:
    from verify.trial import Trial

#: Two runs agree below this relative L2 error: the parity checker's own limit (verify.limits.FP32).
AGREE = 1e-4


def referee(trial: Trial) -> str:
    """Who is wrong on the case that differs most: "export", "reference", "source harness" or "undetermined".

    "source harness": the source in float64 disagrees with itself in float32. "reference" (onnxruntime): the ONNX
    reference evaluator in float64 sides with the source. "export": it sides with the graph, and the source in float64
    with the source.
    """
    pair = _worst(trial)
    if pair is None:
        return "undetermined"
    source, graph = pair
    wide = wide_source(trial, graph)
    if wide is not None and not agree(wide, source.outputs):
        return "source harness"
    judge = _evaluator(trial, graph)
    if judge is None:
        return "undetermined"
    with_source, with_graph = agree(judge, source.outputs), agree(judge, graph.outputs)
    if with_source and not with_graph:
        return "reference"
    if with_graph and not with_source and wide is not None:
        return "export"
    return "undetermined"


def _worst(trial: Trial) -> tuple[Recording, Recording] | None:
    graphs = {recording.case: recording for recording in trial.recordings.get("graph", ())}
    pairs = [(s, graphs[s.case]) for s in trial.recordings.get("source", ()) if s.case in graphs]
    pairs = [pair for pair in pairs if "inputs" in pair[1].integrity]
    return max(pairs, key=lambda pair: distance(pair[0].outputs, pair[1].outputs), default=None)


def wide_source(trial: Trial, graph: Recording) -> Tensors | None:
    """The source in float64, where it can be had: a torch module, or an ONNX file other than the graph."""
    from pathlib import Path

    from verify.backends.source import SourceBackend, is_module, source
    from verify.graphs.double import evaluate

    candidate, feeds = trial.candidate, graph.integrity["inputs"]
    try:
        found = source(candidate)
        if isinstance(found, Path) and found.is_dir():  # recorded outputs
            return None
        if isinstance(found, Path):
            return evaluate(found, feeds)
        if not is_module(found):
            return None
        with SourceBackend(dtype="float64").open(candidate, trial.facts["graph"]) as session:
            return session.run(feeds)
    except VerifyError:  # a module that insists on float32 cannot be asked
        return None


def _evaluator(trial: Trial, graph: Recording) -> Tensors | None:
    from verify.graphs.double import evaluate

    try:
        return evaluate(trial.facts["graph"].path, graph.integrity["inputs"])
    except VerifyError:
        return None


def agree(wanted: Tensors, got: Tensors) -> bool:
    """Whether every floating output (every output, where none is floating) agrees within the limit."""
    return distance(wanted, got) <= AGREE


def distance(wanted: Tensors, got: Tensors) -> float:
    """The worst output's relative L2 error in float64; infinite where names, shapes or non-finite elements differ."""
    import numpy as np

    if set(wanted) != set(got):
        return float("inf")
    floating = [name for name in wanted if wanted[name].dtype.kind == "f"] or list(wanted)
    worst = 0.0
    for name in floating:
        a, b = np.asarray(wanted[name]), np.asarray(got[name])
        if a.shape != b.shape:
            return float("inf")
        if a.dtype.kind not in "fiub":
            worst = max(worst, 0.0 if np.array_equal(a, b) else float("inf"))
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(a)
        if not np.array_equal(finite, np.isfinite(b)):
            return float("inf")
        size, error = float(np.linalg.norm(a[finite])), float(np.linalg.norm(a[finite] - b[finite]))
        worst = max(worst, error / size if size else float("inf") if error else 0.0)
    return worst


def culprit(trial: Trial) -> Measurement | None:
    """The first tensor of the graph where onnxruntime departs from float64, on the case that differs most."""
    from verify.backends.graph import GraphBackend
    from verify.graphs.double import evaluate

    pair = _worst(trial)
    if pair is None:
        return None
    graph, artifact = pair[1], trial.facts["graph"]
    feeds = graph.integrity["inputs"]
    try:
        wide = evaluate(artifact.path, feeds, inner=True)
        with GraphBackend(instrument=True).open(trial.candidate, artifact) as session:
            outputs, inner = session.run_all(feeds)
    except VerifyError:
        return None
    held = {**inner, **outputs}
    for node in trial.graph.nodes:
        for name in node.outputs:
            if name in held and name in wide and held[name].dtype.kind == "f":
                apart = distance({name: wide[name]}, {name: held[name]})
                if not apart <= AGREE:
                    note = "onnxruntime without optimisation, held against the graph in float64"
                    where = Where(name, graph.case, "source~graph", "", node.op, node.name)
                    return Measurement(where, "relative_l2", apart, "", "layer", held[name].size, None, note,
                                       checker="parity", tier=Tier.GRAPH)  # fmt: skip
    return None
