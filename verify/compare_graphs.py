"""`npu-verify compare A.onnx B.onnx --inputs I`: every tensor that two graphs both compute, compared as it comes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from verify.compare import feeds_of, first_divergent
from verify.compare_rows import METRICS, Pointed, bound, row
from verify.compared import Comparison
from verify.core import Array, NotComparable, Tensors, UsageError
from verify.formats_in import load
from verify.graphs.info import GraphInfo, read
from verify.graphs.pieces import stream
from verify.graphs.signature import signature
from verify.structure import mismatches

SIDES = ("reference", "candidate")


def compare_graphs(
    reference: Path, candidate: Path, precision: str, inputs: Path | None, level: str = "all"
) -> Comparison:
    """Run both graphs on the same inputs, the reference without optimisation, and compare tensors of one name.

    `level` is onnxruntime's optimisation of the candidate ("off", "basic", "extended", "all"). Its outputs are those
    of a plain run, in which nodes are fused as an application has them; inner tensors are asked for, so what lies
    between is not fused there. Memory holds some tensors at a time where both compute them in about the same order.
    Raises UsageError for files or inputs that cannot be used.
    """
    if inputs is None:
        raise UsageError("two graphs, and nothing to run them on", "--inputs", "give --inputs I.npz, by input name")
    given = load(inputs, role="input")
    infos = read(reference), read(candidate)
    ours, fed = infos[0], [feeds_of(info, given) for info in infos]
    for path, feeds in zip((reference, candidate), fed, strict=True):
        _fit(path, feeds, inputs)
    try:
        rows, expected, held = {}, _unmade(ours, fed[0]), dict(fed[0])
        inner = [frozenset(n for n in info.producer if info.op(n) != "Constant") for info in infos]
        common = (inner[0] & inner[1]) - set(ours.outputs)
        pointed = {node.inputs[0] for name in ours.producer if (node := ours.indexed(name))}
        streams = stream(reference, fed[0]), stream(candidate, fed[1], level)
        for name, wanted, got in _pairs(*streams, common, pointed | set(ours.outputs)):
            if got is not None:
                rows[name] = row(name, wanted, got, precision, ours, _values(ours, name, held), inner=True)
                continue
            if name in pointed:
                held[name] = wanted
            if name in ours.outputs:
                expected[name] = wanted
        outputs = _plain(candidate, fed[1], level)  # last, when no piece is in memory
    except NotComparable as error:  # a node of either fails on these inputs
        raise UsageError(error.what, error.where, "the graph must run on --inputs by itself") from None
    expected = {name: expected[name] for name in ours.outputs if name in expected}
    told = [f"output {n} is no tensor, nothing to compare" for n in ours.outputs if n not in expected]
    told += mismatches(expected, outputs)
    for name in expected:
        if name in outputs:
            rows[name] = row(name, expected[name], outputs[name], precision, ours, _values(ours, name, held))
    listed = [rows[name] for name in dict.fromkeys((*ours.position, *expected)) if name in rows]
    notes = [f"reference: onnxruntime without optimisation; candidate: onnxruntime, optimisation {level}"]
    notes += first_divergent(ours, listed)
    uncovered = [
        f"{n} ({s} only)" for s, own, other in zip(SIDES, inner, inner[::-1], strict=True) for n in own - other
    ]
    uncovered += [f"{name} (no tensor)" for name in common if name not in rows]
    limits = {metric: bound(metric, precision) for metric in METRICS}
    found = tuple(listed), tuple(told), limits, tuple(notes), tuple(sorted(uncovered))
    return Comparison(str(reference), str(candidate), precision, *found)


def _fit(path: Path, feeds: Tensors, inputs: Path) -> None:
    """Raise UsageError for feeds of another dtype or shape than the graph declares: pieces would take any."""
    for port in signature(path).inputs:
        value = feeds[port.name]
        dtype = "str" if value.dtype.kind in "OUS" else str(value.dtype)
        rank = port.shape is None or len(port.shape) == value.ndim
        fixed = [(axis, n) for axis, n in zip(port.shape or (), value.shape, strict=False) if isinstance(axis, int)]
        if dtype != port.dtype or not rank or any(axis != n for axis, n in fixed):
            what = f"{port.name} is {dtype} {value.shape}"
            raise UsageError(what, str(inputs), f"{path.name} takes {port}")


def _plain(path: Path, feeds: Tensors, level: str) -> Tensors:
    """The outputs of a graph as an application runs it."""
    from verify.backends import _ort

    return _ort.session(path, _ort.options(level), str(path)).run(feeds)


def _unmade(info: GraphInfo, feeds: Tensors) -> dict[str, Array]:
    """The outputs that no node computes: inputs handed on."""
    return {name: np.asarray(feeds[name]) for name in info.outputs if name in feeds}


def _values(info: GraphInfo, name: str, held: Tensors) -> Pointed | None:
    """What the indices `name` point into and the axis, None for any other tensor."""
    node = info.indexed(name)
    if node is None or node.inputs[0] not in held:
        return None
    return np.asarray(held[node.inputs[0]]), -1 if node.axis is None else node.axis


def _pairs(
    ours: Iterator[dict[str, Array]],
    theirs: Iterator[dict[str, Array]],
    common: Collection[str],
    wanted: Collection[str],
) -> Iterator[tuple[str, Array, Array | None]]:
    """(name, reference's, candidate's) of the common tensors as soon as both are there; (name, reference's, None) of
    those of the reference that are `wanted` for themselves, before any that is computed from them."""
    sides = [ours, theirs]
    waiting: tuple[dict[str, Array], dict[str, Array]] = ({}, {})
    going = [True, True]
    while any(going):
        # whoever is behind goes on, so that little has to wait
        turn = int(not going[0] or (going[1] and len(waiting[1]) < len(waiting[0])))
        group = next(sides[turn], {})
        going[turn] = bool(group)
        for name in list(group):
            value = group.pop(name)
            if turn == 0 and name in wanted:
                yield name, value, None
            if name not in common:
                continue
            other = waiting[1 - turn].pop(name, None)
            if other is None:
                waiting[turn][name] = value
            else:
                yield (name, value, other) if turn == 0 else (name, other, value)
