"""Every story once more, with a planner and pollers that are functions, and die or repeat."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests.support.simulation.drawn import NEVER, on_functions
from tests.support.simulation.functions import OnFunctions
from tests.support.simulation.scenario import is_over
from tests.support.simulation.scenarios import SCENARIOS
from tests.support.simulation.seeds import share
from tests.support.simulation.torn import Call, Fault, Tear, tears
from tests.support.simulation.world import World

STRIDE = 11
FUNCTIONS = ("planner", "poller", "poller2")
LATE = timedelta(seconds=7)  # clocks that differ by five, and two
RESUMED = "pause and resume"  # what fell into the pause runs after it

STORIES = [on_functions(scenario) for scenario in SCENARIOS]
every_story = pytest.mark.parametrize("story", STORIES, ids=[one.name for one in STORIES])


def played(story: OnFunctions, *faults: Fault, **setup: Any) -> World:
    """Without ticks a story of an outage has none: pollers call each other on."""
    return story.play(faults or ([NEVER] if story.setup.no_ticks else []), **setup)


def faults_of(calls: Sequence[Call]) -> list[Fault]:
    found = []
    for number, call in enumerate(calls, 1):
        if call.process in FUNCTIONS:
            found += [Fault(number, tear, crash) for tear, crash in tears(call)]
            found += [Fault(number, Tear.STALL_BEFORE, seconds=45.0)]
            if not call.reads:
                found += [Fault(number, Tear.TWICE)]
    return found


def broken_by(story: OnFunctions, faults: Sequence[Fault], **setup: Any) -> list[str]:
    broken = []
    for fault in faults:
        try:
            played(story, fault, **setup)
        except AssertionError as error:
            broken.append(f"{fault}: {error}")
    return broken


@every_story
def test_every_story_ends_well_on_functions(story: OnFunctions) -> None:
    world = played(story)
    late = [
        run
        for run in world.laws.ended.values()
        if run.attempt_at
        and run.attempt == 1
        and run.attempt_at - run.due_at - run.wait_queue_time > LATE
    ]
    assert not late or story.name == RESUMED, late


@every_story
def test_a_function_that_dies_or_repeats_anywhere_breaks_no_rule(story: OnFunctions) -> None:
    calls = played(story).plan.calls
    broken = broken_by(story, share(faults_of(calls), STRIDE))
    assert not broken, broken[:5]


@every_story
def test_wake_ups_that_are_lost_are_found_by_the_ticks(story: OnFunctions) -> None:
    assert is_over(played(story, nudges_lost=True))


@every_story
def test_two_ticks_at_a_time_break_no_rule(story: OnFunctions) -> None:
    assert is_over(played(story, twin_ticks=True))


@every_story
def test_without_ticks_for_minutes_all_is_caught_up(story: OnFunctions) -> None:
    assert is_over(played(story, NEVER, no_ticks=(30.0, 400.0)))
