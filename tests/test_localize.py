"""The first divergent node with its reason, the layers around it, and an exit code that never says too much."""

from __future__ import annotations

import dataclasses
import datetime
import json

import pytest

from tests import made
from tests.build.rknn_models import conv
from tests.diagnose.test_first import layer
from tests.small import candidate
from tests.test_cli import IMAGES, NPU
from verify.cli import main
from verify.diagnose.rows import rows
from verify.judge import Judged
from verify.localize import localize
from verify.policy import Policy
from verify.reports.layers import SHORT, render
from verify.schemas import stamp
from verify.stored import LegRecord, to_document
from verify.verdict import _plain

LEG = "graph~simulator"
LEGEND = ("first divergent", "beyond a limit that", "beyond one that", "waived", "every layer: --verbose")


def simulated(*layers, output=1.5, **more):
    held = [*made.plain("source~graph", 1e-7), *made.plain(LEG, output), *layers]
    return made.run("v", "rk3588", "w8a8", made.NPU_LEGS, held, **more)


def chain(*errors, alone=0.01):
    """Layers a0, a1, ... of these accumulated errors, in two cases of which the second is a little worse."""
    return [
        layer(f"a{i}", metric, value + 0.001 * (case == "c1"), case=case)
        for case in ("c0", "c1")
        for i, error in enumerate(errors)
        for metric, value in (("relative_l2", error), ("isolated_l2", alone))
    ]


def table(text):
    """The rows of the table, without heads, legend and what is around it."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.split()[:2] == ["tensor", "op"])
    end = next(i for i in range(start, len(lines)) if not lines[i] or lines[i].startswith("Compared"))
    return [line for line in lines[start + 1 : end] if not any(word in line for word in LEGEND)]


def test_a_layer_that_is_wrong_by_itself_is_named_with_the_reason_and_the_suspects():
    text = render(
        found := localize(simulated(layer("a", "relative_l2", 0.01), layer("b", "isolated_l2", 0.6)), Policy())
    )
    assert found.exit_code == 1
    assert text.startswith("DIVERGES  minilm:v@rk3588: first at b [Op, graph~simulator]\n")
    assert "the first layer that is wrong by itself: isolated_l2 = 0.6, limit 0.5, case text0" in found.why
    assert "  its output: b_out" in text and "quantiser  the integer ranges" in text
    assert "Reproduce: npu-verify check candidate.toml --variant v" in text
    assert [line.split() for line in table(text)] == [
        ["a_out", "Op", "0.01", "0.999", "-", "-"],
        [">", "b_out", "Op", "-", "-", "0.6*", "0.5"],
    ]


@pytest.mark.parametrize(
    ("held", "node", "reason"),
    [
        (chain(0.1, 1.2, 3.0), "a1", "the error accumulated up to it: relative_l2 = 1.2, limit 0.999, case c0"),
        ([layer("n", "nonfinite", 2, note="2 NaN")], "n", "not finite as the reference's is: nonfinite = 2"),
    ],
)
def test_why_that_node(held, node, reason):
    found = localize(simulated(*held), Policy())
    assert found.verdict.first_divergent["node"] == node and reason in found.why


def test_what_the_reference_does_not_have_either_is_no_divergence():
    held = [layer("mask", "nonfinite", 0), layer("mask", "relative_l2", 0.0)]
    held.append(dataclasses.replace(layer("mask", "nonfinite", 9), metric="nonfinite_in_both"))
    assert localize(simulated(*held, layer("b", "relative_l2", 1.5)), Policy()).verdict.first_divergent["node"] == "b"


def test_an_input_that_is_fed_wrongly():
    run = simulated(*chain(0.1, 1.2), misfed={LEG: ("x", "it holds when fed as nhwc")})
    text = render(localize(run, Policy()))
    assert "first at x [Input, graph~simulator]" in text and "it holds when fed as nhwc" in text


def test_rows_hold_the_worst_of_cases_and_compiled_layers_in_the_order_of_the_graph():
    held = [layer("b", "relative_l2", 0.1), layer("a", "relative_l2", float("nan"), case="c0")]
    held += [layer("a", "relative_l2", 0.3, case="c1"), layer("b", "relative_l2", 0.2, case="c1")]
    first, second = rows([Judged(m, 0.999, "", "pass") for m in held], LEG, "none")
    assert (first.tensor, second.tensor) == ("b_out", "a_out")
    assert first.accumulated.value == 0.2 and first.accumulated.case == "c1" and first.isolated is None
    assert second.accumulated.value != second.accumulated.value  # NaN is worse than any number


def test_a_long_table_is_cut_around_what_matters_and_says_what_it_hides():
    errors = [0.01 * i for i in range(40)] + [1.5] * 30 + [7.0] + [1.5] * 9
    run = simulated(*chain(*errors), layer("a60", "isolated_l2", 0.7, case="c1"))
    text = render(localize(run, Policy()))
    shown = table(text)
    names = [line.lstrip(" >!~").split()[0] for line in shown]
    assert len(shown) <= SHORT
    assert names[0] == "a0_out" and names[-1] == "a79_out"
    assert names[names.index("a60_out") - 2 : names.index("a60_out") + 3] == [f"a{i}_out" for i in range(58, 63)]
    assert "a40_out" in names and "a41_out" in names and "a70_out" in names  # first beyond the limit; the largest
    assert next(line for line in shown if "a60_out" in line).startswith("  > a60_out")
    assert "    ... 39 more: accumulated 0.011 to 0.391" in shown
    assert "    ... 16 more: accumulated 1.5 to 1.5, 16 beyond a limit" in shown
    assert len(table(render(localize(simulated(*chain(*[0.1] * SHORT), output=0.01), Policy())))) == SHORT  # not cut
    whole = table(render(localize(run, Policy()), verbose=True))
    assert len(whole) == 80 and not any("..." in line for line in whole)
    hidden = sum(int(line.split()[1]) for line in shown if line.startswith("    ..."))
    assert hidden + sum(not line.startswith("    ...") for line in shown) == 80


def test_what_only_warns_in_a_leg_that_holds_diverges_from_nothing():
    found = localize(simulated(*chain(0.1, 0.2, alone=0.6), output=0.01), Policy())
    assert found.exit_code == 0 and found.divergence == "none" and found.verdict.first_divergent is None
    text = render(found)
    assert text.startswith("NOTHING DIVERGES") and "which asks for more, is inconclusive" in found.why
    assert "  ~ a0_out" in text and "0.601*" in text and "beyond one that only warns" in text


def test_a_waived_layer_is_marked(tmp_path):
    policy = tmp_path / "p.toml"
    finding = f"layers/{LEG}/a1_out/relative_l2"
    policy.write_text(f'[[waiver]]\nfinding = "{finding}"\nuntil = 2027-01-31\nreason = "known"\nvalue = 2.0\n')
    found = localize(simulated(*chain(0.1, 1.2), output=0.01), Policy.load(policy), datetime.date(2026, 12, 1))
    assert found.exit_code == 0 and "  w a1_out" in render(found)


def test_a_score_that_fails_alone_names_no_node_and_is_no_0():
    run = simulated(*chain(0.1, 0.2), *made.scored("source~simulator", 0.41, 0.34, 0.48, 0.5), output=0.3)
    found = localize(run, Policy())
    assert found.exit_code == 1 and found.verdict.first_divergent is None
    assert "but no node can be named" in render(found) and "loss = 0.41" in found.why


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (made.passed(), "only outputs were compared: there is no simulator here that shows its layers"),
        (made.crashed(), "graph~simulator was not run: the toolkit died of signal 4 while building"),
        (made.unproven(), "no layer of the compiled model could be matched"),
        (made.but(made.unproven(), ran={"finite": (LEG,)}), "the policy of that run left out the checker layers"),
    ],
)
def test_without_layers_nobody_can_tell(run, why):
    found = localize(run, Policy())
    assert found.exit_code == 3 and found.divergence == "unknown" and why in found.why
    assert render(found).startswith("UNKNOWN  minilm:")


def test_outputs_alone_may_show_that_something_diverges():
    broken = made.but(made.passed(), broken={"graph~device": "output y: shape (1, 3) instead of (1, 4)"})
    assert localize(broken, Policy()).exit_code == 1
    wrong = [*made.plain("source~graph", 1e-7), *made.plain("graph~device", 0.5)]
    wrong += [made.measured("layers", "graph~device", "relative_l2", 0.5, "y", node="/Div", op="Div")]
    found = localize(made.run("v", "cpu", "fp32", made.CPU_LEGS, wrong), Policy())
    assert found.exit_code == 1 and found.why.startswith("only outputs were compared there: relative_l2 = 0.5")


def test_next_steps_do_not_say_to_look_here_nor_to_fetch_a_board_first():
    found = localize(simulated(*chain(0.1, 1.2)), Policy())
    assert found.steps and not any(s.startswith("look at") or "board" in s for s in found.steps)
    assert any("signal 4" in leg.missing for leg in made.crashed().legs)
    assert "simulator.log" in render(localize(made.crashed(), Policy()))


def test_names_from_a_file_may_hold_anything():
    held = [layer("\x1b[31m\n" + "n" * 200, "relative_l2", 1.5)]
    text = render(localize(simulated(*held), Policy()))
    assert "\x1b" not in text and max(map(len, table(text))) < 130
    assert "n" * 200 in render(localize(simulated(*held), Policy()), verbose=True)


def stored(folder, run):
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"schema": stamp("run"), **_plain(to_document(run))}))
    return str(folder)


def test_the_command_and_its_document(tmp_path, capsys):
    nan = simulated(*chain(0.1, 1.2), layer("z", "relative_l2", float("nan")))
    folder = stored(tmp_path / "run", nan)
    assert main(["localize", folder, "--json", str(tmp_path / "l.json")]) == 1
    assert "first at a1" in capsys.readouterr().out
    document = json.loads((tmp_path / "l.json").read_text())
    assert document["schema"] == "npu-verify/localize/1" and document["divergence"] == "found"
    assert document["first_divergent"] == {"node": "a1", "op": "Op", "tensor": "a1_out", "leg": LEG}
    assert [row["tensor"] for row in document["layers"]] == ["a0_out", "a1_out", "z_out"]
    assert document["layers"][1]["accumulated"]["state"] == "fail" and document["layers"][1]["mark"] == "first"
    assert document["layers"][2]["accumulated"]["value"] == "nan"
    assert main(["localize", folder, "--json", "-"]) == 1
    assert json.loads(capsys.readouterr().out) == document


def test_usage(tmp_path, capsys):
    for words in ([str(tmp_path)], [stored(tmp_path / "run", made.failed()), "--policy", str(tmp_path / "none.toml")]):
        assert main(["localize", *words]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    with pytest.raises(SystemExit) as raised:
        main(["localize", str(tmp_path), "--mend"])
    assert raised.value.code == 2


def test_a_real_build(tmp_path, capsys):
    conv(tmp_path / "m.onnx")
    candidate(tmp_path, NPU, IMAGES)
    run = str(tmp_path / "run")
    words = ["check", str(tmp_path / "candidate.toml"), "--cache", str(tmp_path / "cache"), "--quiet", "--run", run]
    assert main(words) == 0
    capsys.readouterr()
    assert main(["localize", run]) == 0
    held = table(capsys.readouterr().out)
    assert [line.split()[0] for line in held] == ["x", "/net/c.0", "r", "y"]
    assert all(0 < float(line.split()[4]) < 0.1 for line in held[2:])  # what the toolkit says of each layer alone
    (tmp_path / "p.toml").write_text("[limit.layers]\nrelative_l2 = 1e-5\n")
    assert main(["localize", run, "--policy", str(tmp_path / "p.toml"), "--json", str(tmp_path / "l.json")]) == 1
    document = json.loads((tmp_path / "l.json").read_text())
    assert document["first_divergent"]["tensor"] == document["layers"][0]["tensor"]
    assert "graph~simulator" in capsys.readouterr().out


def test_legs_that_are_not_there_are_told_apart():
    legs = tuple(
        LegRecord(leg.tier, leg.name, "", "its reference is wrong, see tier 1") if leg.name == LEG else leg
        for leg in made.NPU_LEGS
    )
    held = [
        *made.plain("source~graph", 0.5),
        made.measured("parity", "source~graph", "relative_l2", 0.5, "p", grain="layer", node="/pool", op="AveragePool"),
    ]
    found = localize(made.run("v", "rk3588", "fp16", legs, held, referee="reference"), Policy())
    assert found.verdict.first_divergent["node"] == "/pool" and "the reference runtime is wrong there" in found.why
    assert [row.mark for row in found.rows] == ["first"] and "Layers of source~graph" in render(found)
