"""Compute the column widths of a table that fits the terminal."""

from collections.abc import Sequence
from typing import NamedTuple

COLUMN_GAP = 2


class Column(NamedTuple):
    title: str
    min_width: int = 0  # smallest width on a narrow terminal; 0 is never cut
    align_right: bool = False


def fit_widths(
    columns: Sequence[Column], content_widths: Sequence[int], total_width: int
) -> list[int]:
    """Return the width of each column. The widest columns shrink first.

    >>> columns = [Column("A", min_width=8), Column("B"), Column("C", min_width=4)]
    >>> fit_widths(columns, [30, 10, 12], 40)
    [14, 10, 12]
    >>> fit_widths(columns[:2], [30, 10], 5)
    [8, 10]
    """
    column_widths = [
        max(content_width, len(column.title))
        for column, content_width in zip(columns, content_widths, strict=True)
    ]
    excess = sum(column_widths) + COLUMN_GAP * (len(column_widths) - 1) - total_width
    while excess > 0:
        shrinkable = [
            index
            for index, column in enumerate(columns)
            if column.min_width and column_widths[index] > column.min_width
        ]
        if not shrinkable:
            break
        widest = max(shrinkable, key=lambda index: column_widths[index])
        column_widths[widest] -= 1
        excess -= 1
    return column_widths
