"""Draw tables, times and colours for people."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from punctual_cli.input import moments
from punctual_cli.output.columns import COLUMN_GAP, Column, widths
from punctual_cli.output.terminal_text import plain

if TYPE_CHECKING:
    from datetime import tzinfo

    from rich.console import Console
    from rich.text import Text

# The width without a terminal. Programs that read a pipe want whole words.
UNBOUNDED = 500
STYLES = {
    "SUCCESS": "green",
    "SCHEDULED": "green",
    "ok": "green",
    "FAILED": "red",
    "TIMED_OUT": "red",
    "LOST": "red",
    "down": "red",
    "MISSED": "magenta",
    "RUNNING": "cyan",
    "CLAIMED": "cyan",
    "WAITING": "yellow",
    "QUEUED": "yellow",
    "PAUSED": "yellow",
    "late": "yellow",
    "PLANNED": "cyan",
    "CANCELLED": "dim",
    "SKIPPED": "dim",
    "COMPLETED": "dim",
    "EXCLUDED": "dim",
    "NOT_SCHEDULED": "dim",
}


class Screen:
    def __init__(self, clock: Callable[[], datetime], no_color: bool = False) -> None:
        self._clock = clock
        self._no_color = no_color

    @cached_property
    def out(self) -> "Console":
        return self._console(stderr=False)

    @cached_property
    def err(self) -> "Console":
        return self._console(stderr=True)

    def _console(self, stderr: bool) -> "Console":
        from rich.console import Console

        stream = sys.stderr if stderr else sys.stdout
        bounded = stream.isatty() or os.environ.get("COLUMNS", "").isdecimal()
        return Console(
            stderr=stderr,
            no_color=self._no_color or None,
            highlight=False,
            markup=False,
            emoji=False,
            width=None if bounded else UNBOUNDED,
        )

    @property
    def is_watched(self) -> bool:
        """Return True if standard error is a terminal that can redraw lines."""
        return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def above(self, text: "Text") -> None:
        """Print a line of the answer above a spinner or bar, without running into it."""
        together = sys.stdout.isatty() and self.is_watched
        (self.err if together else self.out).print(text, soft_wrap=True)

    def line(self, text: Any = "", style: str | None = None) -> None:
        if isinstance(text, str):
            text = plain(text)
        self.out.print(text, style=style, soft_wrap=True)

    def note(self, text: str, style: str | None = "dim") -> None:
        """Print a note beside the answer, on standard error."""
        self.err.print(plain(text), style=style, soft_wrap=True)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> None:
        cells = [[self.cell(value) for value in row] for row in rows]
        longest = [max((row[i].cell_len for row in cells), default=0) for i in range(len(columns))]
        sizes = widths(columns, longest, self.out.width)
        head = [self.cell(column.title) for column in columns]
        for title in head:
            title.stylize("bold")
        self._at_once([_row(columns, sizes, row) for row in (head, *cells)])

    def _at_once(self, lines: "Sequence[Text]") -> None:
        """Print lines in one write, so a reader that stops early does not break the pipe."""
        from rich.text import Text

        if lines:
            self.line(Text("\n").join(lines))

    def pairs(self, rows: Iterable[tuple[str, Any]]) -> None:
        """Print labels with their values, without empty values."""
        from rich.text import Text

        said = [(label, value) for label, value in rows if value not in (None, "", (), {}, [])]
        width = max((len(label) for label, _ in said), default=0) + COLUMN_GAP
        lines = []
        for label, value in said:
            head = Text.assemble((label.ljust(width), "bold"))
            for line in self._folded(self.cell(value), max(20, self.out.width - width)):
                lines.append(head + line)
                head = Text(" " * width)
        self._at_once(lines)

    def _folded(self, text: "Text", width: int) -> "list[Text]":
        """Return the lines of a text, folded to the width.

        Lines that fit keep their indentation.
        """
        found: list[Text] = []
        for line in text.split(allow_blank=True):
            fits = line.cell_len <= width
            found.extend([line] if fits else line.wrap(self.out, width, overflow="fold"))
        return found

    def cell(self, value: Any) -> "Text":
        from rich.text import Text

        if isinstance(value, Text):
            return value
        if value is None:
            return Text("-", style="dim")
        if isinstance(value, datetime):
            return Text(self.short(value))
        return Text(plain(value))

    def status(self, word: str, count: int = 1) -> "Text":
        from rich.text import Text

        times = f" ×{count:,}" if count > 1 else ""
        return Text(f"{plain(word)}{times}", style=STYLES.get(word, ""))

    def short(self, at: datetime) -> str:
        return moments.short(at, self._clock(), None)

    def long(self, at: datetime | None, zone: "tzinfo | None" = None) -> str | None:
        return None if at is None else moments.long(at, self._clock(), zone)

    def ago(self, at: datetime | None) -> str | None:
        return None if at is None else moments.hint(at, self._clock())


def _row(columns: Sequence[Column], sizes: Sequence[int], row: "Sequence[Text]") -> "Text":
    from rich.text import Text

    line = Text()
    for column, size, cell in zip(columns, sizes, row, strict=True):
        shown = cell.copy()
        shown.truncate(size, overflow="ellipsis")
        pad = " " * (size - shown.cell_len)
        line += Text(pad) + shown if column.right else shown + Text(pad)
        line += Text(" " * COLUMN_GAP)
    line.rstrip()
    return line
