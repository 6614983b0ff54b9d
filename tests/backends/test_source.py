from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.small import BUILD, FLOAT, TOML, artifact, candidate, linear, normal, save
from verify.backends.source import SourceBackend
from verify.core import NotComparable, UsageError
from verify.usercode import resolve

torch = pytest.importorskip("torch")

HEAD = "import numpy as np\nimport torch\nfrom torch import nn\n"
X = {"x": normal(9, 1, 4)}


def run(folder, body, feeds=X, dtype="float32"):
    held = candidate(folder, build=HEAD + body)
    with SourceBackend(dtype=dtype).open(held, artifact(folder / "m.onnx")) as session:
        return session.run(feeds)


def two_in_two_out(folder):
    nodes = [helper.make_node("Sub", ["a", "b"], ["d"]), helper.make_node("Add", ["a", "b"], ["s"])]
    inputs = [("a", FLOAT, [2]), ("b", FLOAT, [2])]
    return save(folder / "m.onnx", nodes, inputs, [("d", FLOAT, [2]), ("s", FLOAT, [2])])


AB = {"b": np.float32([1, 2]), "a": np.float32([5, 7])}


@pytest.mark.parametrize(
    "returned",
    [
        "(a - b, a + b)",
        "[a - b, a + b]",
        "{'d': a - b, 's': a + b}",
        "{'s': a + b, 'd': a - b}",
        "(a - b, (a + b, None))",
    ],
)
@pytest.mark.parametrize("names", ["b, a", "self_, other"])
def test_inputs_go_by_name_else_by_position_and_outputs_get_the_graphs_names(tmp_path, names, returned):
    two_in_two_out(tmp_path)
    body = returned if names == "b, a" else returned.replace("a", "self_").replace("b", "other").replace("None", "None")
    module = f"class M(nn.Module):\n    def forward(self, {names}): return {body}\ndef source(): return M().eval()"
    out = run(tmp_path, module, AB)
    assert out["d"].tolist() == [4, 5] and out["s"].tolist() == [6, 9]
    assert all(type(value) is np.ndarray and value.dtype == np.float32 for value in out.values())


@pytest.mark.parametrize("returned", ["a", "(a, a, a)", "{'d': a}", "None"])
@pytest.mark.parametrize(
    "kind",
    [
        "class M(nn.Module):\n    def forward(self, a, b): return {}\ndef source(): return M().eval()",
        "def f(feeds):\n    a = feeds['a']\n    return {}\ndef source(): return f",
    ],
)
def test_another_number_of_outputs_is_not_comparable(tmp_path, kind, returned):
    two_in_two_out(tmp_path)
    with pytest.raises(NotComparable, match="the graph has 2; return d, s"):
        run(tmp_path, kind.format(returned), AB)


def test_a_module_in_training_mode_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"training mode \(1 modules, first 1\); return model\.eval"):
        run(
            tmp_path,
            "def source():\n    m = nn.Sequential(nn.ReLU(), nn.Dropout()).eval()\n    m[1].train()\n    return m",
        )


def test_nothing_that_comes_back_is_shared_with_the_module(tmp_path):
    module = (
        "class M(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('state', torch.zeros(1, 4))\n"
        "    def forward(self, x):\n        self.state += x\n        x.mul_(0)\n        return self.state\n"
        "def source(): return M().eval()"
    )
    held = candidate(tmp_path, build=HEAD + module)
    feeds = {"x": np.ones((1, 4), np.float32)}
    feeds["x"].setflags(write=False)
    with SourceBackend().open(held, artifact(tmp_path / "m.onnx")) as session:
        first, second = session.run(feeds), session.run(feeds)
    assert first["y"].tolist() == [[1] * 4] and second["y"].tolist() == [[2] * 4]
    assert feeds["x"].tolist() == [[1] * 4]


def test_half_precision_weights_run_in_float32(tmp_path):
    out = run(tmp_path, "def source(): return nn.Linear(4, 3).bfloat16().eval()")
    assert out["y"].dtype == np.float32


def test_float64_is_float64_throughout(tmp_path):
    module = (
        "class M(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(torch.full((4, 3), 0.1))\n"
        "    def forward(self, x): return x @ self.w + torch.full((3,), 1 / 3)\n"
        "MODULE = M().eval()\ndef source(): return MODULE\ndef kept(): return MODULE.w.dtype"
    )
    out = run(tmp_path, module, dtype="float64")
    wanted = X["x"].astype(np.float64) @ np.full((4, 3), np.float64(np.float32(0.1))) + 1 / 3
    assert out["y"].dtype == np.float64
    np.testing.assert_allclose(out["y"], wanted, rtol=1e-14)
    kept = resolve("build.py:kept", tmp_path)
    assert kept() == torch.float32, "the user's own module is not changed"
    assert torch.get_default_dtype() == torch.float32


def test_bfloat16_outputs_come_back_as_float32(tmp_path):
    body = "class M(nn.Module):\n    def forward(self, x): return x.bfloat16()\ndef source(): return M().eval()"
    assert run(tmp_path, body)["y"].dtype == np.float32


def test_what_forward_raises_is_one_line_of_the_users_file(tmp_path):
    body = "class M(nn.Module):\n    def forward(self, x):\n        return x @ x\ndef source(): return M().eval()"
    with pytest.raises(UsageError, match=r"build\.py:6: RuntimeError: mat1 and mat2"):
        run(tmp_path, body)
    with pytest.raises(UsageError, match=r"build\.py:5: KeyError"):
        run(tmp_path, "def f(feeds):\n    return feeds['z']\ndef source(): return f")


def test_no_gradient_is_kept(tmp_path):
    forward = "    def forward(self, x):\n        assert torch.is_inference_mode_enabled()\n        return x\n"
    run(tmp_path, f"class M(nn.Module):\n{forward}def source(): return M().eval()")


def test_a_callable_gets_arrays_of_its_own(tmp_path):
    body = "def f(feeds):\n    feeds['x'] *= 2\n    return {'y': feeds['x']}\ndef source(): return f"
    before = X["x"].copy()
    assert np.array_equal(run(tmp_path, body)["y"], before * 2) and np.array_equal(X["x"], before)


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(UsageError, match="returned a int"):
        run(tmp_path, "def source(): return 3")


def onnx_source(folder, other):
    held = candidate(folder, TOML.replace("build.py:source", other), BUILD)
    with SourceBackend().open(held, artifact(folder / "m.onnx")) as session:
        return session.run(AB)


def test_an_onnx_source_keeps_its_own_order_of_outputs(tmp_path):
    nodes = [helper.make_node("Sub", ["a", "b"], ["d"]), helper.make_node("Add", ["a", "b"], ["s"])]
    inputs = [("b", FLOAT, [2]), ("a", FLOAT, [2])]
    two_in_two_out(tmp_path)
    save(tmp_path / "s.onnx", nodes, inputs, [("s", FLOAT, [2]), ("d", FLOAT, [2])])
    out = onnx_source(tmp_path, "s.onnx")
    assert list(out) == ["s", "d"] and out["d"].tolist() == [4, 5]


def test_an_onnx_source_with_other_names_goes_by_position(tmp_path):
    two_in_two_out(tmp_path)
    nodes = [helper.make_node("Sub", ["p", "q"], ["u"]), helper.make_node("Add", ["p", "q"], ["v"])]
    save(tmp_path / "s.onnx", nodes, [("p", FLOAT, [2]), ("q", FLOAT, [2])], [("u", FLOAT, [2]), ("v", FLOAT, [2])])
    out = onnx_source(tmp_path, "s.onnx")
    assert out["d"].tolist() == [4, 5] and out["s"].tolist() == [6, 9]


def test_an_onnx_source_with_fewer_inputs_is_refused(tmp_path):
    two_in_two_out(tmp_path)
    linear(tmp_path / "s.onnx")
    with pytest.raises(UsageError, match="source and graph do not match: a, b against x"):
        onnx_source(tmp_path, "s.onnx")
