"""Count lateness in steps, eight to each doubling, so that a histogram stays small.

Values read from the counts are correct within five percent.
"""

from collections.abc import Callable, Mapping
from math import log2

STEPS_PER_DOUBLING = 8  # steps to each doubling of a lateness
NO_LATENESS: Mapping[str, float | None] = {"p50": None, "p99": None, "max": None}


def step_of(units: float) -> int:
    """Return the step of a lateness in whole units. Values below one count as one.

    >>> [step_of(units) for units in (0, 1, 2, 1000, 1024)]
    [0, 0, 8, 80, 80]
    """
    return round(STEPS_PER_DOUBLING * log2(max(1.0, units)))


def units_of(step: int) -> float:
    """Return the lateness of a step.

    >>> units_of(0), units_of(80)
    (1.0, 1024.0)
    """
    return float(2 ** (step / STEPS_PER_DOUBLING))


def quantiles(
    counts: Mapping[int, int], value_of_step: Callable[[int], float]
) -> Mapping[str, float | None]:
    """Return the median, the 99th percentile and the maximum of the lateness."""
    total = sum(counts.values())
    if not total:
        return NO_LATENESS
    return {
        "p50": value_of_step(_step_at(counts, total // 2)),
        "p99": value_of_step(_step_at(counts, min(total - 1, total * 99 // 100))),
        "max": value_of_step(_step_at(counts, total - 1)),
    }


def _step_at(counts: Mapping[int, int], rank: int) -> int:
    """Return the step of the run with this rank in the order of lateness."""
    counted = 0
    for step in sorted(counts):
        counted += counts[step]
        if counted > rank:
            return step
    raise AssertionError("the rank is below the total")
