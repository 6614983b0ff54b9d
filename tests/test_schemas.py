"""Documents that outlive a process: old ones are lifted, foreign and newer ones refused in one line."""

from __future__ import annotations

import json

import pytest

from verify import schemas
from verify.core import UsageError


def test_what_is_stamped_is_read_back(tmp_path) -> None:
    for kind in schemas.CURRENT:
        path = tmp_path / f"{kind}.json"
        path.write_text(json.dumps({"schema": schemas.stamp(kind), "x": 1}))
        assert schemas.read(path, kind)["x"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "unreadable"),
        ("\x00\xff", "unreadable"),
        ("{}\n{}", "holds a report a line"),
        ("[]", "not a JSON object"),
        ("{}", "schema is None"),
        ('{"schema": "npu-verify/report/1"}', "schema is 'npu-verify/report/1', not 'npu-verify/run/1'"),
        ('{"schema": "npu-verify/run/2"}', "newer npu-verify"),
        ('{"schema": "npu-verify/run/0"}', "no migration"),
        ('{"schema": "npu-verify/run/x"}', "schema is"),
        ('{"schema": 1}', "schema is"),
    ],
)
def test_what_is_refused(tmp_path, text, message) -> None:
    path = tmp_path / "run.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=message) as caught:
        schemas.read(path, "run")
    assert "run.json" in str(caught.value)


def test_a_missing_file_and_a_folder_are_one_line(tmp_path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        schemas.read(tmp_path / "run.json", "run")
    with pytest.raises(UsageError, match="unreadable"):
        schemas.read(tmp_path, "run")
    (tmp_path / "candidate.toml").touch()
    with pytest.raises(UsageError, match="name a run folder"):
        schemas.read(tmp_path / "candidate.toml" / "run.json", "run")


def test_old_documents_are_lifted_step_by_step(monkeypatch) -> None:
    monkeypatch.setitem(schemas.CURRENT, "run", 3)
    steps = {("run", 1): lambda d: {**d, "steps": [1]}, ("run", 2): lambda d: {**d, "steps": [*d["steps"], 2]}}
    monkeypatch.setattr(schemas, "MIGRATIONS", steps)
    assert schemas.lift({"schema": "npu-verify/run/1"}, "run", "x")["steps"] == [1, 2]
