"""Trials made by hand: a small graph with every role's recordings, as the engine would leave them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from verify.core import Artifact, Build, Candidate, LayerRow, Measurement, Recording, Variant
from verify.graphs.align import Match
from verify.graphs.info import GraphInfo, Node
from verify.trial import Trial

RNG = np.random.default_rng(0)


def noise(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def graph(
    *nodes: Node, inputs: tuple[str, ...] = ("x",), outputs: tuple[str, ...] = ("y",), **shapes: Any
) -> GraphInfo:
    return GraphInfo(
        inputs,
        outputs,
        nodes,
        {out: node for node in nodes for out in node.outputs},
        {out: i for i, node in enumerate(nodes) for out in node.outputs},
        shapes,
    )


RELU = graph(Node("relu", "Relu", ("x",), ("y",)), x=(1, 4))


def recordings(role: str, *cases: dict[str, Any], layers: Any = (), **more: Any) -> tuple[Recording, ...]:
    """One recording a case, named case0, case1, ...; `layers` gives inner tensors by case."""
    inner = [*layers, *({} for _ in cases)]
    return tuple(Recording(role, f"case{i}", c, inner[i], more, {}, 0.0, role) for i, c in enumerate(cases))


def build(scales: Any = None, rows: tuple[LayerRow, ...] = ()) -> Build:
    return Build("rknn", Artifact("device", Path("m.rknn"), ""), rows, scales or {})


def trial(
    held: GraphInfo = RELU, builder: str = "onnxruntime", precision: str = "fp32", more: Any = None, **roles: Any
) -> Trial:
    """Roles are lists of outputs by case, or ready recordings; `more` holds further fields of the Trial."""
    target = "rk3588" if builder == "rknn" else "cpu"
    candidate = Candidate("m", Variant("v", target, precision, builder), Path(), "", "m.onnx", "")
    made = {role: v if isinstance(v, tuple) else recordings(role, *v) for role, v in roles.items()}
    return Trial(candidate, held, made, **(more or {}))


def same(name: str = "y") -> Match:
    return Match(name, name, (1, 4), (0,), (), (4,))


def values(checker: Any, given: Trial, metric: str, leg: str = "", part: str | None = None) -> list[float]:
    """The values of one metric, in order."""
    return [m.value for m in found(checker, given, metric, leg, part)]


def found(checker: Any, given: Trial, metric: str, leg: str = "", part: str | None = None) -> list[Measurement]:
    return [
        m
        for m in checker.check(given)
        if m.metric == metric and leg in ("", m.where.leg) and part in (None, m.where.part)
    ]
