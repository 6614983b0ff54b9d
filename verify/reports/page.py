"""Lines of a report: painted, wrapped, listed. Knows nothing of verdicts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from verify.reports import tidy

STYLE = {"passed": "32", "failed": "1;31", "inconclusive": "33", "warn": "33", "title": "1", "dim": "2"}


class Page:
    """Collects `lines`; without `colour` the same text without escape sequences."""

    def __init__(self, colour: bool, width: int) -> None:
        self.colour, self.width = colour, width
        self.lines: list[str] = []

    def paint(self, text: str, style: str) -> str:
        return f"\x1b[{STYLE[style]}m{text}\x1b[0m" if self.colour and style in STYLE else text

    def line(self, text: str = "") -> None:
        self.lines.append(text)

    def gap(self) -> None:
        """An empty line, never two."""
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def title(self, text: str) -> None:
        self.gap()
        self.line(self.paint(text, "title"))

    def prose(self, text: str, first: str = "", rest: str | None = None, style: str = "") -> None:
        """Wrapped text: `first` before its first line, `rest` (default: as many blanks) before the others."""
        hanging = " " * len(first) if rest is None else rest
        for line in textwrap.wrap(
            tidy(text),
            max(self.width, len(hanging) + 20),  # 20: a very narrow window still gets whole words
            initial_indent=first,
            subsequent_indent=hanging,
            break_long_words=False,
            break_on_hyphens=False,
        ):
            self.line(self.paint(line, style))

    def section(self, title: str, items: Iterable[str], numbered: bool = False) -> None:
        """A title with wrapped items below; nothing at all when there are none."""
        listed = list(items)
        if listed:
            self.title(title)
        for index, item in enumerate(listed, 1):
            self.prose(item, f"  {index}. " if numbered else "  ")


def middle(text: str, room: int) -> str:
    """The text cut in its middle to `room` characters: a tensor's name tells most by its two ends."""
    if len(text) <= room or room < 5:
        return text
    tail = (room - 3) * 2 // 3
    return f"{text[: room - 3 - tail]}...{text[-tail:]}"
