"""Every row of the design's table of suspects, from hand-made legs."""

from __future__ import annotations

import dataclasses

import pytest

from tests import made
from verify.core import Tier
from verify.judge import judge
from verify.policy import Policy
from verify.stored import LegRecord

BOTH = tuple(dataclasses.replace(leg, missing="", do="", evidence="hardware") for leg in made.NPU_LEGS)
NAMES = [leg.name for leg in BOTH if leg.tier is Tier.DEVICE]
WRONG = {"source~graph": 0.3, "graph~simulator": 1.5, "simulator~device": 1.5, "graph~device": 1.5}


def run(*wrong, precision="fp16", legs=BOTH, **more):
    """A run of all six legs, of which `wrong` break."""
    present = [leg.name for leg in legs if not leg.missing]
    held = []
    for name in present:
        if name.startswith("source~") and name != "source~graph":
            held += made.scored(name, *((0.3, 0.2, 0.4) if name in wrong else (0.0, -0.01, 0.009)), 0.01)
        else:
            held += made.plain(name, WRONG[name] if name in wrong else 1e-6)
    return made.run("v", "rk3588", precision, legs, held, **more)


def suspects(*wrong, **more):
    return judge(run(*wrong, **more), Policy()).blame


def test_nobody_is_blamed_where_nothing_failed() -> None:
    assert suspects() == ()
    assert judge(made.unproven(), Policy()).blame == ()


@pytest.mark.parametrize(
    ("referee", "blamed"), [("export", "export"), ("reference", "reference"), ("source harness", "reference")]
)
def test_the_referee_decides_between_source_and_graph(referee, blamed) -> None:
    assert suspects("source~graph", referee=referee) == (blamed,)


def test_without_a_referee_both_sides_are_suspects() -> None:
    assert suspects("source~graph") == ("export", "reference")


@pytest.mark.parametrize(
    ("wrong", "precision", "blamed"),
    [
        (["graph~simulator", "graph~device"], "fp16", ("compiler",)),
        (["graph~simulator", "graph~device"], "w8a8", ("precision", "quantiser")),
        (["simulator~device", "graph~device"], "fp16", ("board",)),
        (["graph~simulator", "simulator~device"], "fp16", ("simulator",)),
        (["simulator~device"], "fp16", ("simulator",)),
        (["source~simulator", "source~device"], "w8a8", ("precision",)),
        (["source~device"], "fp16", ("precision",)),
        (["graph~device"], "fp16", ("undetermined",)),  # and yet it equals the simulator, which equals the graph
    ],
)
def test_patterns_of_legs(wrong, precision, blamed) -> None:
    assert suspects(*wrong, precision=precision) == blamed


def test_without_a_device_leg_the_compiler_is_the_suspect() -> None:
    legs = tuple(leg if leg.name not in ("simulator~device", "graph~device", "source~device") else
                 LegRecord(leg.tier, leg.name, missing="no board") for leg in BOTH)  # fmt: skip
    assert suspects("graph~simulator", legs=legs) == ("compiler",)


def test_badly_chosen_ranges_point_at_the_quantiser() -> None:
    assert judge(made.failed(), Policy()).blame == ("quantiser", "precision")


def test_a_broken_structure_is_the_compilers() -> None:
    assert suspects(
        "graph~simulator", "graph~device", precision="w8a8", broken={"graph~simulator": "y is missing"}
    ) == ("compiler",)


def test_overflow_of_fp16_is_precision_not_a_bug() -> None:
    given = run("graph~simulator", "graph~device")
    nan = made.measured("finite", "graph~simulator", "nonfinite", 3, note="3 NaN, first at (0,) (65504 exceeded)")
    assert judge(made.but(given, measurements=(*given.measurements, nan)), Policy()).blame == ("precision",)


def test_next_steps_name_the_board_the_log_and_the_node() -> None:
    assert judge(made.unproven(), Policy()).next_steps == ("connect a board and run npu-verify gate",)
    assert judge(made.crashed(), Policy()).next_steps == ("read .npu-verify/runs/minilm-int16/simulator.log",)
    steps = judge(made.failed(), Policy()).next_steps
    assert steps[0].startswith("look at /layers.0/norm2/LayerNormalization")
    assert "attention mask" in steps[1] and "in float" in steps[2]
    assert judge(run("source~device"), Policy()).next_steps  # a failed verdict always says what to do


@pytest.mark.parametrize(
    ("errors", "alone", "blamed"),
    [
        ((0.02, 0.05, 0.12, 0.3), 0.001, "precision"),  # it only grows
        ((0.001, 0.001, 0.5, 0.5), 0.001, "compiler"),  # it jumps, though the layer alone looks right
        ((0.02, 0.05, 0.12, 0.3), 0.2, "compiler"),  # a layer is wrong by itself
    ],
)
def test_an_error_that_only_grows_is_no_layers_fault(errors, alone, blamed) -> None:
    held = []
    for i, error in enumerate(errors):
        place = {"tensor": f"t{i}", "node": f"n{i}"}
        held.append(made.measured("layers", "graph~simulator", "relative_l2", error, grain="layer", **place))
        held.append(made.measured("layers", "graph~simulator", "isolated_l2", alone, grain="isolated", **place))
    base = run("graph~simulator", legs=tuple(leg for leg in made.NPU_LEGS))
    verdict = judge(made.but(base, measurements=(*base.measurements, *held)), Policy())
    assert verdict.blame == (blamed,)
    assert ("no layer is wrong by itself" in verdict.next_steps[0]) == (blamed == "precision")


def test_a_misfed_input_comes_before_every_other_suspect() -> None:
    fed = {"graph~device": ("x", "the device has it read as nhwc although it is nchw")}
    verdict = judge(run("graph~device", misfed=fed), Policy())
    assert verdict.blame == ("input",) and verdict.first_divergent["op"] == "Input"
    assert "read as nhwc" in verdict.next_steps[0]
    assert judge(run("graph~simulator", misfed=fed, legs=made.NPU_LEGS), Policy()).blame == ("compiler",)
