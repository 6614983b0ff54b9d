from __future__ import annotations

from pathlib import Path

import pytest

from verify.candidate import load, names
from verify.core import InputSpec, UsageError

HEAD = """
model = "det"
target = "rk3588"
source = "build.py:source"
graph = "model.onnx"
cases = "build.py:cases"
"""
FULL = (
    HEAD
    + """
traits = ["stateful"]
depends = ["data/*.txt"]
batch_axis = 1
time_limit = 30
[input.x]
layout = "nhwc"
mean = [1, 2.5, 3]
color = "bgr"
shape = [1, 8, 8, 3]
[accuracy]
score = "build.py:score"
margin = 0.01
cases = "build.py:many"
batch = 10
alpha = 0.1
[budget]
departures = 1
[variant.cpu-fused]
target = "cpu"
[variant.int8]
precision = "w8a8"
calibration = "calib/*.npz"
rknn = { quantized_algorithm = "mmse" }
[variant."int8+fuse"]
precision = "w8a8"
graph = "fused.onnx"
artifact = "det.rknn"
[variant.mine]
precision = "fp16"
run = "runner.py:open"
"""
)


def write(folder: Path, text: str) -> Path:
    (folder / "candidate.toml").write_text(text)
    return folder / "candidate.toml"


def test_everything_that_may_be_declared_arrives(tmp_path):
    path = write(tmp_path, FULL)
    held = load(path, "int8")
    assert held.name == "det:int8@rk3588"
    assert (held.source, held.graph, held.cases) == ("build.py:source", "model.onnx", "build.py:cases")
    assert held.folder == tmp_path and held.traits == {"stateful"} and held.depends == ("data/*.txt",)
    assert held.batch_axis == 1 and held.time_limit == 30 and held.budgets == {"departures": 1}
    wanted = InputSpec("x", "nhwc", (1.0, 2.5, 3.0), (1.0, 1.0, 1.0), "bgr", (1, 8, 8, 3))
    assert held.inputs == {"x": wanted}
    assert held.accuracy is not None and held.accuracy.margin == 0.01 and held.accuracy.batch == 10
    assert held.variant.settings == {"rknn": {"quantized_algorithm": "mmse"}}


@pytest.mark.parametrize(
    ("variant", "builder"), [("cpu-fused", "onnxruntime"), ("int8", "rknn"), ("int8+fuse", "rknn"), ("mine", "")]
)
def test_the_target_chooses_the_builder_and_a_runner_needs_none(tmp_path, variant, builder):
    assert load(write(tmp_path, FULL), variant).variant.builder == builder


def test_variants_keep_their_order_and_the_folder_will_do(tmp_path):
    write(tmp_path, FULL)
    assert names(tmp_path) == ["cpu-fused", "int8", "int8+fuse", "mine"]


def test_one_variant_need_not_be_named_but_one_of_many_must(tmp_path):
    assert load(write(tmp_path, HEAD + '[variant.a]\nprecision = "fp16"')).variant.name == "a"
    with pytest.raises(UsageError, match="4 variants"):
        load(write(tmp_path, FULL))


V = '[variant.a]\nprecision = "fp16"\n'
BAD = {
    "a misspelt key": (HEAD.replace("graph", "grpah") + V, r"unknown key 'grpah'; did you mean 'graph'\?"),
    "a misspelt key of a variant": (HEAD + V + 'calibartion = "x"', r"\[variant\.a\]: .*did you mean 'calibration'"),
    "a misspelt key of an input": (HEAD + V + '[input.x]\nlayuot = "nchw"', r"\[input\.x\].*'layout'"),
    "a misspelt key of accuracy": (HEAD + V + "[accuracy]\nmargn = 1", r"\[accuracy\].*'margin'"),
    "a misspelt key of the toolkit": (HEAD + V + '[toolkit]\npyhton = "x"', r"\[toolkit\].*'python'"),
    "a misspelt table": (HEAD + V + "[varaint.b]", "'variant'"),
    "an unknown target": (HEAD + V + 'target = "rk3589"', r"unknown target 'rk3589'; did you mean 'rk3588'\?"),
    "an unknown precision": (HEAD + '[variant.a]\nprecision = "w8a9"', r"'w8a9' for rk3588; did you mean 'w8a8'\?"),
    "a precision of another target": (HEAD + '[variant.a]\nprecision = "w4a16"', "for rk3588"),
    "no precision": (HEAD + "[variant.a]", "has no precision; known for rk3588: fp16, w8a8, w16a16i_dfp"),
    "no target": (HEAD.replace('target = "rk3588"', "") + V, "has no target"),
    "no model": (HEAD.replace('model = "det"', "") + V, "has no model"),
    "no graph": (HEAD.replace('graph = "model.onnx"', "") + V, "has no graph"),
    "no source": (HEAD.replace('source = "build.py:source"', "") + V, "has no source"),
    "no cases": (HEAD.replace('cases = "build.py:cases"', "") + V, "has no cases"),
    "no variant": (HEAD, "has no variant"),
    "a model that is a path": (HEAD.replace('"det"', '"../det"') + V, "not a plain name"),
    "a variant that is a path": (HEAD + '[variant."a/b"]\nprecision = "fp16"', "not a plain name"),
    "a wrong type": (HEAD.replace('"det"', "3") + V, "model = 3 is not text"),
    "a variant that is no table": (HEAD + "[variant]\na = 1", "not a table"),
    "integers without calibration": (HEAD + '[variant.a]\nprecision = "w8a8"', "w8a8 without calibration"),
    "both run and artifact": (HEAD + V + 'run = "r.py:f"\nartifact = "a.rknn"', "both run and artifact"),
    "both run and builder": (HEAD + V + 'run = "r.py:f"\nbuilder = "rknn"', "both run and builder"),
    "another builder's settings": (HEAD + V + "[variant.a.onnxruntime]\nthreads = 1", "settings of onnxruntime"),
    "an unknown layout": (HEAD + V + '[input.x]\nlayout = "nchv"', r"did you mean 'nchw'\?"),
    "a std of zero": (HEAD + V + '[input.x]\nlayout = "nchw"\nstd = [0]', "not positive"),
    "means and stds of two lengths": (HEAD + V + '[input.x]\nlayout = "nchw"\nmean = [1]\nstd = [1, 2]', "1 means"),
    "a mean without a layout": (HEAD + V + "[input.x]\nmean = [1]", "no layout"),
    "an unknown score": (HEAD + V + '[accuracy]\nscore = "clasification"', r"did you mean 'classification'\?"),
    "a margin beyond 1": (HEAD + V + "[accuracy]\nmargin = 1.5", "out of range"),
    "a margin that nothing exceeds": (HEAD + V + "[accuracy]\nmargin = 1", "out of range"),
    "an alpha that decides by guessing": (HEAD + V + "[accuracy]\nalpha = 0.9", "out of range"),
    "a misspelt budget": (HEAD + V + "[budget]\ndepartuers = 0", r"'departuers'; did you mean 'regions.departures'\?"),
    "a budget in place of a margin": (HEAD + V + '[budget]\n"accuracy.loss" = 5', "write .accuracy. margin"),
    "a batch of none": (HEAD + V + "[accuracy]\nbatch = 0", "out of range"),
    "an interpreter that is not there": (HEAD + V + '[toolkit]\npython = "./nothing/python"', "no interpreter"),
    "a negative batch axis": ("batch_axis = -2\n" + HEAD + V, "batch_axis"),
    "a time limit of zero": ("time_limit = 0\n" + HEAD + V, "time_limit"),
}


@pytest.mark.parametrize("text, message", BAD.values(), ids=BAD)
def test_what_is_not_understood_is_refused_in_one_line(tmp_path, text, message):
    with pytest.raises(UsageError, match=message) as caught:
        load(write(tmp_path, text), "a")
    assert "candidate.toml" in str(caught.value) and "\n" not in str(caught.value) and caught.value.do


def test_an_unknown_variant_is_named_with_the_nearest(tmp_path):
    with pytest.raises(UsageError, match=r"unknown variant 'int9'; did you mean 'int8'\?"):
        load(write(tmp_path, FULL), "int9")


def test_a_plugged_in_builder_has_a_table_of_its_own(tmp_path):
    held = load(write(tmp_path, HEAD + V + 'builder = "mine"\n[variant.a.mine]\nlevel = 3'))
    assert held.variant.builder == "mine" and held.variant.settings == {"mine": {"level": 3}}


def test_layers_to_keep_in_float_are_a_list_of_an_integer_build(tmp_path):
    toml = HEAD + '[variant.v]\ncalibration = "build.py:cases"\n'
    held = load(write(tmp_path, toml + 'precision = "w8a8"\nkeep_float = ["/a #1", "b", "b"]\n'))
    assert held.variant.keep_float == ("/a #1", "b")
    for wrong, what in (
        ('precision = "fp16"\nkeep_float = ["a"]\n', "keep_float in a fp16 build by rknn"),
        ('precision = "w8a8"\nkeep_float = "a"\n', "is not a list"),
        ('precision = "w8a8"\nkeep_float = ["a"]\nrun = "build.py:open"\n', "a runner of your own"),
        ('target = "cpu"\nprecision = "w8a8"\nkeep_float = ["a"]\n', "by onnxruntime"),
    ):
        with pytest.raises(UsageError, match=what):
            load(write(tmp_path, toml + wrong))
