"""A candidate with all its recordings; pairs tensors strictly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from verify.core import Array, Build, Candidate, Missing, NotComparable, Recording, Tier, Where

if TYPE_CHECKING:
    from verify.graphs.align import Match
    from verify.graphs.info import GraphInfo

#: What a leg's candidate role must be run by for the leg to prove something: hardware has the final say.
PROOF = frozenset({"hardware", "reference"})


@dataclass(frozen=True)
class Leg:
    """Two roles compared in one tier."""

    tier: Tier
    reference: str
    candidate: str

    @property
    def name(self) -> str:
        return f"{self.reference}~{self.candidate}"


def legs_of(candidate: Candidate) -> tuple[Leg, ...]:
    """Every leg that a candidate must hold: a target with a simulator has the simulator's legs too."""
    graph, device, whole = Tier.GRAPH, Tier.DEVICE, Tier.END_TO_END
    legs = [Leg(graph, "source", "graph")]
    if candidate.variant.builder == "rknn":
        legs += [Leg(device, "graph", "simulator"), Leg(device, "simulator", "device")]
    legs.append(Leg(device, "graph", "device"))
    if candidate.variant.builder == "rknn":
        legs.append(Leg(whole, "source", "simulator"))
    return (*legs, Leg(whole, "source", "device"))


@dataclass(frozen=True)
class Scored:
    """Per-sample results of one role against the source.

    `pairs` maps a metric to two equally long lists, the source's score and the candidate's, each within [0, 1].
    `distance` maps "relative_error", "cosine_distance" or "top1_flip" to per-sample values (worst output).
    `exhausted` says that the cases ran out before the margin was decided, `repeated` how many were there before and
    left out.
    """

    role: str
    pairs: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]]
    distance: Mapping[str, tuple[float, ...]]
    exhausted: bool
    evidence: str
    repeated: int = 0

    @property
    def n(self) -> int:
        return len(next(iter(self.pairs.values()), ((), ()))[0])


@dataclass(frozen=True)
class Trial:
    """What the checkers measure: recordings by role, `missing` roles with the reason, and what the build left.

    `alignment` maps a compiled layer's name to the reference tensor that it holds, `unmatched` to the reason why not;
    `assumed` adds what only its name says.
    `graph` describes the ONNX graph that was compiled, `broken` names the legs where no number may be formed.
    """

    candidate: Candidate
    graph: GraphInfo
    recordings: Mapping[str, tuple[Recording, ...]]
    missing: Mapping[str, Missing] = field(default_factory=dict)
    build: Build | None = None
    alignment: Mapping[str, Match] = field(default_factory=dict)
    unmatched: Mapping[str, str] = field(default_factory=dict)
    assumed: Mapping[str, Match] = field(default_factory=dict)
    scored: Mapping[str, Scored] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()

    def legs(self, tier: Tier) -> tuple[Leg, ...]:
        """The legs of a tier of which both roles were run and may be compared."""
        return tuple(leg for leg in legs_of(self.candidate) if leg.tier is tier and self._has(leg))

    def _has(self, leg: Leg) -> bool:
        return leg.name not in self.broken and all(r in self.recordings for r in (leg.reference, leg.candidate))

    def of(self, role: str) -> tuple[Recording, ...]:
        """The recordings of a role, one per case; raises Missing with the reason why there are none."""
        if role not in self.recordings:
            raise self.missing.get(role) or Missing(f"no {role} recording", self.candidate.name)
        return self.recordings[role]

    def pairs(self, reference: str, candidate: str) -> Iterator[tuple[Where, Array, Array]]:
        """Every output of every case, as (where, wanted, got); raises NotComparable if one is missing."""
        leg, got_by_case = f"{reference}~{candidate}", {r.case: r for r in self.of(candidate)}
        for wanted in self.of(reference):
            if wanted.case not in got_by_case:
                raise NotComparable(f"case {wanted.case} was not run by {candidate}", leg)
            got = got_by_case[wanted.case].outputs
            for name, value in wanted.outputs.items():
                if name not in got:
                    raise NotComparable(f"output {name} did not come back from {candidate}", leg)
                if value.shape != got[name].shape:
                    raise NotComparable(f"shape {value.shape} vs {got[name].shape}", f"{leg}, output {name}")
                node = self.graph.last_of_few(name)
                where = Where(name, wanted.case, leg, "", self.graph.op(name), node.name if node else "")
                yield where, value, got[name]

    def layers(self, assumed: bool = False) -> Iterator[tuple[Where, Array, Array, str]]:
        """Every aligned inner tensor of the simulator, as (where, wanted, got, compiled layer), in the graph's order.

        `got` is laid out as the reference's tensor. With `assumed`, those that only a name aligns are there too. Yields
        nothing when the build was not instrumented.
        """
        from verify.graphs.align import restore

        if "graph~simulator" in self.broken:
            return
        position = self.graph.position
        matches = {**self.alignment, **(self.assumed if assumed else {})}
        order = sorted(matches.items(), key=lambda item: position.get(item[1].tensor, -1))
        wanted_by_case = {r.case: r for r in self.recordings.get("graph", ()) if r.layers}
        for recording in self.recordings.get("simulator", ()):
            if not recording.layers or recording.case not in wanted_by_case:
                continue
            wanted = wanted_by_case[recording.case]
            for layer, match in order:
                if layer not in recording.layers:
                    continue
                node = self.graph.producer.get(match.tensor)
                names = ("", node.op, node.name) if node else ("", "Input", match.tensor)
                where = Where(match.tensor, recording.case, "graph~simulator", *names)
                yield where, _value(wanted, match.tensor), restore(recording.layers[layer], match), layer


def _value(recording: Recording, tensor: str) -> Array:
    return recording.layers[tensor] if tensor in recording.layers else recording.outputs[tensor]
