"""Ranked layers and a repair, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from verify.reports import tidy
from verify.reports.page import Page, middle

if TYPE_CHECKING:
    from verify.diagnose.ranking import Ranked
    from verify.diagnose.repair import Attempt, Repair

SHORT, NAME = 12, 44  # rows, and columns of a name (house choices)


def ranked(page: Page, held: Sequence[Ranked], verbose: bool) -> None:
    """The layers by their share of the final squared error, the worst first."""
    if not held:
        return
    shown = held if verbose or len(held) <= SHORT + 1 else held[:SHORT]
    page.title("What causes the final error: layers whose format costs most, predicted")
    longest = max(len(tidy(row.tensor)) for row in shown)
    left = longest if verbose else min(longest, NAME)
    ops = max(2, *(len(tidy(row.op)) for row in shown))
    head = f"    {'tensor':{left}}  {'op':{ops}}  {'share':>6}  {'alone, dB':>9}  {'gain':>6}  layers"
    page.line(page.paint(head, "dim"))
    for row in shown:
        text = f"    {middle(tidy(row.tensor), left):{left}}  {tidy(row.op):{ops}}  {row.share:6.1%}  {row.snr:9.1f}"
        page.line(f"{text}  {row.gain:6.3g}  {len(row.layers):6}")
    if len(shown) < len(held):
        rest = sum(row.share for row in held[len(shown) :])
        page.line(page.paint(f"    ... {len(held) - len(shown)} more: {rest:.1%} together (--verbose)", "dim"))


def attempt(held: Attempt, number: int) -> str:
    """One build on one line."""
    kept = f"{len(held.kept)} layer{'s' * (len(held.kept) != 1)} in float"
    return f"  build {number}: {kept}: {held.outcome.value}: {held.score}{_cost(held)}"


def _cost(held: Attempt) -> str:
    if not held.size:
        return ""
    return f"; {held.size / 1e6:.3f} MB, {held.floats} of {held.operators} operators in float16"


def repaired(found: Repair) -> str:
    """What a repair came to: the score before and after, what it costs, and what to write into candidate.toml."""
    page, before, after = Page(False, 100), found.before, found.after
    page.line(f"  before: {before.score}{_cost(before)}")
    if after is None or found.verdict is None or not found.repaired:
        page.line("NOT REPAIRED: no set that was built passes the score")
        if after is not None:
            page.prose(f"the last, under the whole policy: {after.outcome.value}: {after.score}", "  ")
        do = "more builds (--builds), another calibration, or a more precise variant"
        page.prose(f"Next: {do}", "  ")
        return "\n".join(page.lines)
    page.line(f"  after:  {after.score}{_cost(after)}")
    share = (
        f"{len(after.kept)} of {found.layers} compiled layers stay in float16 ({len(after.kept) / found.layers:.0%})"
    )
    grown = f"the file grows by {after.size / before.size - 1:.1%}" if before.size else "the file's size is not known"
    page.line(f"REPAIRED: {share}; {grown}")
    denied = sorted({f.id for f in found.verdict.findings if f.severity == "fail"})
    if denied:
        more = f" and {len(denied) - 3} more" if len(denied) > 3 else ""
        page.prose(f"Still failing under the whole policy: {', '.join(denied[:3])}{more}", "  ")
    page.line(f"  run folder: {after.run}")
    page.line(f"Add to candidate.toml:\n{found.toml()}")
    return "\n".join(page.lines).rstrip()
