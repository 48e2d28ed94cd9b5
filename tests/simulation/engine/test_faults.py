"""One fault at a port call of every story: nothing is lost, doubled, early or unfenced.

Each day plays some of the calls, and within a few days all of them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.support.simulation.scenario import Scenario
from tests.support.simulation.scenarios import SCENARIOS
from tests.support.simulation.seeds import share
from tests.support.simulation.torn import Call, Fault, Tear, tears

STRIDE = 5  # of the faults that are not played each day
STALLS = (3.0, 45.0)  # the world goes on so long while a process stands still in a call
AHEAD = 60.0  # as on AWS
AT_ITS_TIME = 0.0


def calls_of(scenario: Scenario, ahead: float) -> list[Call]:
    return scenario.play(ahead=ahead).plan.calls


def cut_off(calls: Sequence[Call]) -> Iterator[Fault]:
    """Before, after, in the middle; the process dies or sees the port unavailable."""
    for number, call in enumerate(calls, 1):
        for tear, crash in tears(call):
            yield Fault(number, tear, crash)


def slowed(calls: Sequence[Call]) -> Iterator[Fault]:
    """A process stands still before or after a call, or does it twice."""
    for number, call in enumerate(calls, 1):
        for seconds in STALLS:
            yield Fault(number, Tear.STALL_BEFORE, seconds=seconds)
        if not call.reads:
            yield Fault(number, Tear.STALL_AFTER, seconds=STALLS[-1])
            yield Fault(number, Tear.TWICE)


def broken_by(
    scenario: Scenario, calls: Sequence[Call], faults: Sequence[Fault], **setup: Any
) -> list[str]:
    """What each fault broke, if anything."""
    found = []
    for fault in faults:
        try:
            scenario.play([fault], **setup)
        except AssertionError as error:
            call = calls[fault.call - 1]
            found.append(f"{fault} ({call.process}: {call.port}.{call.method}): {error}")
    return found


NAMES = [scenario.name for scenario in SCENARIOS]
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=NAMES)


@every_scenario
def test_a_fault_at_any_call_breaks_no_rule_when_firing_ahead(scenario: Scenario) -> None:
    calls = calls_of(scenario, AHEAD)
    broken = broken_by(scenario, calls, share(list(cut_off(calls)), 2), ahead=AHEAD)
    assert not broken, f"{len(broken)} of {len(calls)} calls: {broken[:5]}"


@every_scenario
def test_a_fault_at_any_call_breaks_no_rule_when_firing_at_its_time(scenario: Scenario) -> None:
    calls = calls_of(scenario, AT_ITS_TIME)
    broken = broken_by(scenario, calls, share(list(cut_off(calls)), STRIDE), ahead=AT_ITS_TIME)
    assert not broken, f"{len(broken)} of {len(calls)} calls: {broken[:5]}"


@every_scenario
def test_a_process_that_stands_still_or_repeats_itself_breaks_no_rule(scenario: Scenario) -> None:
    calls = calls_of(scenario, AHEAD)
    broken = broken_by(scenario, calls, share(list(slowed(calls)), STRIDE), ahead=AHEAD)
    assert not broken, f"{len(broken)} of {len(calls)} calls: {broken[:5]}"


@every_scenario
def test_lost_nudges_and_delivered_kills_break_no_rule(scenario: Scenario) -> None:
    lost = scenario.play(nudges_lost=True)
    told = scenario.play(kills_lost=False)
    assert lost.crashes == told.crashes == 0


@every_scenario
def test_late_twice_and_constant_ticks_break_no_rule(scenario: Scenario) -> None:
    for seconds in (20.0, 60.0, 110.0):
        world = scenario.play(twin_ticks=True, tick_seconds=seconds)
        assert world.crashes == 0
