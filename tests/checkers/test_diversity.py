"""What checker `diversity` measures, on trials made by hand."""

from __future__ import annotations

import numpy as np

from tests.hand import found, graph, noise, trial, values
from verify.checkers.diversity import Diversity
from verify.graphs.info import Node

CAT = graph(
    Node("cat", "Concat", ("boxes", "scores"), ("y",), axis=1),
    boxes=(1, 4, 8), scores=(1, 2, 8), y=(1, 6, 8),
)  # fmt: skip


def test_a_dead_block_of_a_concat_is_named() -> None:
    wanted = noise(1, 6, 8)
    wanted[:, :4] *= 300
    got = wanted.copy()
    got[:, 4:] = 0
    (m,) = found(Diversity(), trial(CAT, source=[{"y": wanted}], graph=[{"y": got}]), "dead_blocks")
    assert m.value == 1 and m.note == "the block from scores is 0 everywhere"
    assert values(Diversity(), trial(CAT, source=[{"y": wanted}], graph=[{"y": wanted}]), "dead_blocks") == [0]
    assert values(Diversity(), trial(CAT, source=[{"y": got}], graph=[{"y": got}]), "dead_blocks") == [0]


def test_a_constant_output_is_dead_only_where_the_reference_varies() -> None:
    varied, flat = noise(1, 4), np.full((1, 4), 0.125, np.float32)
    assert values(Diversity(), trial(source=[{"y": varied}], graph=[{"y": flat}]), "dead_blocks") == [1]
    assert values(Diversity(), trial(source=[{"y": flat}], graph=[{"y": flat}]), "dead_blocks") == [0]
    true = np.ones((1, 4), bool)
    mask = np.array([[True, False, True, True]])
    (m,) = found(Diversity(), trial(source=[{"y": mask}], graph=[{"y": true}]), "dead_blocks")
    assert m.value == 1 and m.note == "it is 1 everywhere"


def test_cases_that_all_give_the_same_prove_nothing() -> None:
    y = noise(1, 4)
    (m,) = found(Diversity(), trial(source=[{"y": y}, {"y": y}], graph=[{"y": y}, {"y": y}]), "blind_outputs")
    assert m.value == 1 and "cannot tell right from wrong" in m.note
    other = noise(1, 4)
    given = trial(source=[{"y": y}, {"y": other}], graph=[{"y": y}, {"y": other}])
    assert values(Diversity(), given, "blind_outputs") == [0]
    assert values(Diversity(), trial(source=[{"y": y}], graph=[{"y": y}]), "blind_outputs") == [0]
    flat = np.zeros((1, 4), np.float32)
    assert values(Diversity(), trial(source=[{"y": flat}], graph=[{"y": flat}]), "blind_outputs") == [1]


def test_cases_that_differ_in_no_output_leave_the_leg_undecided() -> None:
    y, z = noise(1, 4), noise(1, 4)
    two = graph(Node("relu", "Relu", ("x",), ("y",)), Node("neg", "Neg", ("x",), ("z",)), outputs=("y", "z"), x=(1, 4))
    for other, blind in ((z, 1.0), (z + 1, 0.0)):
        cases = [{"y": y, "z": z}, {"y": y, "z": other}]
        (m,) = found(Diversity(), trial(two, source=cases, graph=cases), "blind_cases")
        assert m.value == blind and m.interval == (0.0, blind)
    constant = graph(Node("const", "Constant", (), ("y",)), inputs=())
    assert found(Diversity(), trial(constant, source=[{"y": y}], graph=[{"y": y}]), "blind_cases") == []


def test_text_may_be_dead_or_blind_too() -> None:
    varied, flat = np.array([["a", "b"]]), np.array([["a", "a"]], dtype=object)
    (m,) = found(Diversity(), trial(source=[{"y": varied}], graph=[{"y": flat}]), "dead_blocks")
    assert m.value == 1 and m.note == "it is 'a' everywhere"
    assert values(Diversity(), trial(source=[{"y": varied}], graph=[{"y": varied}]), "blind_outputs") == [0]
