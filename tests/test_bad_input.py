"""Bad input at the command line: exit 2, one line that says what, where and what to do, no traceback, nothing left."""

from __future__ import annotations

import re

import pytest

from tests.small import BUILD, TOML, candidate, linear
from verify.cli import main

INT8 = TOML + 'precision = "w8a8"\ncalibration = "build.py:calibration"\n'
NAN = BUILD + "\ndef calibration():\n    bad = cases()\n    bad[0].inputs['x'][0, 0] = np.nan\n    return bad\n"


def broken(folder, how):
    """A candidate with one thing wrong, and what the message must name."""
    if how in FILES:
        candidate(folder)
        path = folder / "m.onnx"
        data = path.read_bytes()
        path.unlink()
        if how != "missing":
            path.write_bytes(data[: len(data) // 2] if how == "truncated" else b"")
        return "m.onnx"
    toml, build, wanted = {
        "target": (TOML.replace('"cpu"', '"cpux"'), BUILD, "'cpu'"),
        "precision": (TOML + 'precision = "fp23"', BUILD, "'fp32'"),
        "key": (TOML.replace("cases =", "casse ="), BUILD, "'cases'"),
        "name": (TOML, BUILD.replace('{"x"', '{"xs"'), "did you mean 'x'"),
        "shape": (TOML, BUILD.replace("(1, 4)", "(1, 5)"), r"\(1, 5\)"),
        "dtype": (TOML, BUILD.replace("np.float32", "np.float64"), "float64"),
        "folder": (TOML.replace("build.py:cases", "none"), BUILD, "none"),
        "calibration": (INT8, NAN, "calibration, case c0: input 'x'"),
        "source": (TOML, BUILD.replace("def source", "def sauce"), "'sauce'"),
        "python": (TOML, BUILD + "\nimport nothing_there", "build.py:11"),
    }[how]
    (folder / "m.onnx").unlink(missing_ok=True)
    (folder / "none").mkdir()
    (folder / "candidate.toml").write_text(toml)
    (folder / "build.py").write_text(build)
    linear(folder / "m.onnx")
    return wanted


FILES = ["missing", "truncated", "empty"]
DECLARED = ["target", "precision", "key", "source", "python"]
CASES = ["name", "shape", "dtype", "folder", "calibration"]


@pytest.mark.parametrize("command", ["check", "gate"])
@pytest.mark.parametrize("how", [*FILES, *DECLARED, *CASES])
def test_bad_input_is_one_line_and_exit_2(tmp_path, capfd, how, command):
    wanted = broken(tmp_path, how)
    code = main([command, str(tmp_path / "candidate.toml"), "--cache", str(tmp_path / "cache"), "--quiet"])
    out, err = capfd.readouterr()
    assert code == 2 and out == ""
    assert len(err.splitlines()) == 1 and err.startswith("npu-verify: ") and re.search(wanted, err), err
    assert "; " in err, "what to do next"
    assert not list((tmp_path / "cache").glob("tmp/*")) and not list((tmp_path / "cache").glob("runs/*"))


def test_an_unknown_variant_is_named_with_the_nearest(tmp_path, capfd):
    candidate(tmp_path)
    assert main(["check", str(tmp_path / "candidate.toml"), "--variant", "fusd"]) == 2
    assert "unknown variant 'fusd'; did you mean 'fused'?" in capfd.readouterr().err


def test_a_good_candidate_is_checked(tmp_path, capfd):
    candidate(tmp_path)
    assert main(["check", str(tmp_path / "candidate.toml"), "--cache", str(tmp_path / "cache"), "--quiet"]) == 0
    assert "graph~device" in capfd.readouterr().out


def test_outputs_that_do_not_pair_fail_and_are_no_crash(tmp_path, capfd):
    build = BUILD.replace('return "m.onnx"', "return lambda feeds: {'y': feeds['x'], 'z': feeds['x']}")
    candidate(tmp_path, build=build)
    assert main(["check", str(tmp_path / "candidate.toml"), "--cache", str(tmp_path / "cache"), "--quiet"]) == 1
    out = capfd.readouterr().out
    assert "returned 2 outputs, the graph has 1" in " ".join(out.split())


def test_a_file_that_the_score_reads_voids_the_kept_build(tmp_path, capfd):
    """It is opened long after the cache was looked at."""
    (tmp_path / "label.txt").write_text("1")
    build = (
        BUILD + "\nfrom pathlib import Path\ndef score(expected, outputs):\n"
        "    return float((Path(__file__).parent / 'label.txt').read_text())\n"
    )
    candidate(tmp_path, TOML + '[accuracy]\nscore = "build.py:score"', build)
    command = ["check", str(tmp_path / "candidate.toml"), "--cache", str(tmp_path / "cache"), "--quiet", "--json", "-"]
    kept = []
    for label in ("1", "1", "0.5"):
        (tmp_path / "label.txt").write_text(label)
        main(command)
        out = capfd.readouterr().out
        kept.append((re.search(r'"cache": ?"(\w*)"', out) or [""])[0])
    assert kept[0].endswith('""') and not kept[1].endswith('""') and kept[2].endswith('""'), kept
