"""How a verdict reads: the words and numbers that terminal, JUnit and diff share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from verify.core import Tier

if TYPE_CHECKING:
    from verify.verdict import Finding, Verdict

#: Tier -> its number and name as a person reads them.
TIERS: Mapping[Tier, tuple[int, str]] = {
    Tier.GRAPH: (1, "graph"),
    Tier.DEVICE: (2, "device"),
    Tier.END_TO_END: (3, "end to end"),
}

#: What each suspect means, for a reader who meets the word for the first time.
SUSPECTS: Mapping[str, str] = {
    "export": "the step from the source model to the graph",
    "reference": "the reference runtime or the harness around the source",
    "compiler": "a rewrite or kernel of the toolkit",
    "quantiser": "the integer ranges that the toolkit chose",
    "simulator": "the simulator; the device agrees with the graph",
    "board": "hardware, driver or runtime of the board",
    "input": "how the model is fed: layout, mean and std, order of colours",
    "precision": "no bug: too much error for this model at this precision",
    "undetermined": "the evidence fits more than one cause",
}


def number(value: float, digits: int = 3) -> str:
    """Three significant digits, whole numbers up to a million in full: 0.312, 1.2e-5, 65504, "NaN"."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    if value == int(value) and abs(value) < 1_000_000:
        return str(int(value))
    if 1000 <= abs(value) < 1_000_000:
        step = 10 ** max(0, len(str(int(abs(value)))) - digits)
        return str(round(value / step) * step) if step > 1 else f"{value:.{digits}g}"
    mantissa, mark, exponent = f"{value:.{digits}g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if mark else mantissa


def pair(value: float, limit: float) -> tuple[str, str]:
    """Value and limit with as many digits as it takes to tell them apart: "0.9991", "0.999" and not twice "0.999"."""
    for digits in range(3, 17):
        first, second = number(value, digits), number(limit, digits)
        if first != second or value == limit or value != value:
            break
    return first, "none" if limit == math.inf else "unknown" if math.isnan(limit) else second


def tidy(text: str) -> str:
    """One line without control characters: names and messages may come from a file or a log and carry anything."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))


def sentence(finding: Finding) -> str:
    """In the grammar `<where>: <metric> = <value>, limit <limit> [<checker>, tier <n>, <leg>, case <id>]`."""
    value, limit = pair(finding.value, finding.limit)
    number_of = next((n for tier, (n, _) in TIERS.items() if tier.value == finding.tier), 0)
    parts = [finding.checker, f"tier {number_of}" if number_of else finding.tier, finding.leg]
    parts += [f"case {finding.case}"] if finding.case else []
    place = f"{tidy(finding.where)}: " if finding.where else ""
    return f"{place}{finding.metric} = {value}, limit {limit} [{tidy(', '.join(p for p in parts if p))}]"


def remark(finding: Finding) -> str:
    """What the message says beyond the sentence, or ""."""
    text, line = tidy(finding.message), sentence(finding)
    return text[len(line) :].lstrip(" .;:,") if text.startswith(line) else text


def denying(verdict: Verdict) -> tuple[Finding, ...]:
    """The findings that deny: failures that no waiver covers."""
    return tuple(f for f in verdict.findings if f.severity == "fail" and not f.waived)


def grouped(findings: Iterable[Finding]) -> Iterator[tuple[Finding, ...]]:
    """The findings by tier, checker and leg, tiers in order, each group's own order kept."""
    order = {tier.value: n for tier, (n, _) in TIERS.items()}
    first: dict[tuple[str, str, str], int] = {}
    listed = list(findings)
    for index, finding in enumerate(listed):
        first.setdefault((finding.tier, finding.checker, finding.leg), index)

    def rank(finding: Finding) -> tuple[int, int]:
        return order.get(finding.tier, 9), first[finding.tier, finding.checker, finding.leg]

    for _, members in groupby(sorted(listed, key=rank), key=rank):
        yield tuple(members)
