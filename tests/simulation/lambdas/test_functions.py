"""Each story with planner and pollers as functions, which crash or repeat."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests.support.simulation.functions import OnFunctions
from tests.support.simulation.port_faults import Call, Fault, FaultKind, fault_kinds
from tests.support.simulation.random_plays import NO_FAULT, on_functions
from tests.support.simulation.scenario import is_over
from tests.support.simulation.scenarios import SCENARIOS
from tests.support.simulation.seeds import share
from tests.support.simulation.world import World

STRIDE = 11
FUNCTIONS = ("planner", "poller", "poller2")
LATE = timedelta(seconds=7)  # clocks that differ by five, and two
# Occurrences missed in the pause run after it.
RESUMED = ("pause and resume", "pause until a time")

STORIES = [on_functions(scenario) for scenario in SCENARIOS]
every_story = pytest.mark.parametrize("story", STORIES, ids=[story.name for story in STORIES])


def play(story: OnFunctions, *faults: Fault, **setup: Any) -> World:
    """Play a story. In a story with an outage pollers wake each other without ticks."""
    return story.play(faults or ([NO_FAULT] if story.setup.no_ticks else []), **setup)


def faults_of(calls: Sequence[Call]) -> list[Fault]:
    faults = []
    for number, call in enumerate(calls, 1):
        if call.process in FUNCTIONS:
            faults += [Fault(number, kind, crash) for kind, crash in fault_kinds(call)]
            faults += [Fault(number, FaultKind.STALL_BEFORE, seconds=45.0)]
            if not call.reads:
                faults += [Fault(number, FaultKind.TWICE)]
    return faults


def broken_by(story: OnFunctions, faults: Sequence[Fault], **setup: Any) -> list[str]:
    failures_of = []
    for fault in faults:
        try:
            play(story, fault, **setup)
        except AssertionError as error:
            failures_of.append(f"{fault}: {error}")
    return failures_of


@every_story
def test_story_on_functions_ends_with_all_runs_on_time(story: OnFunctions) -> None:
    world = play(story)
    late = [
        run
        for run in world.invariants.ended.values()
        if run.attempt_at
        and run.attempt == 1
        and run.attempt_at - run.due_at - run.wait_queue_time > LATE
    ]
    assert not late or story.name in RESUMED, late


@every_story
def test_function_that_crashes_or_repeats_breaks_no_rule(story: OnFunctions) -> None:
    calls = play(story).plan.calls
    failures_of = broken_by(story, share(faults_of(calls), STRIDE))
    assert not failures_of, failures_of[:5]


@every_story
def test_ticks_find_the_timers_of_lost_wake_ups(story: OnFunctions) -> None:
    assert is_over(play(story, wake_ups_lost=True))


@every_story
def test_two_concurrent_ticks_break_no_rule(story: OnFunctions) -> None:
    assert is_over(play(story, twin_ticks=True))


@every_story
def test_all_runs_catch_up_after_minutes_without_ticks(story: OnFunctions) -> None:
    assert is_over(play(story, NO_FAULT, no_ticks=(30.0, 400.0)))
