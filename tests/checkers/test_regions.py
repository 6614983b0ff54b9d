"""What checker `regions` measures, on trials made by hand."""

from __future__ import annotations

from tests.hand import build, found, noise, trial
from verify.checkers.regions import Regions, departures
from verify.core import LayerRow


def rows(*placed: str) -> tuple[LayerRow, ...]:
    names = ["InputOperator", *("Conv" for _ in placed), "OutputOperator"]
    return tuple(
        LayerRow(i, op, "FLOAT16", where, f"{op}:{i}")
        for i, (op, where) in enumerate(zip(names, ("CPU", *placed, "CPU"), strict=True))
    )


def test_a_run_off_the_npu_counts_once_and_input_and_output_do_not() -> None:
    assert departures(rows("NPU", "NPU")) == []
    assert [len(run) for run in departures(rows("NPU", "CPU", "CPU", "NPU", "GPU", "NPU"))] == [2, 1]
    assert [len(run) for run in departures(rows("CPU", "NPU", "CPU"))] == [1, 1]


def test_the_departures_are_named() -> None:
    y = noise(1, 4)
    given = trial(builder="rknn", graph=[{"y": y}], more={"build": build(rows=rows("NPU", "CPU", "NPU"))})
    (m,) = found(Regions(), given, "departures")
    assert m.value == 1 and m.note == "Conv 2"


def test_no_table_no_claim() -> None:
    assert list(Regions().check(trial(builder="rknn", graph=[], more={"build": build()}))) == []
    assert list(Regions().check(trial(graph=[]))) == []
    assert Regions().plan(trial(graph=[]).candidate) == frozenset()
