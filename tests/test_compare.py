"""`npu-verify compare`, through the command line: what is said, and the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verify import cli

RNG = np.random.default_rng(0)
Run = Callable[..., tuple[int, str, dict[str, Any]]]


def noise(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Compare two sets of tensors (or two paths) with options; returns exit code, text and document."""

    def go(reference: Any, candidate: Any, *options: str) -> tuple[int, str, dict[str, Any]]:
        paths = []
        for name, value in (("reference", reference), ("candidate", candidate)):
            if not isinstance(value, Path):
                path = tmp_path / f"{name}.npz"
                np.savez(path, **value)
                value = path
            paths.append(str(value))
        document = tmp_path / "compare.json"
        document.unlink(missing_ok=True)
        code = cli.main(["compare", *paths, "--json", str(document), *options])
        text = capsys.readouterr()
        held = json.loads(document.read_text()) if document.exists() else {}
        return code, text.out + text.err, held

    return go


def one(document: dict[str, Any], name: str = "y") -> dict[str, Any]:
    found = [row for row in document["rows"] if row["name"] == name]
    return dict(found[0])


def test_equal_tensors_are_within(run: Run) -> None:
    y = noise(2, 3)
    code, text, document = run({"y": y}, {"y": y}, "--precision", "exact")
    assert code == 0 and text.endswith("within: 0 of 1 tensors differ, 1 within\n")
    assert document["schema"] == "npu-verify/compare/1" and document["outcome"] == "within"


def test_a_scale_is_named_although_cosine_sees_nothing(run: Run) -> None:
    a = noise(1, 3, 8, 8)
    code, text, document = run({"y": a}, {"y": a * np.float32(255)}, "--precision", "w8a8")
    assert code == 1 and "the candidate is about 255 times the reference" in text
    assert one(document)["metrics"]["cosine"] > 0.999999


def test_a_few_ruined_elements_are_counted(run: Run) -> None:
    a = noise(10_000)
    b = a.copy()
    b[[10, 5000, 9999]] += 5
    code, text, _ = run({"y": a}, {"y": b}, "--precision", "fp16")
    assert code == 1 and "3 of 10,000 elements hold 100.0% of the error, off by up to 5" in text
    clean = a + noise(10_000) * np.float32(1e-3)
    assert run({"y": a}, {"y": clean}, "--precision", "fp16")[0] == 0
    assert run({"y": a}, {"y": clean})[0] == 1  # fp32 is the default and the strictest


def test_where_and_by_how_much(run: Run) -> None:
    wanted, got = np.zeros((1, 1, 3, 3), np.float32), np.zeros((1, 1, 3, 3), np.float32)
    got[0, 0, 2, 2] = -16
    code, text, document = run({"y": wanted}, {"y": got})
    assert code == 1 and "(0,0,2,2)" in text and "-16" in text
    row = one(document)
    assert (row["index"], row["wanted"], row["got"]) == ([0, 0, 2, 2], 0.0, -16.0)
    assert row["metrics"]["max_abs"] == 16.0 and row["metrics"]["relative_l2"] == "inf"


def test_a_permutation_is_named(run: Run) -> None:
    held = {f"o{i}": noise(1, 4) for i in range(3)}
    code, text, document = run(held, {f"o{k}": held[f"o{i}"] for k, i in enumerate((2, 0, 1))})
    assert code == 1 and document["outcome"] == "not comparable"
    assert "the candidate's o0, o1, o2 are the reference's o2, o0, o1" in text


@pytest.mark.parametrize(
    ("wanted", "got", "says"),
    [
        (np.ones((1, 4)), np.ones((1, 1, 1, 4)), "rank 2 vs 4"),
        (np.full(3, 7.0), np.full((3, 1), 7.0), "rank 1 vs 2"),
        (np.ones((5, 1)), np.ones((5, 2)), "shape (5, 1) vs (5, 2)"),
        (np.zeros(0), np.array([1.1]), "shape (0,) vs (1,)"),
        (np.array(3.0), np.zeros(0), "rank 0 vs 1"),
        (np.zeros(0), np.zeros(0), "empty"),
        (np.ones(3), np.ones(3, int), "float vs integer"),
        (np.ones(3, complex), np.ones(3, complex), "complex128 has no distance"),
    ],
)
def test_what_cannot_be_compared_is_refused(run: Run, wanted: Any, got: Any, says: str) -> None:
    code, text, document = run({"y": wanted}, {"y": got}, "--precision", "w8a8")
    assert code == 1 and says in text and document["outcome"] == "not comparable"


def test_missing_extra_and_none(run: Run) -> None:
    y = noise(3)
    assert "output z did not come back" in run({"y": y, "z": y}, {"y": y})[1]
    code, text, _ = run({"y": y}, {"y": y, "z": y})
    assert code == 1 and "output z is not one of the reference's" in text
    code, text, document = run({"y": y}, {})
    assert code == 1 and "nothing was compared" in text and document["rows"] == []
    assert run({}, {})[0] == 1


def test_what_is_missing_does_not_hide_what_is_wrong(run: Run) -> None:
    code, text, _ = run({"y": np.array([1.0, 2.0]), "r": noise(2)}, {"y": np.array([1.0, np.nan])})
    assert code == 1 and "1 NaN, first at index (1,)" in text


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "exact", "w8a8"])
def test_nan_is_never_within(run: Run, precision: str) -> None:
    wanted = np.array([1, 2, 3], np.float32)
    nan = np.array([1, np.nan, 3], np.float32)
    code, text, document = run({"y": wanted}, {"y": nan}, "--precision", precision)
    assert code == 1 and "1 NaN, first at index (1,)" in text
    assert one(document)["metrics"]["relative_l2"] == "nan"
    code, text, _ = run({"y": nan}, {"y": nan}, "--precision", precision)
    assert code == 0 and "not finite in both, the reference included: 1 of 3" in text
    code, text, _ = run({"y": nan[1:2]}, {"y": nan[1:2]}, "--precision", precision)
    assert code == 1 and "nothing finite to compare" in text
    inf = np.array([np.inf, 1], np.float32)
    assert run({"y": inf}, {"y": -inf}, "--precision", precision)[0] == 1


def test_integers_are_exact_and_do_not_wrap(run: Run) -> None:
    code, text, _ = run({"y": np.array([127, 0], np.int8)}, {"y": np.array([-128, 0], np.int8)})
    assert code == 1 and "by 255 at most" in text
    big = np.array([2**53 + 1, 7])
    assert run({"y": big}, {"y": big - 1}, "--precision", "w8a8")[0] == 1
    assert run({"y": big}, {"y": big}, "--precision", "fp16")[0] == 0
    codes = np.array([100, -100, 50], np.int8)
    assert run({"y": codes}, {"y": codes + np.int8(1)}, "--precision", "w8a8")[0] == 0  # one step of the integer build
    assert run({"y": codes}, {"y": codes + np.int8(1)}, "--precision", "fp16")[0] == 1
    assert run({"y": np.array([True, False])}, {"y": np.array([True, True])}, "--precision", "w8a8")[0] == 1


def test_strings_are_equal_or_not(run: Run) -> None:
    code, text, document = run({"y": np.array(["a", "b"])}, {"y": np.array(["a", "c"])})
    assert code == 1 and "1 of 2 strings differ" in text and one(document)["got"] == "c"
    assert run({"y": np.array(["a"])}, {"y": np.array(["a"])})[0] == 0


def test_a_batch_slot_that_is_wrong_is_named(run: Run) -> None:
    wanted = noise(3, 4, 8, 8)
    wanted[1] *= 10
    got = wanted + noise(3, 4, 8, 8) * np.float32(0.01)
    got[1] = np.clip(wanted[1], -3, 3)  # the range of slot 0
    for precision in ("fp16", "w8a8"):
        code, text, _ = run({"y": wanted}, {"y": got}, "--precision", precision)
        assert code == 1 and "batch index 1: 1 of 3 slots" in text
    got[2] *= 0.5  # most slots are wrong: none stands out, and both are beyond the limit
    assert "batch index 1, 2: 2 of 3 slots" in run({"y": wanted}, {"y": got}, "--precision", "fp16")[1]


def test_the_mean_over_a_batch_does_not_hide_a_slot(run: Run) -> None:
    wanted = noise(400, 16)
    got = wanted.copy()
    got[7] *= -0.05  # whole error 0.05, worst element over rms below 4
    code, text, _ = run({"y": wanted}, {"y": got}, "--precision", "w8a8")
    assert code == 1 and "batch index 7" in text
    quiet = wanted.copy()
    quiet[3] = 0
    assert run({"y": quiet}, {"y": quiet + np.float32(1e-6)})[0] == 0  # an empty slot is no reason to alarm


def model(path: Path, *nodes: Any, outputs: list[Any], **constants: Any) -> Path:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    held = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 6, 8])
    made = helper.make_model(
        helper.make_graph([helper.make_node(*a, **k) for a, k in nodes], "g", [x], outputs, held),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(made, path)
    return path


def test_a_dead_block_of_a_concat_is_found_although_cosine_is_0_9999(run: Run, tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 12, 8])
    graph = model(
        tmp_path / "m.onnx",
        ((["Mul", ["x", "k"], ["boxes"]]), {}),
        ((["Sigmoid", ["x"], ["scores"]]), {}),
        ((["Concat", ["boxes", "scores"], ["y"]]), {"axis": 1}),
        outputs=[y],
        k=np.float32(160),
    )
    x = noise(1, 6, 8)
    wanted = np.concatenate([160 * x, 1 / (1 + np.exp(-x))], 1).astype(np.float32)
    got = wanted.copy()
    got[:, 6:] = 0
    code, text, document = run({"y": wanted}, {"y": got}, "--precision", "w8a8", "--graph", str(graph))
    assert one(document)["metrics"]["cosine"] > 0.9999
    assert code == 1 and "block from scores (axis 1, 6 to 11) is 0 everywhere: 0 of 48 elements are non-zero" in text
    code, text, _ = run({"y": wanted}, {"y": got}, "--precision", "w8a8")
    assert code == 1 and "axis 1, index 6, 7, 8, 9, 10, 11: one value everywhere" in text
    assert "give --graph" in text
    flat = wanted.copy()
    flat[:, 6:] = 0.5
    assert run({"y": flat}, {"y": flat}, "--precision", "w8a8")[0] == 0
    assert run({"y": wanted}, {"y": wanted}, "--precision", "w8a8", "--graph", str(graph))[0] == 0


def test_indices_are_compared_by_what_they_point_at(run: Run, tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    index = helper.make_tensor_value_info("y", TensorProto.INT64, [1, 6, 3])
    graph = model(
        tmp_path / "m.onnx",
        ((["Relu", ["x"], ["r"]]), {}),
        ((["TopK", ["r", "k"], ["v", "y"]]), {"axis": -1}),
        outputs=[index],
        k=np.array([3]),
    )
    x = np.tile(np.array([1, 3, 3, 2, 3, -1, -1, -2], np.float32), (1, 6, 1))
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, x=x)
    wanted = np.tile(np.array([1, 2, 4]), (1, 6, 1))
    options = ("--graph", str(graph), "--inputs", str(inputs))
    code, text, _ = run({"y": wanted}, {"y": wanted[..., ::-1]}, *options)
    assert code == 0 and "12 indices differ between ties only" in text
    bad = wanted.copy()
    bad[0, 2, 2] = 0
    code, text, document = run({"y": wanted}, {"y": bad}, *options)
    assert code == 1 and "1 of 18 indices point at another value" in text and one(document)["index"] == [0, 2, 2]
    code, text, _ = run({"y": wanted}, {"y": wanted[..., ::-1]})
    assert code == 1 and "give --graph and --inputs" in text
    np.savez(inputs, z=x)
    code, text, _ = run({"y": wanted}, {"y": wanted}, *options)
    assert code == 2 and "no input x" in text
    np.savez(inputs, x=x[:, :2])
    code, text, _ = run({"y": wanted}, {"y": wanted}, *options)
    assert code == 2 and text.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--precision", "fp61"], "did you mean 'fp16'?"),
        (["--inputs", "x.npz"], "add --graph"),
        (["--graph", "no.onnx"], "no such file"),
        (["--json", "no/such/folder.json"], "its folder does not exist"),
    ],
)
def test_usage(run: Run, options: list[str], says: str) -> None:
    code, text, _ = run({"y": np.ones(2)}, {"y": np.ones(2)}, *options)
    assert code == 2 and says in text and text.count("\n") == 1


def test_a_foreign_graph_is_refused(run: Run, tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    y = helper.make_tensor_value_info("other", TensorProto.FLOAT, [1, 6, 8])
    graph = model(tmp_path / "m.onnx", ((["Relu", ["x"], ["other"]]), {}), outputs=[y])
    code, text, _ = run({"y": np.ones(2)}, {"y": np.ones(2)}, "--graph", str(graph))
    assert code == 2 and "computes none of y; its outputs are other" in text


def test_single_arrays_are_paired_without_names(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(3))
    np.save(tmp_path / "b.npy", np.ones(3))
    assert run(tmp_path / "a.npy", tmp_path / "b.npy")[0] == 0
    assert run(tmp_path / "a.npy", {"y": np.ones(3)})[0] == 0
    assert run(tmp_path / "a.npy", {"y": np.ones(3), "z": np.ones(3)})[0] == 1


def test_the_order_of_files_in_a_folder_is_no_order(run: Run, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    held = {"b": noise(3), "a": noise(3)}
    for name, value in held.items():
        np.save(tmp_path / "folder" / f"{name}.npy", value)
    assert run(held, tmp_path / "folder")[0] == 0
    assert run(tmp_path / "folder", held)[0] == 0
    assert run(held, dict(reversed(held.items())))[0] == 1  # an .npz has one


def test_a_snapshot_against_itself_is_golden_against_simulator(run: Run, tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    value = noise(1, 8, 1, 4)
    for part, scale in (("golden", 1.0), ("simulator", 1.5)):
        (snapshot / part / "npy").mkdir(parents=True)
        np.save(snapshot / part / "npy" / "_a_MatMul_mm.npy", value * np.float32(scale))
    table = "layer_name    file_name\n---------------------\n/a/MatMul_mm  _a_MatMul_mm.txt\n"
    (snapshot / "map_name_to_file.txt").write_text(table)
    code, text, document = run(snapshot, snapshot, "--precision", "fp16")
    assert code == 1 and "about 1.5 times" in text and one(document, "/a/MatMul_mm")["outcome"] == "differs"
    assert run(snapshot / "golden", snapshot / "simulator", "--precision", "fp16")[0] == 1
    assert run(snapshot / "golden", snapshot / "golden")[0] == 0
    quiet = value.copy()
    quiet[:, 3] = 0  # an inner channel below one step of an integer build
    np.save(snapshot / "simulator" / "npy" / "_a_MatMul_mm.npy", quiet)
    code, text, _ = run(snapshot, snapshot, "--precision", "w8a8")
    assert code == 0 and "axis 1, index 3: one value everywhere" in text
    np.save(snapshot / "simulator" / "npy" / "_a_MatMul_mm.npy", value * np.float32(1.5))
    other = tmp_path / "other"
    snapshot.rename(other)
    assert run(other, other / "simulator", "--precision", "fp16")[0] == 0  # two builds: simulator against simulator


def test_many_tensors_make_a_short_table(run: Run) -> None:
    held = {f"t{i:03d}": noise(4) for i in range(100)}
    got = {**held, "t050": held["t050"] + 1, "t070": held["t070"] * np.float32(1 + 1e-5)}
    _, text, document = run(held, got)
    assert "t050" in text and "and 98 more within their limits" in text
    assert "t070" in text  # the worst of those within
    assert text.count("\n") < 12 and len(document["rows"]) == 100
