"""The toolkit's files, in the form in which rknn-toolkit2 2.5.0 writes them (shortened)."""

from __future__ import annotations

from pathlib import Path

from verify.build import rknn_log
from verify.core import LayerRow

D = "D RKNN: [08:14:03.586] "
TITLE = f"{D}      Network Layer Information Table      \n"
RULE = f"{D}{'-' * 60}\n"


def row(*cells: str) -> str:
    widths = (5, 15, 9, 7, 13, 13, 8, 8, 0)
    return D + "".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)) + " \n"


HEAD = row("ID", "OpType", "DataType", "Target", "InputShape", "OutputShape", "Cycles", "RW(KB)", "FullName")
LOG = (
    "I Loading :   0%|   | 0/3\rI Loading : 100%|\u2588\u2588| 3/3\n"
    "\x1b[1;33mW\x1b[0m \x1b[1;33mload_onnx: The config.mean_values is None!\x1b[0m\n"
    "I RKNN: librknnc version: 2.5.0 (74ea630ce@2026-09-29T14:54:20)\n"
    + TITLE
    + HEAD
    + row("0", "Stale", "FLOAT16", "CPU", "\\", "(1,3)", "0/0/0", "0", "Stale:x")
    + RULE
    + TITLE
    + RULE
    + HEAD
    + RULE
    + row("0", "InputOperator", "FLOAT16", "CPU", "\\", "(1,3)", "0/0/0", "0", "InputOperator:x")
    + "\x1b[1m"
    + row("1", "exSwish", "INT8", "NPU", "(1,3),(8,3)", "(1,8)", "1/2/2", "2", "Conv:a b\x1b[0m")
    + row("2", "Conv", "INT8", "NPU", "(1,3)", "(1,8)", "1/2/2", "2", "")
    + RULE
    + row("1", "Conv", "w", "NPU", "not", "a row", "of", "this", "table")
)


def test_the_last_layer_table_is_read_to_its_end() -> None:
    assert rknn_log.layer_table(LOG) == (
        LayerRow(0, "InputOperator", "FLOAT16", "CPU", "InputOperator:x"),
        LayerRow(1, "exSwish", "INT8", "NPU", "Conv:a b"),
        LayerRow(2, "Conv", "INT8", "NPU", ""),
    )
    assert rknn_log.layer_table("no table") == ()
    assert rknn_log.compiler(LOG) == "2.5.0 (74ea630ce@2026-09-29T14:54:20)"


def test_the_last_error_says_something(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert rknn_log.last_error(log) == ""
    log.write_text(
        "E RKNN: [08:21:42.469] Unkown op target: 0\n"
        "\x1b[1;31mE\x1b[0m \x1b[1;31mbuild: Catch exception!\x1b[0m\n"
        "Error in something else\n"
        "E RKNN: [08:21:42.469] Unkown op target: 0\n"
        "E build: Traceback (most recent call last):\n"
        "E rknn-toolkit2 version: 2.5.0\nE ========\nE \n"
    )
    assert rknn_log.last_error(log) == "build: Catch exception!"
    log.write_text(log.read_text() + "E RKNN: [08:21:43.1] Meet unsupported dtype in Sub\n")
    assert rknn_log.last_error(log) == "Meet unsupported dtype in Sub"


def test_dumps_are_found_by_layer_name_in_order() -> None:
    rows = [("layer_name", "file_name"), ("-" * 40, ""), ("/net/c.0", "_net_c_0.txt"), ("a b#1", "a b#1.txt")]
    shared = [("p/q", "p_q.txt"), ("z", "z.txt"), ("p.q", "p_q.txt")]  # one file for two layers holds the later one
    text = "".join(f"{layer:24}{file:24}\n" for layer, file in rows + shared)
    assert list(rknn_log.file_names(text).items()) == [("/net/c.0", "_net_c_0"), ("a b#1", "a b#1"), ("z", "z")]
    assert rknn_log.file_names("") == {}


ANALYSIS = """# simulator_error: calculate the output error of each layer of the simulator.
layer_name                       simulator_error
                             entire              single
                          cos      euc        cos      euc
----------------------------------------------------------------
[Input] ids             1.00000 | 0.00000   1.00000 | 0.00000
[Conv] m_mm
[Relu] a b              0.99996 | 0.35640   f_zero | 12.5
[exSDPA] s              q_nan | nan   -0.5 | 1e-05
[Relu] unknown          1.00000 | 0.00000   1.00000 | 0.00000
"""


def test_the_error_analysis_keeps_markers_apart_from_numbers() -> None:
    assert rknn_log.error_analysis(ANALYSIS, ["ids", "m_mm", "a b", "s"]) == {
        "ids": (1.0, 0.0, 1.0, 0.0),
        "a b": (0.99996, 0.3564, None, 12.5),
        "s": (None, None, -0.5, 1e-5),
    }


def test_scales_are_numbers_or_absent() -> None:
    whole = {"min": [-1.0], "max": [2.0], "scale": [0.5], "zero_point": [3], "ori_min": [-9.0], "ori_max": [9.0]}
    held = rknn_log.scales(
        {
            "a": {"qtype": "asym", "dtype": "int8", **whole},
            "inner_q_add": {"dtype": "int8", **{key: whole[key] for key in ("min", "max", "scale", "zero_point")}},
            "float": {"dtype": "float32", **whole, "scale": [], "zero_point": []},
            "channels": {"dtype": "int8", **whole, "scale": [0.1, 0.2]},
        }
    )
    assert held == {
        "a": {**{key: value[0] for key, value in whole.items()}, "dtype": "int8"},
        "inner_q_add": {"min": -1.0, "max": 2.0, "scale": 0.5, "zero_point": 3, "dtype": "int8"},
    }
