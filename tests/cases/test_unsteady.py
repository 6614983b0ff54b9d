"""References that answer differently each time, and a runner that says that it is no hardware."""

from __future__ import annotations

import pytest

from tests.cases.kit import checked, leg, outcome, own, tier
from tests.small import BUILD, TOML, linear, save
from verify.core import Outcome, Tier

SOURCE = """
def source():
    calls = []
    def answer(feeds):
        calls.append(1)
        y = np.tanh(feeds["x"])
        {change}
        return {{"y": y}}
    return answer

def cases():
    return [Case(f"c{{i}}", {{"x": normal(i, 1, 4)}}) for i in range(3)]
"""


def tanh(folder, op="Tanh"):
    from onnx import helper

    save(folder / "m.onnx", [helper.make_node(op, ["x"], ["y"])], outputs=[("y", 1, [1, 4])])


@pytest.mark.parametrize(
    "change",
    [
        "y = y + np.random.default_rng().normal(size=y.shape).astype(np.float32)",
        "y = y * np.float32(1 + (len(calls) > 3))",  # right on every case, and wrong ever after
        "y = y.astype(np.int64) if len(calls) > 3 else y",
    ],
)
def test_a_source_that_changes_its_mind_is_the_one_to_blame(tmp_path, change):
    tanh(tmp_path)
    verdict = checked(tmp_path, TOML.replace('"build.py:export"', '"m.onnx"'), SOURCE.format(change=change))
    assert verdict.outcome is Outcome.FAILED and verdict.blame == ("reference",)
    assert "source, case c0: gives another answer when it is asked again" in leg(verdict, "source~graph").reason


def test_a_graph_that_draws_random_numbers_is_the_one_to_blame(tmp_path):
    tanh(tmp_path, "RandomNormalLike")
    verdict = checked(tmp_path, TOML.replace('"build.py:source"', '"m.onnx"'), SOURCE.format(change=""))
    assert verdict.outcome is Outcome.FAILED
    assert "gives another answer when it is asked again" in leg(verdict, "source~graph").reason


def test_a_steady_source_is_as_good_as_before(tmp_path):
    tanh(tmp_path)
    verdict = checked(tmp_path, TOML, SOURCE.format(change=""))
    assert outcome(verdict, "source~graph") is Outcome.PASSED


@pytest.mark.parametrize(("evidence", "passed"), [("hardware", True), ("emulated", False)])
def test_a_runner_that_says_it_is_no_hardware_never_passes(tmp_path, evidence, passed):
    build = (
        BUILD
        + f"""
def device(feeds):
    import onnxruntime
    session = onnxruntime.InferenceSession({str(tmp_path / "m.onnx")!r})
    return {{"y": session.run(None, dict(feeds))[0]}}
"""
    )
    linear(tmp_path / "m.onnx")
    (tmp_path / "says.py").write_text(
        f"import runner\n\nclass Says(runner.Runner):\n    evidence = {evidence!r}\n\n"
        "from contextlib import contextmanager\n\n@contextmanager\ndef open():\n    yield Says\n"
    )
    verdict = checked(tmp_path, own("fp32").replace("runner.py", "says.py"), build)
    assert (outcome(verdict, "graph~device") is Outcome.PASSED) is passed
    assert tier(verdict, Tier.DEVICE) is (Outcome.PASSED if passed else Outcome.INCONCLUSIVE)


@pytest.mark.parametrize(("factor", "noted"), [(1.0, False), (77.0, True)])
def test_expected_outputs_that_the_source_does_not_give_are_noted(tmp_path, factor, noted):
    import numpy as np

    tanh(tmp_path)
    (tmp_path / "cases").mkdir()
    for i in range(2):
        x = np.random.default_rng(i).normal(size=(1, 4)).astype(np.float32)
        held = {"x": x, "expected.y": np.tanh(x) * np.float32(factor), "expected.label": np.array([3])}
        np.savez(tmp_path / "cases" / f"c{i}.npz", **held)
    verdict = checked(tmp_path, TOML.replace("build.py:cases", "cases"), SOURCE.format(change=""))
    assert any("does not give what case c0 expects of y" in note for note in verdict.notes) is noted
