"""A verdict as text: what a person reads first comes first. Plain and stable when piped, coloured on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from verify.core import Outcome, Tier
from verify.reports import listing, sections, tidy
from verify.reports.page import Page, middle
from verify.reports.sections import WORD, why
from verify.verdict import Verdict

LONG = 60  # characters of a reason that is not said twice
WIDTH = 80  # columns when nobody says: what a log viewer or a split terminal shows


def render(verdict: Verdict, *, colour: bool = False, width: int | None = None, verbose: bool = False) -> str:
    """The whole report, without a final newline. `verbose` shows every finding, the power and the environment.

    Colour adds escape sequences and nothing else: without them both texts are the same. Sentences of findings and
    commands stay on one line, so that they can be searched and pasted; prose is wrapped at `width` columns (80).
    """
    page = Page(colour, width or WIDTH)
    page.line(page.paint(f"{WORD[verdict.outcome].upper()}  {verdict.name}: ", verdict.outcome.value) + why(verdict))
    sections.suspects(page, verdict)
    sections.tiers(page, verdict)
    listing.findings(page, verdict, verbose)
    page.gap()
    sections.first_divergent(page, verdict)
    told: set[str] = set()
    for item in verdict.not_proven:
        tier, _, reason = tidy(item).partition(" ")
        shown = reason if reason not in told or len(reason) < LONG else "(for the same reason)"
        told.add(reason)
        page.line(page.paint("NOT PROVEN: ", "inconclusive") + f"{tier} {shown}".rstrip())
    sections.facts(page, verdict, verbose)
    page.section("Next", verdict.next_steps, numbered=True)
    if verdict.run:
        page.line(page.paint("Run folder: ", "dim") + verdict.run)
    return "\n".join(page.lines).rstrip()


def summary(verdicts: Sequence[Verdict], *, colour: bool = False, width: int | None = None) -> str:
    """One line per variant: outcome, the three tiers, and why; cut at `width` when it is given."""
    page = Page(colour, width or 10_000)
    mark = {Outcome.PASSED: "yes", Outcome.FAILED: "NO", Outcome.INCONCLUSIVE: "?"}
    names = [middle(v.name, 40) for v in verdicts]
    room = max([len("variant"), *map(len, names)])
    head = f"{'variant':{room}}  {'outcome':12}  graph  device  end to end  why"
    page.line(page.paint(head, "title"))
    for name, verdict in zip(names, verdicts, strict=True):
        row = f"{name:{room}}  " + page.paint(f"{WORD[verdict.outcome]:12}", verdict.outcome.value)
        for tier, column in ((Tier.GRAPH, 5), (Tier.DEVICE, 6), (Tier.END_TO_END, 10)):
            outcome = verdict.tiers[tier].outcome if tier in verdict.tiers else None
            text = f"{mark[outcome] if outcome else '-':{column}}"
            row += "  " + (page.paint(text, outcome.value) if outcome else text)
        reason, left = why(verdict), page.width - len(head) + len("why")
        page.line(f"{row}  {reason if len(reason) <= left else reason[: max(0, left - 3)] + '...'}".rstrip())
    page.line(page.paint("yes: within its limits   NO: beyond a limit   ?: not proven   -: not asked", "dim"))
    return "\n".join(page.lines).rstrip()
