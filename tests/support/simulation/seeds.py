"""The seeds of plays. Some are fixed, and some depend on the day.

Each day plays new seeds. The day is read once, here. `PUNCTUAL_SIMULATION_DAY=2026-11-19` and the
seed in a failure replay it. `PUNCTUAL_SIMULATION=full` plays forty times as many.
"""

import os
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import TypeVar

T = TypeVar("T")

DAY_NAME = "PUNCTUAL_SIMULATION_DAY"
EVERYTHING = os.environ.get("PUNCTUAL_SIMULATION") == "full"
MORE = 40 if EVERYTHING else 1
_APART = 1_000_000  # seeds a day


def the_day() -> date:
    text = os.environ.get(DAY_NAME)
    return date.fromisoformat(text) if text else datetime.now(UTC).date()


DAY = the_day()


def seeds(fixed: int, fresh: int, day: date) -> list[int]:
    """Return the first `fixed` seeds of all days, and the first `fresh` seeds of the day."""
    first = int(f"{day:%Y%m%d}") * _APART
    return [*range(fixed * MORE), *range(first, first + fresh * MORE)]


def share(every: Sequence[T], stride: int) -> Sequence[T]:
    """Return every `stride`-th item with an offset by day, or all items in a full run."""
    return every if EVERYTHING else every[DAY.toordinal() % stride :: stride]


def replay_hint(day: date) -> str:
    return f"simulation: seeds of {day}; the same again: {DAY_NAME}={day}"
