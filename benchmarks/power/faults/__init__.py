"""The catalogue: each fault is a function on a graph, or on what the simulator recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from power.net import Net

#: Where in the graph's order a site is taken, as a share of all sites.
DEPTHS = {"early": 0.1, "middle": 0.5, "late": 0.9}


@dataclass(frozen=True)
class Fault:
    """A compiled fault: `sites` finds where it can be, `put` writes it there and returns the names of its nodes.

    `put` returns an empty set where the fault would change nothing.
    """

    name: str
    group: str
    sites: Callable[[Net], Sequence[Any]]
    put: Callable[[Net, Any], set[str]]


def at(sites: Sequence[Any], depth: str) -> Any:
    """The site at a depth, None if there is none."""
    return sites[min(int(DEPTHS[depth] * len(sites)), len(sites) - 1)] if sites else None


def compiled() -> list[Fault]:
    """Every fault that the vendor's toolkit compiles."""
    from power.faults import activations, coherent, narrow, operators, weights

    return [*weights.FAULTS, *operators.FAULTS, *activations.FAULTS, *narrow.FAULTS, *coherent.FAULTS]
