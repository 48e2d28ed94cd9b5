"""Compute the column widths of a table that fits the terminal."""

from collections.abc import Sequence
from typing import NamedTuple

COLUMN_GAP = 2


class Column(NamedTuple):
    title: str
    least: int = 0  # smallest width on a narrow terminal; 0 is never cut
    right: bool = False


def widths(columns: Sequence[Column], longest: Sequence[int], room: int) -> list[int]:
    """Return the width of each column. The widest columns shrink first.

    >>> widths([Column("A", least=8), Column("B"), Column("C", least=4)], [30, 10, 12], 40)
    [14, 10, 12]
    >>> widths([Column("A", least=8), Column("B")], [30, 10], 5)
    [8, 10]
    """
    found = [max(size, len(column.title)) for column, size in zip(columns, longest, strict=True)]
    over = sum(found) + COLUMN_GAP * (len(found) - 1) - room
    while over > 0:
        giving = [i for i, column in enumerate(columns) if column.least and found[i] > column.least]
        if not giving:
            break
        widest = max(giving, key=lambda i: found[i])
        found[widest] -= 1
        over -= 1
    return found
