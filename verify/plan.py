"""Which runs the required checkers ask for, asked once for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from verify.core import Candidate, RunSpec
from verify.protocols import Checker

#: Instrumented captures are large (185 MB a case for MiniLM), and two are what unique value matching needs.
LAYER_CASES = 2


@dataclass(frozen=True)
class Plan:
    """The union of the RunSpecs, and the checkers that asked."""

    specs: frozenset[RunSpec]
    checkers: tuple[Checker, ...]

    @property
    def layers(self) -> bool:
        """Whether inner tensors are needed."""
        return any(spec.instrumented for spec in self.specs)

    @property
    def floor(self) -> bool:
        """Whether the error of an honest build is to be drawn: the checker `layers` is held against it."""
        return any(checker.name == "layers" for checker in self.checkers)

    @property
    def score(self) -> bool:
        return any(spec.cases == "score" for spec in self.specs)


def union(candidate: Candidate, checkers: Iterable[Checker]) -> Plan:
    """Everything that `checkers` ask for of one candidate."""
    checkers = tuple(checkers)
    return Plan(frozenset(spec for checker in checkers for spec in checker.plan(candidate)), checkers)
