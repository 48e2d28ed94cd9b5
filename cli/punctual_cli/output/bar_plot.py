"""Draw numbers as horizontal bars."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from punctual_cli.output.screen import Screen

MAX_BAR_WIDTH = 60
_MIN_BAR_WIDTH = 10
_EIGHTHS = " ▏▎▍▌▋▊▉"
_FULL = "█"


class Bar(NamedTuple):
    label: str
    value: int
    is_highlighted: bool = False


def print_bars(screen: "Screen", bars: Sequence[Bar]) -> None:
    """Print a line for each bar: the label, a bar of its length, and the value."""
    from rich.text import Text

    largest = max((bar.value for bar in bars), default=0)
    value_width = len(f"{largest:,}")
    label_width = max((len(bar.label) for bar in bars), default=0)
    room = screen.out.width - label_width - value_width - 3
    width = max(_MIN_BAR_WIDTH, min(MAX_BAR_WIDTH, room))
    has_blocks = screen.out.encoding.lower().startswith("utf")
    lines: list[Text] = []
    for bar in bars:
        style = "yellow" if bar.is_highlighted else "cyan"
        drawn = draw_bar(bar.value, largest, width, has_blocks)
        line = Text(bar.label.ljust(label_width + 1), style="" if bar.value else "dim")
        line.append(drawn, style=style)
        line.append(f" {bar.value:,}" if drawn else f"{bar.value:,}", "" if bar.value else "dim")
        lines.append(line)
    screen.print_line(Text("\n").join(lines))


def draw_bar(value: int, largest: int, width: int, has_blocks: bool = True) -> str:
    """Return a bar that is `width` long for the largest value. Only 0 has none.

    >>> draw_bar(5, 10, 4), draw_bar(1, 1_000, 4), draw_bar(0, 9, 4), draw_bar(3, 8, 4, False)
    ('██', '▏', '', '##')
    """
    if not value:
        return ""
    if not has_blocks:
        return "#" * max(1, round(value * width / largest))
    eighths = max(1, round(value * width * 8 / largest))
    return (_FULL * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()
