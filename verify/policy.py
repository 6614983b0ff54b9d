"""The only place that judges: which checkers are required, and the limits."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from verify.core import UsageError
from verify.floor.tail import ALPHA
from verify.limits import LIMITS, NULLED, Limit, of_null
from verify.limits import limit as built_in
from verify.schemas import lift, stamp
from verify.store import file_digest
from verify.targets import PRECISIONS
from verify.toml import nearest, only, read_toml, texts, value

REQUIRED = (
    "structure",
    "finite",
    "coverage",
    "diversity",
    "indices",
    "parity",
    "layers",
    "range",
    "regions",
    "accuracy",
    "agreement",
)
#: Where names, shapes or finiteness break, no number may be formed, so there is none up to which one could tolerate.
UNWAIVABLE = ("structure", "finite", "coverage")
LONGEST = 366  # days: a waiver that outlives a year is a policy, and belongs into code review (house choice)
KEYS = ("schema", "name", "require", "alpha", "limit", "waiver")


@dataclass(frozen=True)
class Waiver:
    """A finding that is tolerated until a date, up to `value`; a worse one is not covered."""

    finding: str
    until: datetime.date
    reason: str
    value: float

    def covers(self, finding: str, value: float, today: datetime.date) -> bool:
        """`value` may exceed the waived one by a tenth: numbers move a little between toolkits (house choice)."""
        return finding == self.finding and self.in_force(today) and value <= self.value * 1.1

    def in_force(self, today: datetime.date) -> bool:
        """Not after its day, and not more than a year before it, whoever wrote it."""
        return 0 <= (self.until - today).days <= LONGEST


@dataclass(frozen=True)
class Policy:
    """Required checkers, limits that tighten the built-in ones, dated waivers. The default is strict.

    `alpha` is the rate of false alarms per candidate that the floor's limits are set for: a larger one is tighter.
    """

    name: str = "built-in"
    require: tuple[str, ...] = REQUIRED
    limits: Mapping[tuple[str, str], Mapping[str, float]] = field(default_factory=dict)
    waivers: tuple[Waiver, ...] = ()
    sha256: str = ""
    alpha: float = ALPHA

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy TOML; raises UsageError for unknown keys, looser limits, unknown checkers."""
        return _read(Path(path))

    def limit(self, checker: str, metric: str, precision: str, null: Mapping[str, Any] | None = None) -> Limit | None:
        """The limit in force: the tighter of the built-in one and the policy's; None means never passed.

        `null` is the measurement's own, for metrics whose limit follows from it.
        """
        base = of_null(null or {}, self.alpha) if metric in NULLED else built_in(checker, metric, precision)
        if base is None and metric in NULLED:
            return None
        if base is not None and metric == "isolated_odds":  # decades: the same rate of false alarms
            base = replace(base, value=min(base.value, -math.log10(self.alpha)))
        own = self.limits.get((checker, metric), {})
        mine = own.get(precision, own.get("*"))
        if mine is None:
            return base
        if base is None or base.action == "report":
            return Limit(mine, f"policy {self.name}")
        return Limit(min(mine, base.value), f"policy {self.name}", "fail")


def _read(path: Path) -> Policy:
    document = read_toml(path)
    document.setdefault("schema", stamp("policy"))
    document = lift(document, "policy", str(path))
    only(document, KEYS, str(path))
    known = _known_checkers()
    require = texts(document, "require", str(path)) if "require" in document else REQUIRED
    for name in require:
        if name not in known:
            raise UsageError(f"requires the unknown checker {name!r}", str(path), nearest(name, known))
    limits = {}
    tables = value(document, "limit", dict, {}, str(path))
    only(tables, (*known, "compare"), f"{path}, [limit]")
    for checker in tables:
        for metric, held in value(tables, checker, dict, {}, f"{path}, [limit]").items():
            limits[checker, metric] = _limit(path, checker, metric, held)
    waivers = tuple(_waiver(path, item) for item in value(document, "waiver", list, [], str(path)))
    name, alpha = value(document, "name", str, path.stem, str(path)), _alpha(document.get("alpha", ALPHA), str(path))
    return Policy(name, require, limits, waivers, file_digest(path), alpha)


def _alpha(given: Any, where: str) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= 0.5:
        raise UsageError(f"alpha = {given!r} is not a rate", where, f"write a number from {ALPHA:g} to 0.5")
    if given < ALPHA:
        do = f"only tighten it (built in: {ALPHA:g}; more false alarms mean tighter limits), or use a dated waiver"
        raise UsageError(f"alpha = {given:g} is looser than the built-in one", where, do)
    return float(given)


def _limit(path: Path, checker: str, metric: str, held: Any) -> Mapping[str, float]:
    by_precision = held if isinstance(held, Mapping) else {"*": held}
    for precision, number in by_precision.items():
        where = f"{path}, [limit.{checker}] {metric}"
        if precision not in (known := {"*", "exact", *(p for held in PRECISIONS.values() for p in held)}):
            raise UsageError(f"unknown precision {precision!r}", where, nearest(precision, known))
        if isinstance(number, bool) or not isinstance(number, int | float) or number != number:
            raise UsageError(f"{number!r} is not a number", where, "write a number")
        base = built_in(checker, metric, precision)
        if base is not None and base.action != "report" and number > base.value:
            do = f"only tighten it (built in: {base.value:g}, {base.origin}), or use a dated waiver: npu-verify waive"
            raise UsageError(f"{number:g} is looser than the built-in limit", where, do)
        if base is None and (checker, metric) not in LIMITS and checker in REQUIRED:
            near = [m for c, m in LIMITS if c == checker]
            raise UsageError(f"{checker} has no metric {metric!r}", where, nearest(metric, near))
    return {str(k): float(v) for k, v in by_precision.items()}


def _waiver(path: Path, item: Mapping[str, Any]) -> Waiver:
    do = "write it with npu-verify waive"
    try:
        until = item["until"]
        until = until.date() if isinstance(until, datetime.datetime) else until
        until = until if isinstance(until, datetime.date) else datetime.date.fromisoformat(str(until))
        waiver = Waiver(str(item["finding"]), until, str(item["reason"]), float(item["value"]))
    except KeyError as error:
        raise UsageError(f"a waiver lacks {error}", str(path), do) from None
    except (ValueError, TypeError) as error:
        raise UsageError(f"a waiver is unreadable: {error}", str(path), do) from None
    only(item, Waiver.__dataclass_fields__, f"{path}, [[waiver]]")
    if waiver.finding.partition("/")[0] in UNWAIVABLE or not abs(waiver.value) < float("inf"):
        raise UsageError(f"{waiver.finding} up to {waiver.value} cannot be waived", str(path), "remove it")
    return waiver


def _known_checkers() -> list[str]:
    from importlib.metadata import entry_points

    return sorted({entry.name for entry in entry_points(group="verify.checkers")} | set(REQUIRED))
