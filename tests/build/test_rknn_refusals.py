"""What the real toolkit does rarely, done by a stand-in: return codes, None, files that are not written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rknn_models as models

from verify.build.rknn import RknnBuilder
from verify.core import Artifact, Candidate, Case, Missing, NotComparable, UsageError, Variant

#: Does what its `custom_string` says: "name: expression" makes the call `name` evaluate that expression.
TOOLKIT = """
import numpy as np, os, sys, time
class RKNN:
    def __init__(self, verbose): self.told = {}
    def _do(self, name, otherwise=0):
        print("E RKNN: [01:02:03.004] said by", name)
        return eval(self.told[name]) if name in self.told else otherwise
    def config(self, target_platform=None, float_dtype="", quantized_dtype="", custom_string=""):
        self.told = dict([custom_string.split(": ", 1)]) if custom_string else {}
        return self._do("config")
    def load_onnx(self, model): return self._do("load_onnx")
    def build(self, do_quantization): return self._do("build")
    def hybrid_quantization_step1(self, dataset):
        for ending in ("model", "data", "quantization.cfg"):
            open("x." + ending, "w").write("quantize_parameters: {}")
        return self._do("hybrid_quantization_step1")
    def hybrid_quantization_step2(self, model_input, data_input, model_quantization_cfg):
        return self._do("hybrid_quantization_step2")
    def export_rknn(self, path):
        if "export_rknn" not in self.told: open(path, "w").write("exported")
        return self._do("export_rknn")
    def init_runtime(self): return self._do("init_runtime")
    def inference(self, inputs, data_format): return self._do("inference", [np.zeros((1, 4, 3, 3), np.float32)])
    def accuracy_analysis(self, inputs, output_dir): return self._do("accuracy_analysis")
    def release(self): pass
"""

IMAGE = Case("image", {"x": np.zeros((1, 3, 3, 3), np.float32)})


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Builds, runs and dumps with a toolkit that was told what to do."""
    (tmp_path / "path" / "rknn" / "api").mkdir(parents=True)
    (tmp_path / "path" / "rknn" / "__init__.py").touch()
    (tmp_path / "path" / "rknn" / "api" / "__init__.py").write_text(TOOLKIT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    graph = Artifact("graph", models.conv(tmp_path / "conv.onnx"), "")

    def run(told: str = "", precision: str = "w8a8") -> Any:
        settings = {"rknn": {"custom_string": told} if told else {}}
        variant = Variant("v", "rk3588", precision, "rknn", settings=settings)
        candidate = Candidate("model", variant, tmp_path, "", "", "", time_limit=20)
        with RknnBuilder().open(candidate, graph, [IMAGE], tmp_path) as live:
            out = live.run(IMAGE.inputs)
            if "accuracy_analysis" in told:
                live.layers(IMAGE, tmp_path / "layers")
            return out

    return run


def test_the_stand_in_works_when_told_nothing(attempt: Any) -> None:
    assert attempt()["y"].shape == attempt(precision="fp16")["y"].shape == (1, 4, 3, 3)


@pytest.mark.parametrize(
    "step",
    ["load_onnx", "hybrid_quantization_step1", "hybrid_quantization_step2", "export_rknn", "init_runtime"],
)
def test_every_return_code_is_looked_at(attempt: Any, step: str) -> None:
    with pytest.raises(Missing) as caught:
        attempt(f"{step}: -1")
    assert caught.value.what == f"{step} returned -1; the last error in its log: said by {step}"
    assert "said by" in Path(caught.value.log).read_text()


def test_a_newer_opset_says_which_one_to_export(attempt: Any) -> None:
    said = "Unsupport onnx opset 20, need <= 19!"  # as the toolkit spells it
    with pytest.raises(Missing, match="opset 20") as caught:
        attempt(f"load_onnx: (_ for _ in ()).throw(ValueError('{said}'))")
    assert "opset_version=19 or lower" in caught.value.do


def test_the_return_code_of_a_float_build_too(attempt: Any) -> None:
    with pytest.raises(Missing, match="build returned -1"):
        attempt("build: -1", "fp16")


def test_settings_that_config_refuses_are_usage(attempt: Any) -> None:
    with pytest.raises(UsageError, match="config returned -1"):
        attempt("config: -1")


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("inference: None", "inference returned None"),
        ("inference: sys.exit(7)", r"ended without an answer \(exit code 7\) in inference"),
        ("inference: os.abort()", r"died of signal 6 \(SIGABRT\) in inference"),
        ("export_rknn: 0", "export_rknn returned 0 but wrote no file"),
        ("hybrid_quantization_step1: os.remove('x.data') or 0", r"step1 left 0 files \*.data"),
        ("hybrid_quantization_step1: open('y.model', 'w').close() or 0", r"step1 left 2 files \*.model"),
        ("accuracy_analysis: -1", "accuracy_analysis returned -1"),
        ("accuracy_analysis: 0", "accuracy_analysis left no map_name_to_file.txt"),
        ("accuracy_analysis: None", "accuracy_analysis left no map_name_to_file.txt"),
    ],
)
def test_a_missing_answer_is_missing_evidence(attempt: Any, told: str, said: str) -> None:
    with pytest.raises(Missing, match=said) as caught:
        attempt(told)
    assert caught.value.log and caught.value.do


def test_what_was_printed_in_c_survives_a_crash(attempt: Any) -> None:
    with pytest.raises(Missing, match="signal 6") as caught:
        attempt("inference: __import__('ctypes').CDLL(None).puts(b'in the buffer') and os.abort()")
    assert "in the buffer" in Path(caught.value.log).read_text()


def test_an_output_too_many_is_not_comparable(attempt: Any) -> None:
    with pytest.raises(NotComparable, match="2 of 1 outputs"):
        attempt("inference: [np.zeros(1)] * 2")


def test_an_exception_is_told_by_its_own_last_line_not_by_the_source_lines_above(attempt: Any) -> None:
    with pytest.raises(Missing) as caught:
        attempt("inference: (_ for _ in ()).throw(ValueError('Traceback:\\n  File \"x.py\", line 1\\nKeyError: 5\\n'))")
    assert caught.value.what == "inference raised KeyError: 5"


@pytest.mark.parametrize("constructor", ["import gone", "raise ImportError('pkg_resources')"])
def test_a_toolkit_that_cannot_be_constructed_says_what_to_install(
    attempt: Any, tmp_path: Path, constructor: str
) -> None:
    (tmp_path / "path/rknn/api/__init__.py").write_text(
        f"class RKNN:\n    def __init__(self, verbose): {constructor}\n"
    )
    with pytest.raises(Missing, match=r"RKNN\(\) cannot be constructed") as caught:
        attempt()
    assert "setuptools below 82" in caught.value.do


def test_a_toolkit_of_another_kind_says_what_it_lacks(attempt: Any, tmp_path: Path) -> None:
    (tmp_path / "path/rknn/api/__init__.py").write_text(TOOLKIT.replace("def hybrid_quantization_step1", "def gone"))
    with pytest.raises(Missing, match="has no attribute 'hybrid_quantization_step1'"):
        attempt()
