"""The builder against the vendor's real toolkit: what it computes, and every way in which it fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import rknn_models as models

import verify
from verify.build.rknn import RknnBuilder, RknnLive
from verify.core import Artifact, Candidate, Case, InputSpec, Missing, NotComparable, UsageError, Variant, VerifyError
from verify.store import file_digest


def candidate(folder: Path, precision: str = "fp16", limit: float = 120.0, **options: Any) -> Candidate:
    settings = {"rknn": options.pop("settings", {})}
    variant = Variant("v/1", options.pop("target", "rk3588"), precision, "rknn", settings=settings)
    return Candidate("model", variant, folder, "", "", "", time_limit=limit, **options)


def artifact(path: Path) -> Artifact:
    return Artifact("graph", path, file_digest(path))


def reference(path: Path, feeds: Any) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(str(path))
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(feeds)), strict=True))


def error(wanted: Any, got: Any) -> float:
    return float(np.linalg.norm((got - wanted).ravel()) / np.linalg.norm(wanted.ravel()))


def images(count: int) -> list[Case]:
    return [Case(f"case{i}", {"x": models.normal(100 + i, 1, 3, 3, 3)}) for i in range(count)]


def running(mark: str) -> bool:
    lines = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            lines.append(Path(f"/proc/{name}/cmdline").read_text(errors="replace"))
        except OSError:
            continue
    return any(mark in line for line in lines)


def refusal(work: Path, path: Path, kind: type[VerifyError] = Missing, calibration: Any = (), **options: Any) -> Any:
    """The error with which opening ends; nothing may stay behind but the log."""
    with (
        pytest.raises(kind) as caught,
        RknnBuilder().open(candidate(work, **options), artifact(path), calibration, work),
    ):
        pass
    assert not list(work.glob("rknn-*/tmp-*"))
    assert not running(str(work))
    return caught.value


@pytest.fixture(scope="module")
def conv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.conv(tmp_path_factory.mktemp("conv") / "my model.onnx")  # a space, as folders have


@pytest.fixture(scope="module")
def int8(conv: Path) -> Iterator[tuple[RknnLive, Path]]:
    work = conv.parent / "work"
    work.mkdir()
    with RknnBuilder().open(candidate(work, "w8a8"), artifact(conv), images(4), work) as live:
        yield live, work
    assert not list(work.glob("rknn-*/tmp-*"))


def test_fp16_build_runs_dumps_and_exports(conv: Path, tmp_path: Path) -> None:
    with RknnBuilder().open(candidate(tmp_path), artifact(conv), [], tmp_path) as live:
        build = live.build
        assert build.artifact.path.stat().st_size > 1000
        assert build.artifact.sha256 == file_digest(build.artifact.path)
        assert [(row.op, row.dtype, row.placed, row.name) for row in build.table] == [
            ("InputOperator", "FLOAT16", "CPU", "InputOperator:x"),
            ("ConvRelu", "FLOAT16", "NPU", "Conv:/net/conv.0"),
            ("Conv", "FLOAT16", "NPU", "Conv:last"),
            ("OutputOperator", "FLOAT16", "CPU", "OutputOperator:y"),
        ]
        assert build.scales == {} and build.seconds > 0 and build.environment["librknnc"]
        for case in images(2):
            got = live.run(case.inputs)
            assert list(got) == ["y"]
            # fp16 rounds at 2^-11; the same run with the layout taken for NHWC is off by more than 1
            assert error(reference(conv, case.inputs)["y"], got["y"]) < 2e-3
    assert {p.name for p in tmp_path.glob("rknn-*/*")} == {build.artifact.path.name, "toolkit.log"}
    with pytest.raises(Missing, match="it was closed"):
        live.run(images(1)[0].inputs)


def test_integer_builds_state_the_scales_of_what_they_were_calibrated_with(conv: Path, int8: Any) -> None:
    live, _ = int8
    assert error(reference(conv, images(1)[0].inputs)["y"], live.run(images(1)[0].inputs)["y"]) < 0.05
    held = live.build.scales["r"]
    peak = _inner(conv, "r", images(4))  # of every calibration case, in the layout that the graph states
    assert held["ori_max"] == pytest.approx(peak, rel=1e-5)
    assert held["dtype"] == "int8" and held["zero_point"] == -128 and held["min"] == 0.0
    assert held["scale"] == pytest.approx(held["max"] / 255)
    assert "y" not in live.build.scales and "y_int8" in live.build.scales  # y itself stays float


def _inner(path: Path, tensor: str, cases: list[Case]) -> float:
    import onnx

    model = onnx.load(path)
    model.graph.output.append(onnx.helper.make_tensor_value_info(tensor, models.FLOAT, None))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return max(float(session.run([tensor], dict(case.inputs))[0].max()) for case in cases)


def test_layers_are_dumped_by_name_and_the_text_is_gone(conv: Path, int8: Any, tmp_path: Path) -> None:
    live, _ = int8
    case = images(6)[5]
    before = live.run(case.inputs)["y"]
    dump = live.layers(case, tmp_path / "into")
    assert set(dump.golden) == set(dump.order) >= {"x", "/net/c.0", "r", "y"}
    assert np.array_equal(dump.golden["x"], case.inputs["x"])
    assert error(reference(conv, case.inputs)["y"], dump.golden["y"]) < 1e-5
    assert np.array_equal(dump.simulated["y"], before)
    assert not list((tmp_path / "into").glob("*/*.txt"))
    cosine, _, alone, distance = dump.vendor["y"]
    assert 0.99 < cosine <= 1 and 0.99 < alone <= 1 and distance > 0
    assert "/net/c.0" not in dump.vendor  # fused in this build: the toolkit prints no numbers
    again = live.layers(images(1)[0], tmp_path / "again")
    assert not np.array_equal(again.simulated["y"], before)
    assert np.array_equal(live.run(case.inputs)["y"], before)


def test_a_run_is_held_against_the_graph_before_it_starts(int8: Any) -> None:
    live, _ = int8
    x = images(1)[0].inputs["x"]
    wanted = live.run({"x": x})["y"]
    assert np.array_equal(live.run({"x": x.astype(np.float64)})["y"], wanted)  # the toolkit would answer None
    with pytest.raises(UsageError, match=r"\['extra', 'x'\] were fed, the graph has \['x'\]"):
        live.run({"x": x, "extra": x})  # the toolkit would ignore it
    with pytest.raises(UsageError, match=r"shape \(3, 3, 3\), the graph states \(1, 3, 3, 3\)"):
        live.run({"x": x[0]})
    assert np.array_equal(live.run({"x": x})["y"], wanted)


def test_integer_inputs_and_outputs_and_a_zero_dimensional_one(tmp_path: Path) -> None:
    path = models.tokens(tmp_path / "tokens.onnx")
    feeds = {"mask": np.array([[1, 1, 1, 1, 1, 0, 0, 0]], np.float32), "ids": np.arange(8)[None] * 6}
    wanted = reference(path, feeds)
    with RknnBuilder().open(candidate(tmp_path), artifact(path), [], tmp_path) as live:
        got = live.run(feeds)
        dump = live.layers(Case("case", feeds), tmp_path / "layers")
    assert list(got) == ["r", "mean", "best"]
    assert {name: (v.shape, v.dtype) for name, v in got.items()} == {n: (v.shape, v.dtype) for n, v in wanted.items()}
    assert error(wanted["r"], got["r"]) < 2e-3 and abs(wanted["mean"] - got["mean"]) < 1e-3
    assert (wanted["best"] == got["best"])[0, :5].all()  # behind the mask every value is 0, and any index right
    assert np.array_equal(dump.golden["ids"].ravel(), feeds["ids"].ravel())
    assert np.array_equal(dump.golden["mask"].ravel(), feeds["mask"].ravel())


def test_open_axes_take_the_declared_shape(tmp_path: Path) -> None:
    path = models.conv(tmp_path / "open.onnx", (1, 3, "height", "width"))
    assert "state [input.x] shape" in str(refusal(tmp_path, path, UsageError))
    feeds = {"x": models.normal(0, 1, 3, 6, 10)}
    declared = candidate(tmp_path, inputs={"x": InputSpec("x", shape=(1, 3, 6, 10))})
    with RknnBuilder().open(declared, artifact(path), [], tmp_path) as live:
        assert error(reference(path, feeds)["y"], live.run(feeds)["y"]) < 2e-3


def test_a_dropped_output_is_not_comparable(tmp_path: Path) -> None:
    path = models.dropped(tmp_path / "dropped.onnx")
    with RknnBuilder().open(candidate(tmp_path), artifact(path), [], tmp_path) as live:
        with pytest.raises(NotComparable, match=r"1 of 2 outputs came back \(y, n\)"):
            live.run({"x": models.normal(0, 1, 8, 32)})


def test_a_crash_names_the_signal_and_keeps_the_log(tmp_path: Path) -> None:
    held = refusal(tmp_path, models.cubic(tmp_path / "cubic.onnx"))
    assert held.what.startswith("the toolkit died of signal 11 (SIGSEGV) in build")
    assert held.where == "model:v/1@rk3588" and held.do
    assert "fuse_ops" in Path(held.log).read_text()


def test_an_endless_build_ends_at_the_time_limit(tmp_path: Path) -> None:
    held = refusal(tmp_path, models.endless(tmp_path / "endless.onnx"), limit=8)
    assert held.what.startswith("the toolkit did not return within 8 s in build")
    assert "time_limit" in held.do and Path(held.log).exists()


def test_an_exception_is_told_by_its_last_line(conv: Path, tmp_path: Path) -> None:
    bad = [Case("bad", {"x": np.full((1, 3, 3, 3), np.nan, np.float32)})]
    held = refusal(tmp_path, conv, calibration=bad, precision="w8a8")
    assert held.what == "hybrid_quantization_step1 raised ValueError: cannot convert float NaN to integer"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"settings": {"quantised_algorithm": "mmse"}}, "no setting 'quantised_algorithm'; known: quantized_algorithm"),
        ({"settings": {"quantized_algorithm": "best"}}, "Invalid quantized_algorithm 'best'"),
        ({"settings": {"target_platform": "rk3576"}}, "target_platform = 'rk3576', but the variant's target"),
        ({"target": "rk1"}, "Invalid target_platform 'rk1'"),
        ({"precision": "w8a8"}, "precision w8a8 needs calibration cases"),
        ({"python": "nothing/python"}, "not an executable file"),
    ],
)
def test_usage_is_refused_in_one_line(conv: Path, tmp_path: Path, options: Any, said: str) -> None:
    assert said in str(refusal(tmp_path, conv, UsageError, **options))


def test_settings_reach_the_toolkit(conv: Path, tmp_path: Path) -> None:
    feeds = {"x": np.arange(27, dtype=np.float32).reshape(1, 3, 3, 3)}
    settings = {"mean_values": [[1.0, 2.0, 3.0]], "std_values": [[4.0, 5.0, 6.0]]}
    with RknnBuilder().open(candidate(tmp_path, settings=settings), artifact(conv), [], tmp_path) as live:
        got = live.run(feeds)["y"]
    mean, std = (np.reshape(settings[key], (1, 3, 1, 1)).astype(np.float32) for key in ("mean_values", "std_values"))
    assert error(reference(conv, {"x": (feeds["x"] - mean) / std})["y"], got) < 5e-3


def test_garbage_is_unreadable_input(conv: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.onnx").write_bytes(conv.read_bytes()[:700])
    assert "not a readable ONNX file" in str(refusal(tmp_path, tmp_path / "cut.onnx", UsageError))


def test_another_interpreter_without_the_toolkit_says_what_to_install(conv: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    options = {"python": "bare/bin/python"}
    held = refusal(tmp_path, conv, **options)
    assert held.what == "rknn-toolkit2 cannot be imported: No module named 'rknn'"
    assert "install rknn-toolkit2" in held.do and "[toolkit] python" in held.do
    assert set(RknnBuilder().environment(candidate(tmp_path, **options))) == {"python"}


def test_another_interpreter_that_has_the_toolkit(conv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its import path is its own: the worker must work without npu-verify, and with nothing of this process's path."""
    (tmp_path / "poison" / "numpy").mkdir(parents=True)
    (tmp_path / "poison" / "numpy" / "__init__.py").write_text("raise RuntimeError('of another interpreter')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "poison"))
    other = candidate(tmp_path, python=sys.executable)
    feeds = images(1)[0].inputs
    with RknnBuilder().open(other, artifact(conv), [], tmp_path) as live:
        assert error(reference(conv, feeds)["y"], live.run(feeds)["y"]) < 2e-3
    here = RknnBuilder().environment(candidate(tmp_path))
    assert RknnBuilder().environment(other) == here
    assert here["rknn-toolkit2"][0].isdigit() and here["numpy"] == np.__version__


GATE = """
import sys
from pathlib import Path
from verify.build.rknn import RknnBuilder
from verify.core import Artifact, Candidate, Variant
from verify.process import sweeping
work, graph = Path(sys.argv[1]), Path(sys.argv[2])
candidate = Candidate("model", Variant("fp16", "rk3588", "fp16", "rknn"), work, "", "", "")
with sweeping(work):
    with RknnBuilder().open(candidate, Artifact("graph", graph, ""), [], work):
        pass
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_build_leaves_no_process_and_no_temporary_file(tmp_path: Path, number: signal.Signals) -> None:
    graph, work = models.endless(tmp_path / "endless.onnx"), tmp_path / "work"
    work.mkdir()
    path = str(Path(verify.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-c", GATE, str(work), str(graph)],
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    _until(lambda: any("fuse_ops" in log.read_text() for log in work.glob("rknn-*/toolkit.log")), 60)
    os.killpg(process.pid, number)
    assert process.wait(20) != 0
    _until(lambda: not running(f"guard\0{process.pid}\0"), 10)
    if number is signal.SIGKILL:
        _until(lambda: not work.exists(), 10)
    else:
        assert not list(work.glob("rknn-*/tmp-*"))


def _until(condition: Any, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
