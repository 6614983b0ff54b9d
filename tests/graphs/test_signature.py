from __future__ import annotations

import os
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from tests.small import FLOAT, STRING, linear, normal, save
from verify.core import UsageError
from verify.graphs.signature import signature


def test_names_dtypes_and_shapes_are_what_the_file_declares(tmp_path):
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in ("a", "b", "c", "d")]
    inputs = [
        ("a", TensorProto.FLOAT16, ["batch", 3, None]),
        ("b", STRING, []),
        ("c", TensorProto.BOOL, None),
        ("d", FLOAT, [0, 2]),
    ]
    held = signature(save(tmp_path / "m.onnx", nodes, inputs, [("a_out", FLOAT, None)]))
    assert [(p.name, p.dtype, p.shape) for p in held.inputs] == [
        ("a", "float16", ("batch", 3, "?")),
        ("b", "str", ()),
        ("c", "bool", None),
        ("d", "float32", ("?", 2)),
    ]
    assert str(held.inputs[0]) == "a float16 (batch, 3, ?)" and str(held.inputs[2]) == "c bool any shape"


def test_sequences_have_no_dtype(tmp_path):
    info = helper.make_tensor_sequence_value_info("s", FLOAT, None)
    graph = helper.make_graph([helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)], "g", [info],
                              [helper.make_tensor_value_info("y", FLOAT, None)])  # fmt: skip
    import onnx

    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(tmp_path / "m.onnx")
    )
    (port,) = signature(tmp_path / "m.onnx").inputs
    assert port.dtype == "" and "not a tensor" in str(port)


def test_files_of_weights_are_listed(tmp_path):
    linear(tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert signature(tmp_path / "m.onnx").external == (tmp_path / "w.bin",)


def test_a_file_that_changed_is_read_again(tmp_path):
    path = linear(tmp_path / "m.onnx")
    assert signature(path).inputs[0].name == "x"
    save(
        path,
        [helper.make_node("MatMul", ["longer", "w"], ["y"])],
        [("longer", FLOAT, [1, 4])],
        weights={"w": normal(0, 4, 3)},
    )
    os.utime(path, ns=(1, 1))
    assert signature(path).inputs[0].name == "longer"


@pytest.mark.parametrize("name, advice", [("build.py", '"build.py:function"'), ("m.txt", "name an .onnx file")])
def test_what_is_no_onnx_file_by_its_name_is_told_so(tmp_path, name, advice):
    (tmp_path / name).write_text("import torch\n")
    with pytest.raises(UsageError, match=advice):
        signature(tmp_path / name)


@pytest.mark.parametrize("location", ["../w.bin", "sub/../../w.bin", "{folder}/w.bin"])
def test_weights_outside_of_the_graphs_folder_are_refused(tmp_path, location, monkeypatch):
    import onnx

    path = tmp_path / "inner" / "m.onnx"
    path.parent.mkdir()
    linear(path, save_as_external_data=True, location="w.bin", size_threshold=0)
    (path.parent / "w.bin").rename(tmp_path / "w.bin")
    model = onnx.load(str(path), load_external_data=False)
    for tensor in model.graph.initializer:
        (entry,) = (entry for entry in tensor.external_data if entry.key == "location")
        entry.value = location.format(folder=tmp_path)
    path.write_bytes(model.SerializeToString())
    monkeypatch.chdir(path.parent)
    for named in (path, Path("m.onnx"), Path("../inner/m.onnx")):
        with pytest.raises(UsageError, match="its weights lie elsewhere.*beside it"):
            signature(named)


def test_weights_may_be_linked_from_elsewhere(tmp_path, monkeypatch):
    path = tmp_path / "inner" / "m.onnx"
    path.parent.mkdir()
    linear(path, save_as_external_data=True, location="w.bin", size_threshold=0)
    (path.parent / "w.bin").rename(tmp_path / "blob")
    (path.parent / "w.bin").symlink_to(tmp_path / "blob")
    assert signature(path).external == (path.parent / "w.bin",)
    monkeypatch.chdir(path.parent)
    for named in (Path("m.onnx"), Path("../inner/m.onnx")):
        assert len(signature(named).external) == 1
