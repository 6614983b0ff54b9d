"""The first divergent node is the first cause, not the loudest consequence."""

from __future__ import annotations

from tests import made
from verify.judge import judge
from verify.policy import Policy


def layer(name, metric, value, **more):
    checker = "finite" if metric == "nonfinite" else "layers"
    grain = "isolated" if metric == "isolated_l2" else "layer"
    return made.measured(
        checker, "graph~simulator", metric, value, f"{name}_out", grain=grain, op="Op", node=name, **more
    )


def first(*layers, output=1.5, precision="w8a8"):
    held = [*made.plain("source~graph", 1e-7), *made.plain("graph~simulator", output), *layers]
    return judge(made.run("v", "rk3588", precision, made.NPU_LEGS, held), Policy()).first_divergent


def test_the_earliest_layer_beyond_its_limit() -> None:
    found = first(layer("a", "relative_l2", 0.1), layer("b", "relative_l2", 1.1), layer("c", "relative_l2", 9.0))
    assert found == {"node": "b", "op": "Op", "tensor": "b_out", "leg": "graph~simulator"}


def test_a_layer_that_is_wrong_by_itself_comes_before_one_that_inherits() -> None:
    assert first(layer("a", "relative_l2", 1.1), layer("b", "isolated_l2", 0.6))["node"] == "b"


def test_where_nan_is_born_comes_first() -> None:
    assert first(layer("a", "isolated_l2", 0.9), layer("b", "nonfinite", 1), layer("c", "nonfinite", 9))["node"] == "b"


def output(leg, node=""):
    held = [*made.plain("source~graph", 1e-7), made.measured("layers", leg, "relative_l2", 1.5, node=node, op="Div")]
    return judge(made.run("v", "cpu", "w8a8", made.CPU_LEGS, held), Policy())


def test_an_output_names_its_node_only_where_few_lead_to_it() -> None:
    assert output("graph~device", node="/Div").first_divergent["node"] == "/Div"
    verdict = output("graph~device")
    assert verdict.first_divergent is None
    assert "no first divergent node for graph~device: only outputs were compared there" in verdict.notes


def test_none_when_nothing_fails() -> None:
    assert first(layer("a", "isolated_l2", 0.6), output=0.01) is None  # a warning in a leg that holds
    verdict = judge(made.passed(), Policy())
    assert verdict.first_divergent is None and not any("divergent" in note for note in verdict.notes)


def test_a_bad_score_alone_diverges_nowhere() -> None:
    held = [
        *made.plain("source~graph", 1e-7),
        *made.plain("graph~device", 1e-7),
        *made.scored("source~device", 0.3, 0.2, 0.4, 0.1),
    ]
    assert judge(made.run("v", "cpu", "fp32", made.CPU_LEGS, held), Policy()).first_divergent is None
