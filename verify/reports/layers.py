"""Where a run diverges, as text: the node and why, the suspects, the layers around what matters, what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from verify.reports import number, pair, sections, tidy
from verify.reports.page import Page, middle
from verify.reports.repair import ranked

if TYPE_CHECKING:
    from verify.diagnose.rows import Figure, Row
    from verify.localize import Localized

SHORT = 24  # rows that are never cut: what a split terminal shows (house choice)
ALONE = 8  # of the layers that are wrong by themselves, in the graph's order
BEYOND = 2  # of the others beyond a limit: the first tell where it begins, the rest inherits
NAME = 44  # columns of a name, cut in its middle: shorter ones of a transformer look all alike
MARKS: Mapping[str, tuple[str, str]] = {
    "first": (">", "first divergent"),
    "beyond": ("!", "beyond a limit that denies"),
    "warn": ("~", "beyond one that only warns"),
    "waived": ("w", "waived"),
    "": (" ", ""),
}
HEAD = ("accumulated", "limit", "isolated", "limit", "replay", "limit")


def render(found: Localized, *, colour: bool = False, width: int = 80, verbose: bool = False) -> str:
    """The whole text, without a final newline; `verbose` shows every layer and cuts no name."""
    page, verdict = Page(colour, width), found.verdict
    first = verdict.first_divergent
    word, style = {
        "found": ("DIVERGES", "failed"),
        "none": ("NOTHING DIVERGES", "passed"),
        "unknown": ("UNKNOWN", "inconclusive"),
    }[found.divergence]
    place = tidy(f"{first['node'] or first['tensor']} [{first['op'] or 'tensor'}, {first['leg']}]") if first else ""
    named = f": first at {place}" if first else ", but no node can be named" if found.divergence == "found" else ""
    page.line(page.paint(f"{word}  {verdict.name}", style) + named)
    page.prose(found.why, "  ")
    if first and first["tensor"] not in ("", first["node"]):
        page.line(f"  its output: {tidy(first['tensor'])}")
    sections.suspects(page, verdict)
    for leg, rows in groupby(found.rows, key=lambda row: row.leg):
        _table(page, leg, list(rows), found.cases, verbose)
    _compared(page, found)
    ranked(page, found.ranked, verbose)
    if found.unranked:
        page.prose(f"Layers are not ranked by what they cause: {found.unranked}", rest="  ")
    page.section("Next", found.steps, numbered=True)
    if found.reproduce:
        page.line(f"Reproduce: {tidy(found.reproduce)}")
    return "\n".join(page.lines).rstrip()


def _compared(page: Page, found: Localized) -> None:
    held = found.verdict.coverage
    if found.rows and held.get("total", 0) > held.get("compared", 0):
        text = f"Compared: {held['compared']} of {held['total']} tensors; the rest is fused away, "
        page.prose(text + "and what goes wrong there shows in the next row that was compared", rest="  ")


def _table(page: Page, leg: str, rows: Sequence[Row], cases: int, verbose: bool) -> None:
    """One leg: marks, names, operators and its numbers, cut where nothing happens."""
    worst = f", the worst of {cases} cases" if cases > 1 else ""
    page.title(f"Layers of {leg}: relative error, in the graph's order{worst}")
    head_of = HEAD if any(row.replay for row in rows) else HEAD[:4]
    figures = [(row.accumulated, row.isolated, row.replay)[: len(head_of) // 2] for row in rows]
    cells = [tuple(text for figure in held for text in _numbers(figure)) for held in figures]
    wide = [max(len(title), *(len(cell[i]) for cell in cells)) for i, title in enumerate(head_of)]
    ops = max(2, *(len(tidy(row.op)) for row in rows))
    longest = max(6, *(len(tidy(row.tensor)) for row in rows))
    left = longest if verbose else min(longest, NAME)
    head = "  ".join(f"{title:>{size}}" for title, size in zip(head_of, wide, strict=True))
    page.line(page.paint(f"    {'tensor':{left}}  {'op':{ops}}  {head}", "dim"))
    shown = set(range(len(rows))) if verbose or len(rows) <= SHORT else _interesting(rows)
    for index, row in enumerate(rows):
        if index not in shown:
            if index - 1 in shown or index == 0:
                page.line(page.paint(f"    ... {_skipped(rows, index, shown)}", "dim"))
            continue
        numbers = "  ".join(f"{text:>{size}}" for text, size in zip(cells[index], wide, strict=True))
        line = f"  {MARKS[row.mark][0]} {middle(tidy(row.tensor), left):{left}}  {tidy(row.op):{ops}}  {numbers}"
        line += f"  {row.nonfinite} not finite" if row.nonfinite else ""
        page.line(page.paint(line.rstrip(), {"first": "failed", "warn": "warn"}.get(row.mark, "")))
    marks = {row.mark for row in rows}
    legend = [f"{mark} {text}" for key, (mark, text) in MARKS.items() if key and key in marks]
    legend += ["* the number beyond it"] * any("*" in "".join(cell) for cell in cells)
    legend += ["every layer: --verbose"] * (len(shown) < len(rows))
    if legend:
        page.line(page.paint(f"    {'   '.join(legend)}", "dim"))


def _numbers(figure: Figure | None) -> tuple[str, str]:
    """A number, starred where it is beyond its limit, and the limit."""
    if figure is None:
        return "- ", "-"
    value, limit = pair(figure.value, figure.limit)
    return value + ("*" if figure.beyond else " "), limit


def _interesting(rows: Sequence[Row]) -> set[int]:
    """Both ends, what surrounds the first divergent, what is wrong alone, where limits are first crossed, the worst."""
    alone = [i for i, row in enumerate(rows) if row.alone]
    inherits = [i for i, row in enumerate(rows) if row.mark in ("beyond", "warn") and not row.alone]
    chosen = {0, len(rows) - 1, *alone[:ALONE], *inherits[:BEYOND]}
    for sizes in ([_size(getattr(row, kind)) for row in rows] for kind in ("accumulated", "isolated", "replay")):
        chosen.add(sizes.index(max(sizes)))
    for i, row in enumerate(rows):
        if row.mark == "first":
            chosen.update(range(max(0, i - 2), min(len(rows), i + 3)))
        if row.mark == "waived":
            chosen.add(i)
    return chosen | {i for i in range(len(rows)) if i - 1 in chosen and i + 1 in chosen}  # a gap of one saves no line


def _size(figure: Figure | None) -> float:
    if figure is None:
        return -1.0
    return float("inf") if figure.value != figure.value else figure.value


def _skipped(rows: Sequence[Row], start: int, shown: set[int]) -> str:
    """What a gap in the table hides."""
    held = list(_until(rows, start, shown))
    values = [
        row.accumulated.value for row in held if row.accumulated and row.accumulated.value == row.accumulated.value
    ]
    span = f": accumulated {number(min(values))} to {number(max(values))}" if values else ""
    over, alone = sum(row.mark == "beyond" for row in held), sum(row.alone for row in held)
    counts = (f", {over} beyond a limit" if over else "") + (f", {alone} wrong alone" if alone else "")
    return f"{len(held)} more{span}{counts}"


def _until(rows: Sequence[Row], start: int, shown: set[int]) -> Iterator[Row]:
    for index in range(start, len(rows)):
        if index in shown:
            return
        yield rows[index]
