"""Comparison of start times on a busy machine: `make cold`."""

from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from bench.cold_start.emulator import Start
from bench.cold_start.measure import (
    BARE_FUNCTION,
    MAX_INIT_RATIO,
    measure_starts,
    names_over_aim,
    show,
)

QUIET = {BARE_FUNCTION: 100.0, "quick": 140.0, "slow": 100.0 * MAX_INIT_RATIO + 1}


def a_machine(takes: Mapping[str, float], busy: Callable[[int], float]) -> Callable[[str], Start]:
    """Return a start function. `busy` returns the factor of the start with that number."""
    numbers = Counter[str]()

    def begin(name: str) -> Start:
        number = numbers[name]
        numbers[name] += 1
        return Start(takes[name] * busy(number), takes[name])

    return begin


def test_fastest_start_of_each_function_is_reported() -> None:
    rows = measure_starts(a_machine(QUIET, lambda n: 1 if n == 4 else 2 + n), list(QUIET)[1:], 7, 0)
    assert [row.init()[0] for row in rows] == list(QUIET.values())
    assert names_over_aim(rows) == ["slow"]


def test_disturbed_medians_do_not_exceed_the_aim(capsys: pytest.CaptureFixture[str]) -> None:
    """Once, nine of ten starts of one function were slowed down by other work."""
    disturbed = iter([240.0, 240.0, 130.0, 240.0, 240.0])
    rows = measure_starts(
        lambda name: Start(100.0 if name == BARE_FUNCTION else next(disturbed), 1.0), ["one"], 5, 0
    )
    assert rows[1].init() == (130.0, 240.0)
    assert names_over_aim(rows) == []
    show(rows)
    (line,) = [
        report_line
        for report_line in capsys.readouterr().out.splitlines()
        if report_line.startswith("one")
    ]
    assert line.split()[1:5] == ["130", "240", "1.30", "2.40"]
    assert "above the aim" not in line


def test_function_over_the_aim_is_measured_again_with_the_bare_one() -> None:
    slows = iter([300.0, 300.0, 300.0, 150.0, 140.0])
    begun = Counter[str]()

    def begin(name: str) -> Start:
        begun[name] += 1
        return Start({BARE_FUNCTION: 100.0, "quick": 120.0}.get(name) or next(slows), 1.0)

    assert names_over_aim(measure_starts(begin, ["quick", "slow"], 2, 10)) == []
    assert begun == {BARE_FUNCTION: 4, "quick": 2, "slow": 4}


def test_slow_function_exceeds_the_aim_after_all_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    rows = measure_starts(a_machine(QUIET, lambda _: 1), ["quick", "slow"], 2, 3)
    assert names_over_aim(rows) == ["slow"]
    assert [len(row.starts) for row in rows] == [5, 2, 5]
    show(rows)
    slow = [line.split()[0] for line in capsys.readouterr().out.splitlines() if "above" in line]
    assert slow == ["slow"]
