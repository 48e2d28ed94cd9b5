"""Draw tables, times and colours for people."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from punctual_cli.input import moments
from punctual_cli.output.columns import COLUMN_GAP, Column, fit_widths
from punctual_cli.output.terminal_text import escape_controls

if TYPE_CHECKING:
    from datetime import tzinfo

    from rich.console import Console
    from rich.text import Text

# The width without a terminal. Programs that read a pipe want whole words.
PIPE_WIDTH = 500
STATUS_STYLES = {
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
        has_width = stream.isatty() or os.environ.get("COLUMNS", "").isdecimal()
        return Console(
            stderr=stderr,
            no_color=self._no_color or None,
            highlight=False,
            markup=False,
            emoji=False,
            width=None if has_width else PIPE_WIDTH,
        )

    @property
    def is_interactive(self) -> bool:
        """Return True if standard error is a terminal that can redraw lines."""
        return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def print_above(self, text: "Text") -> None:
        """Print a line of the answer above a spinner or bar, without running into it."""
        share_terminal = sys.stdout.isatty() and self.is_interactive
        (self.err if share_terminal else self.out).print(text, soft_wrap=True)

    def print_line(self, text: Any = "", style: str | None = None) -> None:
        if isinstance(text, str):
            text = escape_controls(text)
        self.out.print(text, style=style, soft_wrap=True)

    def print_note(self, text: str, style: str | None = "dim") -> None:
        """Print a note beside the answer, on standard error."""
        self.err.print(escape_controls(text), style=style, soft_wrap=True)

    def print_table(self, columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> None:
        cells = [[self.cell(value) for value in row] for row in rows]
        content_widths = [
            max((row[index].cell_len for row in cells), default=0) for index in range(len(columns))
        ]
        column_widths = fit_widths(columns, content_widths, self.out.width)
        header = [self.cell(column.title) for column in columns]
        for title in header:
            title.stylize("bold")
        self._print_lines([_row(columns, column_widths, row) for row in (header, *cells)])

    def _print_lines(self, lines: "Sequence[Text]") -> None:
        """Print lines in one write, so a reader that stops early does not break the pipe."""
        from rich.text import Text

        if lines:
            self.print_line(Text("\n").join(lines))

    def print_pairs(self, rows: Iterable[tuple[str, Any]], first_style: str = "") -> None:
        """Print labels with their values, without empty values.

        `first_style` is a style of the first label only, such as a colour.
        """
        from rich.text import Text

        filled_rows = [
            (label, value) for label, value in rows if value not in (None, "", (), {}, [])
        ]
        width = max((len(label) for label, _ in filled_rows), default=0) + COLUMN_GAP
        lines = []
        for index, (label, value) in enumerate(filled_rows):
            style = "bold" if index else f"bold {first_style}".rstrip()
            prefix = Text.assemble((label.ljust(width), style))
            for line in self._fold(self.cell(value), max(20, self.out.width - width)):
                lines.append(prefix + line)
                prefix = Text(" " * width)
        self._print_lines(lines)

    def _fold(self, text: "Text", width: int) -> "list[Text]":
        """Return the lines of a text, folded to the width.

        Lines that fit keep their indentation.
        """
        folded: list[Text] = []
        for line in text.split(allow_blank=True):
            fits = line.cell_len <= width
            folded.extend([line] if fits else line.wrap(self.out, width, overflow="fold"))
        return folded

    def cell(self, value: Any) -> "Text":
        from rich.text import Text

        if isinstance(value, Text):
            return value
        if value is None:
            return Text("-", style="dim")
        if isinstance(value, datetime):
            return Text(self.short_time(value))
        return Text(escape_controls(value))

    def status(self, word: str, count: int = 1) -> "Text":
        from rich.text import Text

        count_suffix = f" ×{count:,}" if count > 1 else ""
        return Text(f"{escape_controls(word)}{count_suffix}", style=STATUS_STYLES.get(word, ""))

    def short_time(self, at: datetime) -> str:
        return moments.format_short(at, self._clock(), None)

    def long_time(self, at: datetime | None, zone: "tzinfo | None" = None) -> str | None:
        return None if at is None else moments.format_long(at, self._clock(), zone)

    def relative_time(self, at: datetime | None) -> str | None:
        return None if at is None else moments.format_relative(at, self._clock())


def _row(columns: Sequence[Column], column_widths: Sequence[int], row: "Sequence[Text]") -> "Text":
    from rich.text import Text

    line = Text()
    for column, width, cell in zip(columns, column_widths, row, strict=True):
        cell_text = cell.copy()
        cell_text.truncate(width, overflow="ellipsis")
        padding = " " * (width - cell_text.cell_len)
        line += Text(padding) + cell_text if column.align_right else cell_text + Text(padding)
        line += Text(" " * COLUMN_GAP)
    line.rstrip()
    return line
