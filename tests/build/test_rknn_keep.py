"""Layers kept in float, by the vendor's real toolkit."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import rknn_models as models
from test_rknn import artifact, candidate, error, images, reference

from verify.build.rknn import RknnBuilder
from verify.core import Case, UsageError


def kept(path: Path, work: Path, cases: list[Case], *names: str) -> tuple[list[str], float]:
    """Each operator's dtype by the compiler's own table, and the error of the first case."""
    work.mkdir()
    held = candidate(work, "w8a8")
    held = dataclasses.replace(held, variant=dataclasses.replace(held.variant, keep_float=names))
    with RknnBuilder().open(held, artifact(path), cases, work) as live:
        got = live.run(cases[0].inputs)
    wanted = reference(path, cases[0].inputs)
    table = [row.dtype for row in live.build.table if row.op.startswith(("Conv", "MatMul"))]
    return table, error(wanted["y"], got["y"])


def test_a_layer_named_runs_in_float16_and_the_error_falls(tmp_path: Path) -> None:
    path, cases = models.conv(tmp_path / "m.onnx"), images(4)
    plain, before = kept(path, tmp_path / "plain", cases)
    half, between = kept(path, tmp_path / "half", cases, "y")
    whole, after = kept(path, tmp_path / "whole", cases, "/net/c.0", "r", "y")
    assert (plain, half, whole) == (["INT8", "INT8"], ["INT8", "FLOAT16"], ["FLOAT16", "FLOAT16"])
    assert before > between > after and after < before / 5


@pytest.mark.parametrize(("name", "what"), [("rr", "did you mean r"), ("w", "compiled layers")])
def test_a_name_that_is_no_layer_is_refused(tmp_path: Path, name: str, what: str) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        kept(models.conv(tmp_path / "m.onnx"), tmp_path / "work", images(2), name)
    assert "keep_float" in caught.value.where
