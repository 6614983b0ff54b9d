"""Real disagreements between torch and onnxruntime, and whom the referee sides with."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.small import FLOAT, TOML, artifact, candidate, linear, normal, save
from verify.backends.graph import GraphBackend
from verify.backends.source import SourceBackend
from verify.core import Missing, Recording
from verify.graphs import double
from verify.graphs.double import evaluate
from verify.graphs.info import read
from verify.graphs.referee import agree, distance, referee
from verify.trial import Trial

pytest.importorskip("torch")
HEAD = "import numpy as np\nimport torch\nfrom torch import nn\n"
TO = "def source(): return M().eval()\n"


def ruling(folder, source, feeds, toml=TOML):
    held = candidate(folder, toml, HEAD + source)
    graph = artifact(folder / "m.onnx")
    recordings = {}
    with SourceBackend().open(held, graph) as s, GraphBackend().open(held, graph) as g:
        recordings["source"] = (Recording("source", "a", s.run(feeds)),)
        recordings["graph"] = (Recording("graph", "a", g.run(feeds), {}, {"inputs": feeds}),)
    assert distance(recordings["source"][0].outputs, recordings["graph"][0].outputs) > 1e-3, "they do differ"
    return referee(Trial(held, read(graph.path), recordings, facts={"graph": graph}))


X = {"x": normal(9, 1, 4)}
WEIGHTS = "W = torch.tensor(np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32))\n"


def test_an_export_that_lost_something_is_the_exports_fault(tmp_path):
    linear(tmp_path / "m.onnx")
    source = WEIGHTS + "class M(nn.Module):\n    def forward(self, x): return (x @ W.to(x.dtype)).relu()\n" + TO
    assert ruling(tmp_path, source, X) == "export"


def average(folder):
    node = helper.make_node(
        "AveragePool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, ceil_mode=1, count_include_pad=1
    )
    save(folder / "m.onnx", [node], [("x", FLOAT, [1, 1, 6, 6])], [("y", FLOAT, None)])
    return {"x": np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)}


def test_an_average_pool_in_ceil_mode_is_onnxruntimes_fault(tmp_path):
    """It divides by the full window before opset 19 (onnxruntime #16203), with every optimisation off."""
    source = "def source(): return nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=True).eval()"
    assert ruling(tmp_path, source, average(tmp_path)) == "reference"


def test_a_cancelling_layer_norm_is_onnxruntimes_fault(tmp_path):
    """E[x^2] - E[x]^2 with a mean of 1e4 and a spread of 1 (onnxruntime #28463)."""
    save(tmp_path / "m.onnx", [helper.make_node("LayerNormalization", ["x", "g"], ["y"], epsilon=1e-5)],
         weights={"g": np.ones(4, np.float32)})  # fmt: skip
    source = "def source(): return nn.LayerNorm(4).eval()"
    assert ruling(tmp_path, source, {"x": np.float32([[1e4, 1e4 + 1, 1e4 + 2, 1e4 + 3]])}) == "reference"


def test_a_source_that_changes_with_its_precision_is_to_blame_itself(tmp_path):
    save(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])])
    body = "return ((x + 1e8) - 1e8).relu()"  # cancels in float32
    assert ruling(tmp_path, f"class M(nn.Module):\n    def forward(self, x): {body}\n" + TO, X) == "source harness"


@pytest.mark.parametrize(
    "source",
    [
        "def source(): return lambda feeds: {'y': feeds['x'][:, :3] * 7}",
        "class M(nn.Module):\n    def forward(self, x): return (x @ torch.ones(4, 3, dtype=torch.float32))\n" + TO,
    ],
    ids=["a callable", "a module that insists on float32"],
)
def test_a_source_that_cannot_be_asked_leaves_it_undetermined(tmp_path, source):
    linear(tmp_path / "m.onnx")
    assert ruling(tmp_path, source, X) == "undetermined"


def test_an_onnx_source_is_asked_in_float64_too(tmp_path):
    linear(tmp_path / "m.onnx")
    save(tmp_path / "s.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], weights={"w": normal(0, 4, 3)})
    assert ruling(tmp_path, "", X, TOML.replace("build.py:source", "s.onnx")) == "export"


def test_without_recordings_it_is_undetermined(tmp_path):
    linear(tmp_path / "m.onnx")
    graph = artifact(tmp_path / "m.onnx")
    assert referee(Trial(candidate(tmp_path), read(graph.path), {}, facts={"graph": graph})) == "undetermined"


def test_the_evaluator_works_in_float64_inside_branches_and_constants(tmp_path):
    third = numpy_helper.from_array(np.float32(1 / 3).reshape(1), "t")
    nodes = {
        name: [helper.make_node("Constant", [], ["k"], value_float=value), helper.make_node("Mul", ["x", "k"], ["z"])]
        for name, value in (("then_branch", 0.1), ("else_branch", 0.2))
    }
    branches = {
        name: helper.make_graph(held, name, [], [helper.make_tensor_value_info("z", FLOAT, None)])
        for name, held in nodes.items()
    }
    save(
        tmp_path / "m.onnx",
        [
            helper.make_node("Constant", [], ["t"], value=third),
            helper.make_node("If", ["c"], ["b"], **branches),
            helper.make_node("Cast", ["b"], ["f"], to=FLOAT),
            helper.make_node("Div", ["f", "t"], ["y"]),
        ],
        weights={"c": np.array(True)},
    )
    out = evaluate(tmp_path / "m.onnx", X)["y"]
    wanted = X["x"].astype(np.float64) * np.float64(np.float32(0.1)) / np.float64(np.float32(1 / 3))
    assert out.dtype == np.float64
    np.testing.assert_allclose(out, wanted, rtol=1e-15)


def test_an_empty_roi_means_none(tmp_path):
    node = helper.make_node("Resize", ["x", "roi", "scales"], ["y"], mode="nearest")
    weights = {"roi": np.zeros(0, np.float32), "scales": np.float32([1, 1, 2, 2])}
    save(tmp_path / "m.onnx", [node], [("x", FLOAT, [1, 1, 2, 2])], weights=weights)
    assert evaluate(tmp_path / "m.onnx", {"x": normal(0, 1, 1, 2, 2)})["y"].shape == (1, 1, 4, 4)


@pytest.mark.parametrize(("name", "value"), [("MAX_BYTES", 10), ("MAX_NODES", 1), ("SECONDS", -1.0)])
def test_what_is_too_much_is_not_evaluated(tmp_path, monkeypatch, name, value):
    monkeypatch.setattr(double, name, value)
    with pytest.raises(Missing):
        evaluate(linear(tmp_path / "m.onnx"), X)


def test_an_unknown_operator_is_missing_evidence(tmp_path):
    save(tmp_path / "m.onnx", [helper.make_node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft")])
    with pytest.raises(Missing, match="evaluator failed"):
        evaluate(tmp_path / "m.onnx", X)


NAN = np.float32([1, np.nan])


@pytest.mark.parametrize(
    ("wanted", "got", "same"),
    [
        ({"y": np.float32([1, 2])}, {"y": np.float64([1, 2])}, True),
        ({"y": np.float32([1, 2])}, {"y": np.float32([1, 2.001])}, False),
        ({"y": np.float32([1, 2])}, {"y": np.float32([1])}, False),
        ({"y": np.float32([1, 2])}, {"z": np.float32([1, 2])}, False),
        ({"y": NAN}, {"y": NAN}, True),
        ({"y": NAN}, {"y": np.float32([1, 2])}, False),
        ({"y": np.zeros(2)}, {"y": np.zeros(2)}, True),
        ({"y": np.zeros(2)}, {"y": np.full(2, 1e-9)}, False),
        ({"y": np.ones(2), "i": np.array([1])}, {"y": np.ones(2), "i": np.array([2])}, True),
        ({"i": np.array([1])}, {"i": np.array([2])}, False),
        ({"s": np.array(["a"])}, {"s": np.array(["b"])}, False),
    ],
)
def test_agreement_is_strict_about_names_shapes_and_what_is_not_finite(wanted, got, same):
    assert agree(wanted, got) is same
