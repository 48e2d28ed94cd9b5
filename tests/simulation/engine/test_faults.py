"""One fault at a port call of each story: no run is lost, repeated, early or unfenced.

Each day plays some of the calls, and within a few days all of them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.support.simulation.port_faults import Call, Fault, FaultKind, fault_kinds
from tests.support.simulation.scenario import Scenario
from tests.support.simulation.scenarios import SCENARIOS
from tests.support.simulation.seeds import share

STRIDE = 5  # of the faults that are not played each day
STALLS = (3.0, 45.0)  # seconds for which a process hangs in a call
AHEAD = 60.0  # as on AWS
AT_ITS_TIME = 0.0


def calls_of(scenario: Scenario, ahead: float) -> list[Call]:
    return scenario.play(ahead=ahead).plan.calls


def interruptions(calls: Sequence[Call]) -> Iterator[Fault]:
    """Yield faults before, after and within each call, with a crash or an error of the port."""
    for number, call in enumerate(calls, 1):
        for kind, crash in fault_kinds(call):
            yield Fault(number, kind, crash)


def delays(calls: Sequence[Call]) -> Iterator[Fault]:
    """Yield stalls of a process before or after each call, and repeated calls."""
    for number, call in enumerate(calls, 1):
        for seconds in STALLS:
            yield Fault(number, FaultKind.STALL_BEFORE, seconds=seconds)
        if not call.reads:
            yield Fault(number, FaultKind.STALL_AFTER, seconds=STALLS[-1])
            yield Fault(number, FaultKind.TWICE)


def broken_by(
    scenario: Scenario, calls: Sequence[Call], faults: Sequence[Fault], **setup: Any
) -> list[str]:
    """Return the error of each fault that breaks a rule."""
    errors = []
    for fault in faults:
        try:
            scenario.play([fault], **setup)
        except AssertionError as error:
            call = calls[fault.call - 1]
            errors.append(f"{fault} ({call.process}: {call.port}.{call.method}): {error}")
    return errors


NAMES = [scenario.name for scenario in SCENARIOS]
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=NAMES)


@every_scenario
def test_fault_at_any_call_breaks_no_rule_when_firing_ahead(scenario: Scenario) -> None:
    calls = calls_of(scenario, AHEAD)
    broken = broken_by(scenario, calls, share(list(interruptions(calls)), 2), ahead=AHEAD)
    assert not broken, f"{len(broken)} of {len(calls)} calls: {broken[:5]}"


@every_scenario
def test_fault_at_any_call_breaks_no_rule_when_firing_at_its_time(scenario: Scenario) -> None:
    calls = calls_of(scenario, AT_ITS_TIME)
    broken = broken_by(
        scenario, calls, share(list(interruptions(calls)), STRIDE), ahead=AT_ITS_TIME
    )
    assert not broken, f"{len(broken)} of {len(calls)} calls: {broken[:5]}"


@every_scenario
def test_stalled_or_repeated_call_breaks_no_rule(scenario: Scenario) -> None:
    calls = calls_of(scenario, AHEAD)
    broken = broken_by(scenario, calls, share(list(delays(calls)), STRIDE), ahead=AHEAD)
    assert not broken, f"{len(broken)} of {len(calls)} calls: {broken[:5]}"


@every_scenario
def test_lost_wake_ups_and_delivered_stop_requests_break_no_rule(scenario: Scenario) -> None:
    without_wake_ups = scenario.play(wake_ups_lost=True)
    with_stop_requests = scenario.play(stop_requests_lost=False)
    assert without_wake_ups.crashes == with_stop_requests.crashes == 0


@every_scenario
def test_late_and_repeated_ticks_break_no_rule(scenario: Scenario) -> None:
    for seconds in (20.0, 60.0, 110.0):
        world = scenario.play(twin_ticks=True, tick_seconds=seconds)
        assert world.crashes == 0
