from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.small import BUILD, FLOAT, TOML, artifact, candidate, linear, normal, save
from verify.backends import _ort
from verify.backends.cpu import CpuBackend
from verify.backends.graph import GraphBackend
from verify.build.onnxruntime import OnnxruntimeBuilder
from verify.cases import load_calibration
from verify.core import Missing, UsageError
from verify.store import file_digest

W8A8 = TOML + 'precision = "w8a8"\ncalibration = "build.py:cases"\n'
X = {"x": normal(9, 1, 4)}


def opened(folder, toml=TOML, build=BUILD):
    held = candidate(folder, toml, build)
    graph = artifact(folder / "m.onnx")
    (folder / "work").mkdir(exist_ok=True)
    return held, OnnxruntimeBuilder().open(held, graph, load_calibration(held, graph), folder / "work")


def test_a_fused_graph_is_what_the_cpu_runs(tmp_path):
    held, building = opened(tmp_path)
    with building as live, GraphBackend().open(held, artifact(tmp_path / "m.onnx")) as plain:
        built = live.build
        assert built.builder == "onnxruntime" and not live.simulates and built.log is not None
        assert built.artifact.sha256 == file_digest(built.artifact.path)
        assert {"threads", "onnxruntime", "optimization"} <= set(built.environment)
        nodes = [node.op_type for node in onnx.load(str(built.artifact.path)).graph.node]
        assert nodes != ["MatMul", "Add", "Relu"], "something was fused"
        np.testing.assert_allclose(live.run(X)["y"], plain.run(X)["y"], rtol=1e-5)
    with CpuBackend().open(held, built.artifact) as session:
        assert np.array_equal(session.run(X)["y"], live.run(X)["y"])


def test_the_level_can_be_lowered(tmp_path):
    _, building = opened(tmp_path, TOML + '[variant.fused.onnxruntime]\noptimization = "off"')
    with building as live:
        nodes = [node.op_type for node in onnx.load(str(live.build.artifact.path)).graph.node]
    assert nodes == ["MatMul", "Add", "Relu"]
    assert live.build.environment["optimization"] == "off"


def test_integers_come_from_the_calibration(tmp_path):
    held, building = opened(tmp_path, W8A8)
    with building as live, GraphBackend().open(held, artifact(tmp_path / "m.onnx")) as plain:
        model = onnx.load(str(live.build.artifact.path))
        assert "DequantizeLinear" in {node.op_type for node in model.graph.node}
        case = load_calibration(held, artifact(tmp_path / "m.onnx"))[0].inputs
        got, wanted = live.run(case)["y"], plain.run(case)["y"]
    assert 0 < np.linalg.norm(got - wanted) < 0.05 * np.linalg.norm(wanted)


def test_calibration_is_fed_as_the_graph_is(tmp_path):
    """An input that the application feeds as 0 to 255 has a scale of its normalised range, not of 255."""
    save(tmp_path / "m.onnx", [helper.make_node("Conv", ["x", "w"], ["y"])], [("x", FLOAT, [1, 3, 8, 8])],
         weights={"w": normal(0, 2, 3, 1, 1)})  # fmt: skip
    build = "import numpy as np\ndef cases(): return [{'x': np.full((1, 8, 8, 3), 255, np.uint8)}] * 2\n"
    image = '[input.x]\nlayout = "nhwc"\nmean = [0, 0, 0]\nstd = [255, 255, 255]\n'
    _, building = opened(tmp_path, W8A8 + image, build)
    with building as live:
        held = {
            t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(str(live.build.artifact.path)).graph.initializer
        }
    assert held["x_scale"] == pytest.approx(1 / 255, rel=0.02)


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        (W8A8 + '[variant.fused.onnxruntime]\nactivation_type = "Qint8"', r"unknown activation_type 'Qint8'.*'QInt8'"),
        (W8A8 + "[variant.fused.onnxruntime]\nper_chanel = true", "did you mean 'per_channel'"),
        (TOML + "[variant.fused.onnxruntime]\nper_channel = true", "unknown key 'per_channel'"),
        (TOML + 'precision = "fp16"', "does not build fp16"),
    ],
)
def test_settings_that_are_not_understood_are_refused(tmp_path, toml, message):
    _, building = opened(tmp_path, toml)
    with pytest.raises(UsageError, match=message), building:
        pass


def test_quantising_without_calibration_is_refused(tmp_path):
    held = candidate(tmp_path, W8A8)
    with pytest.raises(UsageError, match="w8a8 without calibration"):
        with OnnxruntimeBuilder().open(held, artifact(tmp_path / "m.onnx"), [], tmp_path):
            pass


def test_a_failing_quantiser_is_missing_evidence_with_its_log(tmp_path):
    toml = W8A8 + "[variant.fused.onnxruntime]\nextra_options = { TensorQuantOverrides = { h = 3 } }"
    _, building = opened(tmp_path, toml)
    with pytest.raises(Missing, match="onnxruntime failed") as caught, building:
        pass
    assert "Traceback" in open(caught.value.log).read()


def test_a_build_that_takes_too_long_is_ended(tmp_path):
    _, building = opened(tmp_path, "time_limit = 0.01\n" + TOML)
    with pytest.raises(Missing, match=r"did not return within 0\.01 s"), building:
        pass


@pytest.mark.parametrize(
    ("toml", "level"),
    [(TOML, "off"), (TOML + 'artifact = "m.onnx"', "all"), (W8A8, "all")],
    ids=["fused", "given", "int8"],
)
def test_a_fused_graph_is_not_fused_again(tmp_path, monkeypatch, toml, level):
    """MiniLM's cannot be loaded a second time with optimisation: two initialisers get one name."""
    levels, options = [], _ort.options
    monkeypatch.setattr(_ort, "options", lambda chosen, count: levels.append(chosen) or options(chosen, count))
    with CpuBackend().open(candidate(tmp_path, toml), artifact(linear(tmp_path / "m.onnx"))):
        assert levels == [level]


def test_what_is_left_is_in_the_work_folder(tmp_path):
    linear(tmp_path / "m.onnx")
    _, building = opened(tmp_path, W8A8)
    with building:
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"m.onnx", "candidate.toml", "build.py", "work"} | {
        path.name for path in tmp_path.glob("__pycache__")
    }
    assert not list((tmp_path / "work").rglob("tmp-*"))


def test_weights_in_a_file_of_their_own_are_taken_into_the_build(tmp_path):
    linear(tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    for toml in (TOML, W8A8):
        (tmp_path / "build.py").unlink(missing_ok=True)
        held, building = opened(tmp_path, toml)
        with building as live, GraphBackend().open(held, artifact(tmp_path / "m.onnx")) as plain:
            np.testing.assert_allclose(live.run(X)["y"], plain.run(X)["y"], atol=0.1)
            moved = tmp_path / "alone.onnx"
            moved.write_bytes(live.build.artifact.path.read_bytes())
            live.build.artifact.path.rename(tmp_path / "elsewhere.onnx")
        assert onnx.load(str(moved)).graph.initializer
        (tmp_path / "work").rename(tmp_path / f"work-{held.variant.precision}")
