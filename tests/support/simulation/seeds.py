"""The seeds that plays are drawn from: some are fixed, and some are the day's.

Each day plays what no day before it has played. The day is read once, here; whatever it finds is
played again by `PUNCTUAL_SIMULATION_DAY=2026-11-19`, and by the seed that a failure names.
`PUNCTUAL_SIMULATION=full` plays forty times as many.
"""

import os
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import TypeVar

T = TypeVar("T")

DAY_NAME = "PUNCTUAL_SIMULATION_DAY"
EVERYTHING = os.environ.get("PUNCTUAL_SIMULATION") == "full"
MORE = 40 if EVERYTHING else 1
_APART = 1_000_000  # seeds of a day


def the_day() -> date:
    given = os.environ.get(DAY_NAME)
    return date.fromisoformat(given) if given else datetime.now(UTC).date()


DAY = the_day()


def seeds(fixed: int, fresh: int, day: date) -> list[int]:
    """The first so many seeds of all, and the first so many of the day."""
    first = int(f"{day:%Y%m%d}") * _APART
    return [*range(fixed * MORE), *range(first, first + fresh * MORE)]


def share(every: Sequence[T], stride: int) -> Sequence[T]:
    """One in so many, each day others of them; all of them where everything is played."""
    return every if EVERYTHING else every[DAY.toordinal() % stride :: stride]


def announced(day: date) -> str:
    return f"simulation: seeds of {day}; the same again: {DAY_NAME}={day}"
