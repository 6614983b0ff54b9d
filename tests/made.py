"""Runs made by hand, as an engine would leave them: what judge, reports, diff and waive are tested with."""

from __future__ import annotations

import dataclasses
from typing import Any

from verify.core import Measurement, Tier, Where
from verify.policy import REQUIRED
from verify.stored import LegRecord, Run

BOARD = {"missing": "no board", "do": "connect a board and run npu-verify gate"}
NPU_LEGS = (
    LegRecord(Tier.GRAPH, "source~graph", "reference"),
    LegRecord(Tier.DEVICE, "graph~simulator", "simulator"),
    LegRecord(Tier.DEVICE, "simulator~device", **BOARD),
    LegRecord(Tier.DEVICE, "graph~device", **BOARD),
    LegRecord(Tier.END_TO_END, "source~simulator", "simulator"),
    LegRecord(Tier.END_TO_END, "source~device", **BOARD),
)
CPU_LEGS = (
    LegRecord(Tier.GRAPH, "source~graph", "reference"),
    LegRecord(Tier.DEVICE, "graph~device", "hardware"),
    LegRecord(Tier.END_TO_END, "source~device", "hardware"),
)
TIERS = {leg.name: leg.tier for leg in (*NPU_LEGS, *CPU_LEGS)}


def measured(
    checker: str, leg: str, metric: str, value: float, tensor: str = "embedding", case: str = "text0", **more: Any
) -> Measurement:
    """One stamped measurement; `part`, `op` and `node` go to its place."""
    place = {key: more.pop(key) for key in ("part", "op", "node") if key in more}
    where = Where(tensor, case, leg, **place)
    return Measurement(where, metric, float(value), **{"n": 384, **more}, checker=checker, tier=TIERS[leg])


def plain(leg: str, error: float) -> list[Measurement]:
    """What the exact checkers and `layers` or `parity` leave for a leg that holds."""
    out = [measured("structure", leg, "mismatches", 0, "outputs"), measured("finite", leg, "nonfinite", 0)]
    out += [
        measured("coverage", leg, "outputs_uncovered", 0, "outputs", ""),
        measured("diversity", leg, "dead_blocks", 0),
    ]
    checker = "parity" if leg == "source~graph" else "layers"
    return [*out, measured(checker, leg, "relative_l2", error)]


def scored(leg: str, loss: float, low: float, high: float, agreement: float) -> list[Measurement]:
    note = f"source 0.9200, {leg.partition('~')[2]} {0.92 - loss:.4f}, 350 samples"
    null = {"alpha": 0.05, "margin": 0.01}
    return [
        measured(
            "accuracy", leg, "loss", loss, "retrieval_at_1", "", interval=(low, high), note=note, null=null, n=350
        ),
        measured("agreement", leg, "relative_error", agreement, "outputs", "", n=350),
        measured("agreement", leg, "cosine_distance", agreement / 10, "outputs", "", n=350),
    ]


def ran(legs: tuple[LegRecord, ...]) -> dict[str, tuple[str, ...]]:
    """The legs that each required checker had to measure, as the engine would say."""
    present = [leg for leg in legs if not leg.missing]
    graphs = tuple(leg.name for leg in present if leg.tier is not Tier.END_TO_END)
    whole = tuple(leg.name for leg in present if leg.tier is Tier.END_TO_END)
    devices = tuple(leg.name for leg in present if leg.tier is Tier.DEVICE)
    held = dict.fromkeys(REQUIRED, graphs)
    held.update(
        indices=(), range=(), regions=(), parity=("source~graph",), layers=devices, accuracy=whole, agreement=whole
    )
    return held


def run(
    variant: str, target: str, precision: str, legs: tuple[LegRecord, ...], held: list[Measurement], **more: Any
) -> Run:
    artifacts = [{"role": "graph", "name": "graph.onnx", "sha256": "ab" * 32}]
    return Run(
        candidate={
            "model": "minilm",
            "variant": variant,
            "target": target,
            "precision": precision,
            "artifacts": artifacts,
        },
        precision=precision,
        legs=legs,
        ran=ran(legs),
        measurements=tuple(held),
        **{
            "budgets": {"accuracy.loss": 0.01},
            "coverage": {
                "compared": 132,
                "total": 210,
                "uncovered": [f"/layers.{i}/gelu/Erf_output_0" for i in range(78)],
            },
            "environment": {
                "host": {"machine": "x86_64"},
                "packages": {"onnx": "1.18.0"},
                "build": {"rknn-toolkit2": "2.5.0"},
            },
            "command": f"npu-verify check candidate.toml --variant {variant}",
            "folder": f".npu-verify/runs/minilm-{variant}",
            **more,
        },
    )


def passed() -> Run:
    held = [
        *plain("source~graph", 3e-7),
        *plain("graph~device", 5e-7),
        *scored("source~device", 0.0, -0.01, 0.009, 1e-6),
    ]
    return run("cpu-fused", "cpu", "fp32", CPU_LEGS, held)


def unproven() -> Run:
    """fp16 on a machine without a board: the simulator holds, and it may never pass."""
    held = [*plain("source~graph", 3e-7), *plain("graph~simulator", 0.0012)]
    held += [
        measured(
            "range", "graph~simulator", "over_65504", 4, f"/layers.{i}/Add_output_0", f"text{i % 2}", op="Add",
            note=f"compiled layer Add{i}: the reference reaches 7.1e+04; fp16 ends at 65504",
        )
        for i in range(3)
    ]  # fmt: skip
    held += scored("source~simulator", 0.001, -0.004, 0.0093, 0.0013)
    return run("fp16", "rk3588", "fp16", NPU_LEGS, held)


def failed() -> Run:
    """int8 with the usual large mask: the quantiser's range is eaten, and nothing of the signal is left."""
    held = [*plain("source~graph", 3e-7), *plain("graph~simulator", 1.03)]
    note = (
        "the softmax inside /layers.0/sdpa gets its input in steps of 39.2, range [-10000, 3.1]: "
        "a weight may be wrong by a factor of e^19.6"
    )
    held += [
        measured("range", "graph~simulator", "softmax_step", 39.2, f"/layers.{i}/sdpa_q_add", "", op="Softmax",
                 node=f"/layers.{i}/sdpa", note=note.replace("layers.0", f"layers.{i}"), unit="logits")
        for i in range(6)
    ]  # fmt: skip
    for case in ("text0", "text1"):
        for i in range(6):
            norm = f"/layers.{i}/norm2/LayerNormalization"
            value = 1.01 + i / 100 + (case == "text1") / 1000
            held.append(
                measured("layers", "graph~simulator", "relative_l2", value, f"{norm}_output_0",
                         case, grain="layer", op="LayerNormalization", node=norm,
                         note=f"compiled layer norm{i}: worst at index (0, 3, 17), gain 0.31, 0.1 dB")
            )  # fmt: skip
        held.append(measured("range", "graph~simulator", "destroyed", 1.03, case=case))
    held += scored("source~simulator", 0.41, 0.34, 0.48, 1.02)
    return run("int8", "rk3588", "w8a8", NPU_LEGS, held)


def crashed() -> Run:
    """The toolkit died: nothing but source and graph was run."""
    reason = {
        "missing": "the toolkit died of signal 4 while building",
        "log": ".npu-verify/runs/minilm-int16/simulator.log",
    }
    legs = tuple(leg if leg.name == "source~graph" else LegRecord(leg.tier, leg.name, "", **reason) for leg in NPU_LEGS)
    return run(
        "int16",
        "rk3588",
        "w16a16i_dfp",
        legs,
        plain("source~graph", 3e-7),
        coverage={"compared": 1, "total": 1, "uncovered": []},
    )


def but(given: Run, **changes: Any) -> Run:
    return dataclasses.replace(given, **changes)
