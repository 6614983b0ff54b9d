"""What a verdict follows from, as it is stored: everything that was measured, and what was not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from verify.core import Measurement, Tier, UsageError, Where


@dataclass(frozen=True)
class LegRecord:
    """What became of one leg: the `evidence` it was run by, or why it is `missing`, with its `log` and what to `do`."""

    tier: Tier
    name: str
    evidence: str = ""
    missing: str = ""
    do: str = ""
    log: str = ""


@dataclass(frozen=True)
class Run:
    """Everything that a verdict follows from; stored as run.json.

    `ran` maps a checker to the legs that it had to measure, `crashed` a checker to its error.
    `broken` maps a leg to the reason why no number may be formed there, `misfed` to an input and how it was fed.
    """

    candidate: Mapping[str, Any]
    precision: str
    legs: tuple[LegRecord, ...]
    ran: Mapping[str, tuple[str, ...]]
    measurements: tuple[Measurement, ...]
    crashed: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    budgets: Mapping[str, float] = field(default_factory=dict)
    exhausted: tuple[str, ...] = ()
    coverage: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    referee: str = ""
    misfed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    command: str = ""
    folder: str = ""


def to_document(run: Run) -> dict[str, Any]:
    """The run's fields by name, what they hold not copied."""
    return {name: getattr(run, name) for name in run.__dataclass_fields__}


def from_document(document: Mapping[str, Any]) -> Run:
    """The run that `to_document` wrote; raises UsageError for anything else."""
    try:
        return _run(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"not a stored run: {error!r}", "run.json", "run the check again") from None


def _run(document: Mapping[str, Any]) -> Run:
    legs = tuple(LegRecord(**{**leg, "tier": Tier(leg["tier"])}) for leg in document["legs"])
    measurements = tuple(_measurement(item) for item in document["measurements"])
    fields = {k: v for k, v in document.items() if k in Run.__dataclass_fields__}
    for name in ("exhausted", "notes"):
        fields[name] = tuple(fields[name])
    fields["budgets"] = {metric: float(value) for metric, value in document["budgets"].items()}
    fields["misfed"] = {leg: (name, how) for leg, (name, how) in document.get("misfed", {}).items()}
    fields["ran"] = {checker: tuple(held) for checker, held in document["ran"].items()}
    _texts(fields, "precision", "referee", "command", "folder")
    named = {name: document["candidate"][name] for name in ("model", "variant", "target")}
    _texts(named, *named)
    for leg in document["legs"]:
        _texts(leg, "name", "evidence", "missing", "do", "log")
    for held in (fields["crashed"], fields["broken"]):
        _texts(held, *held)
    return Run(**{**fields, "legs": legs, "measurements": measurements})


def _texts(held: Mapping[str, Any], *names: str) -> None:
    """Raise TypeError where one of these is not text: a file that somebody wrote may hold anything."""
    for name in names:
        if not isinstance(held.get(name, ""), str):
            raise TypeError(f"{name} = {held[name]!r:.40} is not text")


def _measurement(item: Mapping[str, Any]) -> Measurement:
    interval = tuple(float(v) for v in item["interval"]) if item["interval"] else None
    tier = Tier(item["tier"]) if item["tier"] else None
    value = float(item["value"])  # NaN and infinities are stored as text
    if interval and (len(interval) != 2 or interval[0] > interval[1]):
        raise ValueError(f"{interval} is no interval")
    _texts(item, "metric", "checker", "unit", "grain", "note")
    _texts(item["where"], *item["where"])
    return Measurement(**{**item, "where": Where(**item["where"]), "interval": interval, "tier": tier, "value": value})
