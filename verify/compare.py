"""`npu-verify compare`: two files of tensors, without running anything unless indices must be looked up."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from verify.compare_rows import METRICS, Pointed, bound, row
from verify.compared import WITHIN, Comparison, Row
from verify.core import Array, NotComparable, Tensors, UsageError
from verify.formats_in import Loaded, is_snapshot, load
from verify.structure import mismatches
from verify.targets import PRECISIONS

if TYPE_CHECKING:
    from verify.graphs.info import GraphInfo


def compare_files(
    reference: Path,
    candidate: Path,
    precision: str,
    graph: Path | None = None,
    inputs: Path | None = None,
    optimization: str = "",
) -> Comparison:
    """Compare two tensor files or folders, or two ONNX graphs, under the built-in limits of `precision`.

    Two graphs are both run on `inputs` (verify.compare_graphs), the candidate with `optimization` (default: "all").
    With `graph`, the first divergent node is named and blocks of a Concat are judged each by itself; with `inputs` too,
    indices go by the values that they point at. The same snapshot folder given twice means its golden half against its
    simulator half. Raises UsageError.
    """
    _known(precision)
    if reference.suffix == candidate.suffix == ".onnx":
        from verify.compare_graphs import compare_graphs

        if graph is not None:
            raise UsageError("a graph beside two graphs", "--graph", "leave it out: it is for files of tensors")
        return compare_graphs(reference, candidate, precision, inputs, optimization or "all")
    if optimization:
        raise UsageError("nothing is run", "--optimization", "leave it out, or give two .onnx files")
    if inputs is not None and graph is None:
        raise UsageError("inputs without a graph", "--inputs", "add --graph: the inputs are run through it")
    twice = is_snapshot(reference) and reference.resolve() == candidate.resolve()
    wanted, got = load(reference, part="golden" if twice else "simulator"), load(candidate)
    info, notes = _graph(graph, wanted), []
    if twice:
        notes.append("golden is a float32 run of the optimised graph: a wrong rewrite is on both sides")
    expected, found = _paired(wanted, got)
    told = mismatches(expected, found)
    common = [name for name in expected if name in found]
    values = _values(graph, info, inputs, common)
    inner = is_snapshot(reference) or is_snapshot(candidate)
    rows = [row(n, expected[n], found[n], precision, info, values.get(n), inner) for n in common]
    notes += first_divergent(info, rows)
    limits = {metric: bound(metric, precision) for metric in METRICS}
    return Comparison(str(reference), str(candidate), precision, tuple(rows), tuple(told), limits, tuple(notes))


def first_divergent(info: GraphInfo | None, rows: Sequence[Row]) -> list[str]:
    """Where the graph's order puts the first tensor that differs, if inner tensors are among what was compared."""
    differing = {row.name for row in rows if row.outcome != WITHIN}
    if info is None or not differing or {row.name for row in rows} <= set(info.outputs):
        return []
    for node in info.nodes:
        for name in node.outputs:
            if name in differing:
                return [f"first divergent node: {node.name} [{node.op}], its output: {name}"]
    return []


def _known(precision: str) -> None:
    known = sorted({p for some in PRECISIONS.values() for p in some} | {"exact", "bf16"})
    if precision not in known:
        near = get_close_matches(precision, known, 1, 0.5)
        do = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        raise UsageError(f"unknown precision {precision!r}", "--precision", do)


def _paired(wanted: Loaded, got: Loaded) -> tuple[dict[str, Array], dict[str, Array]]:
    """Both sides by name; by position where a side has no names and as many tensors as the other."""
    expected, found = dict(wanted.tensors), dict(got.tensors)
    if not (wanted.named and got.named) and len(expected) == len(found) and set(expected) != set(found):
        names = expected if wanted.named or not got.named else found
        return dict(zip(names, expected.values(), strict=True)), dict(zip(names, found.values(), strict=True))
    if not (wanted.ordered and got.ordered):
        order = [*(n for n in expected if n in found), *(n for n in found if n not in expected)]
        found = {name: found[name] for name in order}
    return expected, found


def _graph(path: Path | None, wanted: Loaded) -> GraphInfo | None:
    if path is None:
        return None
    if not path.exists():
        raise UsageError("no such file", str(path), "give the ONNX graph that the outputs came from")
    from verify.graphs.info import read

    info = read(path)
    if wanted.named and not set(wanted.tensors) & set(info.producer):
        raise UsageError(
            f"computes none of {', '.join(wanted.tensors)}", str(path), f"its outputs are {', '.join(info.outputs)}"
        )
    return info


def _values(path: Path | None, info: GraphInfo | None, inputs: Path | None, names: list[str]) -> dict[str, Pointed]:
    """The values that each index tensor points into, and the axis; {} without graph and inputs."""
    if info is None or path is None or inputs is None:
        return {}
    wanted = {name: node for name in names if (node := info.indexed(name))}
    if not wanted:
        return {}
    feeds = feeds_of(info, load(inputs, role="input"))
    inner: Tensors = {**feeds, **_run(path, feeds)}
    return {
        n: (np.asarray(inner[node.inputs[0]]), -1 if node.axis is None else node.axis) for n, node in wanted.items()
    }


def feeds_of(info: GraphInfo, given: Loaded) -> dict[str, Array]:
    """The graph's inputs among the tensors of a file; by position where they have no names. Raises UsageError."""
    if not given.named and len(given.tensors) == len(info.inputs):
        return dict(zip(info.inputs, given.tensors.values(), strict=True))
    missing = [name for name in info.inputs if name not in given.tensors]
    if missing:
        raise UsageError(f"no input {missing[0]}", str(given.path), f"the graph takes {', '.join(info.inputs)}")
    return {name: given.tensors[name] for name in info.inputs}


def _run(path: Path, feeds: Tensors) -> dict[str, Any]:
    """Every tensor of the graph, computed without optimisation; raises UsageError for inputs that it refuses."""
    from verify.backends.graph import GraphBackend
    from verify.core import Artifact, Candidate, Variant

    candidate = Candidate(path.stem, Variant("compare", "cpu"), path.parent, "", str(path), "")
    try:
        with GraphBackend(instrument=True).open(candidate, Artifact("graph", path, "")) as session:
            outputs, inner = session.run_all(feeds)
    except (UsageError, NotComparable):
        raise
    except Exception as error:  # the runtime has an exception of its own for each refusal
        raise UsageError(" ".join(str(error).split())[:160], str(path), "check --inputs against the graph") from None
    return {**inner, **outputs}
