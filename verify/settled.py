"""Indices of a scored sample made comparable: those of tied values are free, so they are set as the source's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np

from verify.checkers.indices import ROUNDING
from verify.core import Array, Artifact, Candidate, Case, NotComparable, Tensors
from verify.graphs import info
from verify.inputs import prepare

Settle: TypeAlias = Callable[[Case, Tensors, Tensors], Tensors]


def as_they_are(case: Case, wanted: Tensors, got: Tensors) -> Tensors:
    """For graphs without indices among their outputs."""
    return got


@contextmanager
def settling(candidate: Candidate, graph: Path) -> Iterator[Settle]:
    """A function (case, the source's outputs, the candidate's) -> the candidate's outputs with tied indices settled.

    The values that they point at are those of the graph itself (an ONNX file), run without optimisation.
    """
    from verify.backends.graph import GraphBackend

    known = info.read(graph)
    nodes = {name: node for name in known.outputs if (node := known.indexed(name))}
    if not nodes:
        yield as_they_are
        return
    with GraphBackend(instrument=True).open(candidate, Artifact("graph", graph, "")) as session:

        def settle(case: Case, wanted: Tensors, got: Tensors) -> Tensors:
            feeds = prepare(candidate, case.inputs)
            outputs, inner = session.run_all(feeds)
            held, out = {**feeds, **inner, **outputs}, dict(got)
            for name, node in nodes.items():
                if name in got and name in wanted:
                    out[name] = _settled(wanted[name], got[name], held[node.inputs[0]], node.axis)
            return out

        yield settle


def _settled(wanted: Array, got: Array, values: Array, axis: int | None) -> Array:
    from verify.indices import tied

    at, flat = -1 if axis is None else axis, wanted.ndim < values.ndim  # keepdims=0
    a, b = (np.expand_dims(x, at) if flat else x for x in (wanted, got))
    try:
        wrong = tied(a, b, values, at, ROUNDING)
    except NotComparable:  # said where the outputs are paired
        return got
    settled = np.where(wrong, b, a)
    return np.asarray(settled.reshape(got.shape))
