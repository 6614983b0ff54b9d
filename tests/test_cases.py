from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.small import BUILD, FLOAT, INT64, STRING, TOML, artifact, candidate, linear, normal, save
from verify.cases import (
    digest_cases,
    digest_tensors,
    export_graph,
    load_calibration,
    load_cases,
    same_file,
    score_cases,
)
from verify.core import Case, UsageError


def loaded(folder, cases, toml=TOML, build=BUILD):
    held = candidate(folder, toml.replace('"build.py:cases"', f'"{cases}"'), build)
    return load_cases(held, artifact(folder / "m.onnx"))


def test_a_function_gives_cases_in_its_order(tmp_path):
    found = loaded(tmp_path, "build.py:cases")
    assert [case.name for case in found] == ["c0", "c1", "c2"]
    assert found[0].inputs["x"].shape == (1, 4)


def test_a_function_may_give_plain_dicts_and_torch_like_values(tmp_path):
    build = "import numpy as np\ndef cases(): return [{'x': np.ones((1, 4), np.float32)}] * 2"
    assert [case.name for case in loaded(tmp_path, "build.py:cases", build=build)] == ["case0", "case1"]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("None", "returned a NoneType"),
        ("{'x': 1}", "returned a dict"),
        ("[3]", "gave a int"),
        ("[]", "no cases there"),
        ("[Case('a', {'x': X}), Case('a', {'x': X})]", "two cases are named 'a'"),
        ("[Case('', {'x': X})]", "name ''"),
        ("[Case('a', {'z': X})]", r"no input 'z'"),
        ("[Case('a', {'X': X})]", r"no input 'X'; did you mean 'x'\?"),
        ("[Case('a', {})]", r"input 'x' is missing; the graph wants x float32 \(1, 4\)"),
        ("[Case('a', {'x': X[0]})]", r"shape \(4,\); the graph wants \(1, 4\)"),
        ("[Case('a', {'x': X.T})]", r"shape \(4, 1\)"),
        ("[Case('a', {'x': X.astype('f8')})]", "'x' is float64, the graph wants float32"),
        ("[Case('a', {'x': X.astype('i4')})]", "'x' is int32, the graph wants float32"),
        ("[Case('a', {'x': X.astype('u1')})]", "'x' is uint8, the graph wants float32"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, returned, message):
    head = "import numpy as np\nfrom verify.core import Case\nX = np.ones((1, 4), np.float32)\n"
    build = f"{head}def cases(): return {returned}"
    with pytest.raises(UsageError, match=message) as caught:
        loaded(tmp_path, "build.py:cases", build=build)
    assert "build.py:cases" in str(caught.value) and "\n" not in str(caught.value)


def test_symbolic_axes_are_free_and_declared_shapes_are_not(tmp_path):
    linear(tmp_path / "m.onnx", batch="n")
    build = "import numpy as np\ndef cases(): return [{'x': np.ones((n, 4), np.float32)} for n in (1, 3)]"
    assert [case.inputs["x"].shape[0] for case in loaded(tmp_path, "build.py:cases", build=build)] == [1, 3]
    with pytest.raises(
        UsageError, match=r"case1: input 'x' has the shape \(3, 4\); candidate\.toml fixes it to \(1, 4\)"
    ):
        loaded(tmp_path, "build.py:cases", TOML + "[input.x]\nshape = [1, 4]", build)


def test_a_declared_input_that_the_graph_has_not_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"\[input\]: the graph has no input 'y'"):
        loaded(tmp_path, "build.py:cases", TOML + "[input.y]\nshape = [1, 4]")


IMAGE = TOML + '[input.x]\nlayout = "nhwc"\nmean = [0, 0, 0]\nstd = [255, 255, 255]\n'


def image_model(folder, axes=(1, 3, 8, 8)):
    return save(folder / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], [("x", FLOAT, list(axes))])


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("np.zeros((1, 8, 8, 3), np.uint8)", ""),
        ("np.zeros((1, 8, 8, 3), np.float32)", ""),
        ("np.zeros((1, 3, 8, 8), np.uint8)", r"wants \(1, 8, 8, 3\)"),
        ("np.zeros((8, 8, 3), np.uint8)", "3 axes"),
        ("np.zeros((1, 8, 8, 3), np.int8)", "int8"),
    ],
)
def test_an_image_is_fed_as_declared(tmp_path, made, message):
    image_model(tmp_path)
    build = f"import numpy as np\ndef cases(): return [{{'x': {made}}}]"
    if not message:
        assert len(loaded(tmp_path, "build.py:cases", IMAGE, build)) == 1
        return
    with pytest.raises(UsageError, match=message):
        loaded(tmp_path, "build.py:cases", IMAGE, build)


def test_as_many_means_as_channels(tmp_path):
    image_model(tmp_path, (1, "c", 8, 8))
    build = "import numpy as np\ndef cases(): return [{'x': np.zeros((1, 8, 8, 4), np.float32)}]"
    with pytest.raises(UsageError, match=r"4 channels but 3 means; write 4 of each in \[input\.x\]"):
        loaded(tmp_path, "build.py:cases", IMAGE, build)


def test_npz_files_come_in_natural_order_with_their_labels(tmp_path):
    (tmp_path / "cases").mkdir()
    for i in (10, 9, 1):
        np.savez(tmp_path / "cases" / f"a{i}.npz", **{"x": normal(i, 1, 4), "expected.label": np.array(i)})
    for source in ("cases/*.npz", "cases"):
        found = loaded(tmp_path, source)
        assert [case.name for case in found] == ["a1", "a9", "a10"]
        assert found[0].expected is not None and found[0].expected["label"] == 1


def test_files_of_the_same_name_are_told_apart_by_their_folder(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        np.savez(tmp_path / folder / "c.npz", x=normal(0, 1, 4))
    assert [case.name for case in loaded(tmp_path, "*/c.npz")] == ["a/c.npz", "b/c.npz"]


def test_a_folder_with_brackets_in_its_name_is_no_glob(tmp_path):
    folder = tmp_path / "run[1]"
    folder.mkdir()
    np.savez(folder / "c.npz", x=normal(0, 1, 4))
    assert len(loaded(folder, "*.npz")) == 1


def test_a_missing_glob_and_an_empty_folder_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"no such file or folder"):
        loaded(tmp_path, "nothing/*.npz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="empty: holds no cases"):
        loaded(tmp_path, "empty")
    (tmp_path / "a.csv").touch()
    with pytest.raises(UsageError, match="no file of cases"):
        loaded(tmp_path, "a.csv")


def test_broken_and_pickled_npz_files_are_refused(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 truncated")
    with pytest.raises(UsageError, match=r"a\.npz: not a readable \.npz"):
        loaded(tmp_path, "a.npz")
    np.savez(tmp_path / "a.npz", x=np.array([{}], dtype=object))
    with pytest.raises(UsageError, match=r"a\.npz: not a readable \.npz"):
        loaded(tmp_path, "a.npz")


def write_pb(path, array, name=""):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(numpy_helper.from_array(np.asarray(array), name).SerializeToString())


def test_test_data_sets_follow_the_graphs_order(tmp_path):
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    save(tmp_path / "m.onnx", nodes, [("a", FLOAT, [2]), ("b", FLOAT, [2])])
    for i in range(2):
        folder = tmp_path / "data" / f"test_data_set_{i}"
        (tmp_path / "data").mkdir(exist_ok=True)
        write_pb(folder / "input_0.pb", np.float32([1, 2]))
        write_pb(folder / "input_1.pb", np.float32([3, 4]))
        write_pb(folder / "output_0.pb", np.float32([4, 6]))
    for source in ("data", "data/test_data_set_*"):
        found = loaded(tmp_path, source)
        assert [case.name for case in found] == ["test_data_set_0", "test_data_set_1"]
        assert found[0].inputs["b"].tolist() == [3, 4]
        assert found[0].expected is not None and found[0].expected["y"].tolist() == [4, 6]
    write_pb(tmp_path / "data/test_data_set_0/input_2.pb", np.float32([1]))
    with pytest.raises(UsageError, match=r"input_2\.pb: there is no input 2; the graph has 2 inputs"):
        loaded(tmp_path, "data")


def test_the_toolkits_dataset_names_a_file_per_input(tmp_path):
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    save(tmp_path / "m.onnx", nodes, [("a", FLOAT, [2]), ("b", FLOAT, [2])])
    (tmp_path / "d").mkdir()
    for name in "ab":
        np.save(tmp_path / "d" / f"{name}.npy", np.float32([ord(name), 0]))
    (tmp_path / "d" / "dataset.txt").write_text("a.npy b.npy\n\nb.npy a.npy\n")
    found = loaded(tmp_path, "d/dataset.txt")
    assert [case.inputs["a"][0] for case in found] == [97, 98]
    (tmp_path / "d" / "dataset.txt").write_text("a.npy")
    with pytest.raises(UsageError, match=r"dataset\.txt, line 1.*per input: a b"):
        loaded(tmp_path, "d/dataset.txt")
    (tmp_path / "d" / "dataset.txt").write_text("a.npy c.npy")
    with pytest.raises(UsageError, match=r"no such file: c\.npy"):
        loaded(tmp_path, "d/dataset.txt")


@pytest.mark.parametrize(("color", "first"), [("rgb", 255), ("bgr", 0)])
def test_images_are_resized_and_ordered_as_declared(tmp_path, color, first):
    cv2 = pytest.importorskip("cv2")
    image_model(tmp_path)
    (tmp_path / "images").mkdir()
    red = np.zeros((16, 24, 3), np.uint8)
    red[..., 2] = 255  # OpenCV writes BGR
    cv2.imwrite(str(tmp_path / "images" / "red.png"), red)
    (found,) = loaded(tmp_path, "images", IMAGE + f'color = "{color}"\n')
    assert found.inputs["x"].shape == (1, 8, 8, 3) and found.inputs["x"].dtype == np.uint8
    assert found.inputs["x"][0, 0, 0].tolist() == [first, 0, 255 - first]
    with pytest.raises(UsageError, match="needs to know its layout"):
        loaded(tmp_path, "images")


CALIBRATED = TOML + 'precision = "w8a8"\ncalibration = "build.py:calibration"\n'


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_calibration_with_nan_or_inf_names_case_and_input(tmp_path, value):
    build = (
        BUILD + f"\ndef calibration():\n    bad = cases()\n    bad[1].inputs['x'][0, 2] = {value!r}\n    return bad\n"
    )
    held = candidate(tmp_path, CALIBRATED, build)
    with pytest.raises(UsageError, match="calibration, case c1: input 'x' holds 1 values that are NaN or Inf"):
        load_calibration(held, artifact(tmp_path / "m.onnx"))


def test_no_calibration_is_an_empty_list(tmp_path):
    assert load_calibration(candidate(tmp_path), artifact(linear(tmp_path / "m.onnx"))) == []


def test_scored_samples_are_read_one_by_one(tmp_path):
    build = BUILD + "\ndef many():\n    yield from cases()\n    raise ValueError('read too far')\n"
    held = candidate(tmp_path, TOML + '[accuracy]\ncases = "build.py:many"', build)
    samples = score_cases(held, tmp_path / "m.onnx")
    assert [next(samples).name for _ in range(3)] == ["c0", "c1", "c2"]
    with pytest.raises(UsageError, match="read too far"):
        next(samples)


def test_scored_samples_are_the_cases_where_none_are_declared_and_are_checked_too(tmp_path):
    assert [case.name for case in score_cases(candidate(tmp_path))] == ["c0", "c1", "c2"]
    build = BUILD + "\ndef many():\n    yield {'y': np.ones(1)}\ndef none():\n    return []\n"
    with pytest.raises(UsageError, match="no input 'y'"):
        next(score_cases(candidate(tmp_path, TOML + '[accuracy]\ncases = "build.py:many"', build)))
    with pytest.raises(UsageError, match="no scored cases"):
        next(score_cases(candidate(tmp_path, TOML + '[accuracy]\ncases = "build.py:none"', build)))


def case(**inputs):
    return Case("a", {name: np.asarray(value) for name, value in inputs.items()})


def test_the_digest_sees_whatever_differs():
    different = [
        case(x=np.float32([1, 2])),
        case(x=np.float32([2, 1])),
        case(x=np.float64([1, 2])),
        case(x=np.float32([[1, 2]])),
        case(y=np.float32([1, 2])),
        Case("b", {"x": np.float32([1, 2])}),
        Case("a", {"x": np.float32([1, 2])}, {"x": np.float32([1])}),
        case(x=np.array(["ab", "c"])),
        case(x=np.array(["a", "bc"])),
        case(x=np.float32([])),
    ]
    digests = [digest_cases([item]) for item in different]
    assert len(set(digests)) == len(digests)
    assert digest_cases(different[:2]) != digest_cases(different[1::-1])


def test_the_digest_goes_by_values_not_by_memory():
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert digest_tensors({"x": a.T}) == digest_tensors({"x": np.ascontiguousarray(a.T)})
    assert digest_tensors({"x": np.array(["a"], object)}) == digest_tensors({"x": np.array(["a"])})
    assert digest_tensors({"a": a, "b": a[0]}) == digest_tensors({"b": a[0], "a": a})


def test_text_inputs_are_accepted_as_such(tmp_path):
    nodes = [helper.make_node("Identity", ["s"], ["y"])]
    save(tmp_path / "m.onnx", nodes, [("s", STRING, ["n"])], [("y", STRING, None)])
    build = "import numpy as np\ndef cases(): return [{'s': np.array(['a', 'b'])}]"
    assert loaded(tmp_path, "build.py:cases", build=build)[0].inputs["s"].tolist() == ["a", "b"]
    with pytest.raises(UsageError, match="'s' is int64, the graph wants str"):
        loaded(tmp_path, "build.py:cases", build="import numpy as np\ndef cases(): return [{'s': np.array([1])}]")


def test_weights_that_are_listed_as_inputs_are_not_asked_for(tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    inputs = [("x", FLOAT, [1, 4]), ("w", FLOAT, [4, 3])]
    save(tmp_path / "m.onnx", nodes, inputs, weights={"w": normal(0, 4, 3)})
    assert list(loaded(tmp_path, "build.py:cases")[0].inputs) == ["x"]


EXPORT = TOML.replace('graph = "m.onnx"', 'graph = "build.py:export"')


def exporting(folder, body):
    return candidate(folder, EXPORT, BUILD + f"\ndef export(path):\n    {body}\n")


def test_an_export_is_written_where_it_is_told(tmp_path):
    held = exporting(tmp_path, "import shutil; shutil.copy('M', path)".replace("M", str(tmp_path / "m.onnx")))
    path = export_graph(held, tmp_path / "work")
    assert path.is_relative_to(tmp_path / "work") and path.is_file()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("pass", "wrote no file"),
        ("path.write_bytes(b'nonsense')", "wrote something unusable: not a readable ONNX file"),
        ("path.touch()", "wrote something unusable: not an ONNX file: it holds no graph"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_an_export_that_leaves_nothing_usable_is_refused(tmp_path, body, message):
    with pytest.raises(UsageError, match=message):
        export_graph(exporting(tmp_path, body), tmp_path / "work")


def test_a_variants_own_graph_goes_first(tmp_path):
    linear(tmp_path / "own.onnx")
    assert export_graph(candidate(tmp_path, TOML + 'graph = "own.onnx"'), tmp_path).name == "own.onnx"


@pytest.mark.parametrize("keep", [0, 1, 40, 200])
def test_a_truncated_graph_is_refused(tmp_path, keep):
    held = candidate(tmp_path)
    (tmp_path / "m.onnx").write_bytes((tmp_path / "m.onnx").read_bytes()[:keep])
    with pytest.raises(UsageError, match=r"m\.onnx: not a"):
        export_graph(held, tmp_path / "work")


def test_a_missing_graph_is_refused(tmp_path):
    held = candidate(tmp_path)
    (tmp_path / "m.onnx").unlink()
    with pytest.raises(UsageError, match=r"m\.onnx: no such file"):
        export_graph(held, tmp_path / "work")


def test_a_pattern_of_depends_that_matches_nothing_is_refused(tmp_path):
    held = candidate(tmp_path, 'depends = ["data/*.txt"]\n' + TOML)
    with pytest.raises(UsageError, match=r"no file matches 'data/\*\.txt'"):
        export_graph(held, tmp_path / "work")


def test_source_and_graph_in_one_file_are_noticed(tmp_path):
    held = candidate(tmp_path, TOML.replace("build.py:source", "./m.onnx"))
    assert same_file(held, artifact(tmp_path / "m.onnx"))
    assert not same_file(candidate(tmp_path), artifact(tmp_path / "m.onnx"))


def test_integers_must_be_as_wide_as_declared(tmp_path):
    nodes = [helper.make_node("Identity", ["i"], ["y"])]
    save(tmp_path / "m.onnx", nodes, [("i", INT64, [1])], [("y", INT64, None)])
    with pytest.raises(UsageError, match="int32, the graph wants int64; make it int64"):
        loaded(tmp_path, "build.py:cases", build="import numpy as np\ndef cases(): return [{'i': np.int32([1])}]")
