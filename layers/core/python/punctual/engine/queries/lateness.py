"""Lateness counted in steps, eight to each doubling, so that many runs take few numbers.

What is read from the counts is right to five in a hundred.
"""

from collections.abc import Callable, Mapping
from math import log2

STEPS = 8  # to the double of a lateness
NONE: Mapping[str, float | None] = {"p50": None, "p99": None, "max": None}


def step_of(units: float) -> int:
    """Return the step of a lateness in whole units; what is below one counts as one.

    >>> [step_of(units) for units in (0, 1, 2, 1000, 1024)]
    [0, 0, 8, 80, 80]
    """
    return round(STEPS * log2(max(1.0, units)))


def units_of(step: int) -> float:
    """
    >>> units_of(0), units_of(80)
    (1.0, 1024.0)
    """
    return float(2 ** (step / STEPS))


def quantiles(
    counts: Mapping[int, int], shown: Callable[[int], float]
) -> Mapping[str, float | None]:
    """Return the lateness of the middle run, of the 99th in a hundred, and of the latest."""
    total = sum(counts.values())
    if not total:
        return NONE
    return {
        "p50": shown(_at(counts, total // 2)),
        "p99": shown(_at(counts, min(total - 1, total * 99 // 100))),
        "max": shown(_at(counts, total - 1)),
    }


def _at(counts: Mapping[int, int], place: int) -> int:
    """The step of the run at this place, where all stand in order."""
    passed = 0
    for step in sorted(counts):
        passed += counts[step]
        if passed > place:
            return step
    raise AssertionError("the place is one of those counted")
