"""The judged measurements: what a report says, as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Any

from verify.core import Measurement, Outcome, Tier

SCHEMA = "npu-verify/report/1"


@dataclass(frozen=True)
class Finding:
    """A measurement beyond its limit, or a rule broken. `severity` is "fail", "warn" or "undecided".

    `id` is stable between runs ("checker/leg/tensor/metric"); `waived` holds the reason and date of a waiver, or "".
    """

    id: str
    tier: str
    leg: str
    checker: str
    where: str
    case: str
    metric: str
    value: float
    limit: float
    message: str
    reproduce: str
    next: str
    severity: str = "fail"
    waived: str = ""


@dataclass(frozen=True)
class LegVerdict:
    """Two roles compared: `worst` is the measurement nearest to or furthest beyond its limit, `reason` why it fails."""

    name: str
    outcome: Outcome
    worst: Mapping[str, Any] | None = None
    reason: str = ""


@dataclass(frozen=True)
class TierVerdict:
    outcome: Outcome
    reasons: tuple[str, ...] = ()
    legs: tuple[LegVerdict, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """`passed` only if every required checker of every tier ran on every case and every value was within its limit."""

    outcome: Outcome
    candidate: Mapping[str, Any]
    tiers: Mapping[Tier, TierVerdict]
    blame: tuple[str, ...] = ()
    first_divergent: Mapping[str, str] | None = None
    findings: tuple[Finding, ...] = ()
    coverage: Mapping[str, Any] = field(default_factory=dict)
    power: tuple[Mapping[str, Any], ...] = ()
    measurements: tuple[Measurement, ...] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what a person should know and no limit judges
    policy: Mapping[str, Any] = field(default_factory=dict)  # name, sha256, waivers in force
    next_steps: tuple[str, ...] = ()
    run: str = ""  # the run folder, relative where possible

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASSED

    def __bool__(self) -> bool:
        """As `passed`, so that `assert verdict` denies what is not proven."""
        return self.passed

    @property
    def name(self) -> str:
        return "{model}:{variant}@{target}".format(**self.candidate)

    @property
    def not_proven(self) -> tuple[str, ...]:
        """The tiers and legs without evidence, as `check` prints them ("device (no board)")."""
        out: dict[str, None] = {}
        for tier, judged in self.tiers.items():
            for leg in judged.legs:
                if leg.outcome is Outcome.INCONCLUSIVE:
                    out[f"{tier.value} ({leg.reason})" if leg.reason else tier.value] = None
            if judged.outcome is Outcome.INCONCLUSIVE and not judged.legs:
                out[f"{tier.value} ({'; '.join(judged.reasons) or 'nothing measured'})"] = None
        return tuple(out)

    def to_json(self) -> str:
        """The report document of schema npu-verify/report/1, on one line; NaN and infinities are written as strings."""
        return json.dumps({"schema": SCHEMA, **_plain(self)}, allow_nan=False)

    def __repr__(self) -> str:
        return f"<Verdict {self.outcome.value} {self.name}>"

    def __str__(self) -> str:
        from verify.reports.terminal import render

        return render(self)


def _plain(value: Any) -> Any:
    """JSON-like data; dataclasses as mappings, in one pass: `asdict` copies every leaf on its way."""
    if value is None or type(value) in (str, int, bool):
        return value
    if is_dataclass(value):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {getattr(key, "value", key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, Outcome | Tier):
        return value.value
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if hasattr(value, "item") and not isinstance(value, str):
        return _plain(value.item())
    return value
