"""The findings on the terminal: what denies first, cases of one place folded, advice given once."""

from __future__ import annotations

from collections.abc import Sequence

from verify.core import Outcome
from verify.reports import denying, grouped, remark, sentence, tidy
from verify.reports.page import Page
from verify.verdict import Finding, Verdict

SHOWN = 5  # places per checker and leg: the rest is counted, and complete in verdict.json


def findings(page: Page, verdict: Verdict, verbose: bool) -> None:
    """Denying ones first, then undecided, warnings, waived; each kind grouped by tier, checker and leg."""
    said: set[str] = set()
    rest = [f for f in verdict.findings if f not in denying(verdict)]
    open_ = [f for f in rest if f.severity == "undecided" and not f.waived]
    kinds: tuple[tuple[str, Sequence[Finding]], ...] = (
        ("Beyond a limit", denying(verdict)),
        # sampling ends as soon as one score is decided against the candidate: the others are no news then
        ("Not decided", open_ if verbose or verdict.outcome is not Outcome.FAILED else ()),
        ("Warnings (they deny nothing)", [f for f in rest if f.severity == "warn" and not f.waived]),
        ("Waived", [f for f in rest if f.waived]),
    )
    for title, held in kinds:
        if held:
            page.title(title)
        for group in grouped(held):
            if verbose:
                _every(page, group)
            else:
                _brief(page, group)
            _advice(page, group, said)


def _every(page: Page, group: Sequence[Finding]) -> None:
    for finding in group:
        page.line("  " + sentence(finding))
        _remarks(page, finding)
        page.line("    " + page.paint(f"id: {tidy(finding.id)}", "dim"))


def _brief(page: Page, group: Sequence[Finding]) -> None:
    """The worst case of each place, at most `SHOWN`; of warnings one place for each metric."""
    folded = _fold(group)
    firsts = {finding.metric: (finding, cases) for finding, cases in reversed(folded)}
    shown = folded[:SHOWN] if group[0].severity != "warn" else [item for item in folded if item in firsts.values()]
    for finding, cases in shown:
        page.line("  " + sentence(finding) + (f" (worst of {cases} cases)" if cases > 1 else ""))
        if finding is firsts[finding.metric][0]:  # the remarks of one metric in one leg resemble each other
            _remarks(page, finding)
        elif finding.waived:
            page.prose(finding.waived, "    ")
    if len(folded) > len(shown):
        page.line(page.paint(f"    and {len(folded) - len(shown)} more (--verbose)", "dim"))


def _remarks(page: Page, finding: Finding) -> None:
    page.prose(remark(finding), "    ", style="dim")
    page.prose(finding.waived, "    ")


def _advice(page: Page, group: Sequence[Finding], said: set[str]) -> None:
    """`said` holds what was printed already: a command or an advice that all findings share is printed once."""
    if group[0].waived:
        return
    for word, texts in (("Reproduce", (f.reproduce for f in group)), ("Next", (f.next for f in group))):
        for line in dict.fromkeys(f"{word}: {tidy(text)}" for text in texts if text):
            if line not in said and word == "Reproduce":
                page.line("    " + line)  # a command is pasted: never wrapped
            elif line not in said:
                page.prose(line, "    ", " " * 10)
            said.add(line)


def _fold(group: Sequence[Finding]) -> list[tuple[Finding, int]]:
    """The worst case of each place and metric, with the number of cases; in the order of their first appearance."""
    by_place: dict[tuple[str, str], list[Finding]] = {}
    for finding in group:
        by_place.setdefault((finding.where, finding.metric), []).append(finding)
    return [(max(held, key=_size), len({f.case for f in held})) for held in by_place.values()]


def _size(finding: Finding) -> float:
    return float("inf") if finding.value != finding.value else finding.value
