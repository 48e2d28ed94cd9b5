"""One decision reads the clock once: what its time makes of timers holds until its last step."""

from typing import Any

import pytest

from punctual.domain.errors import Unavailable
from punctual.domain.run import RunStatus
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.ports.timers import Timer
from tests.support.simulation.hand import Hand
from tests.support.simulation.scenario import Scenario, is_over, outcomes
from tests.support.simulation.scenarios import SCENARIOS
from tests.support.simulation.torn import Fault, Tear

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def skews(api: float, planner: float, poller: float, e1: float, e2: float) -> dict[str, float]:
    return {"api": api, "planner": planner, "poller": poller, "e1": e1, "e2": e2}


# In each, a call takes so long that a timer becomes due between a decision and its last step.
CASES: list[tuple[str, list[Fault], dict[str, Any]]] = [
    (
        "interval from completion",
        [
            Fault(32, Tear.BEFORE, crash=True),
            Fault(65, Tear.BEFORE),
            Fault(78, Tear.STALL_BEFORE, seconds=2.0),
            Fault(89, Tear.STALL_BEFORE, seconds=2.0),
        ],
        {
            "seed": 51045,
            "ahead": 2.0,
            "skews": skews(5.0, 2.9304045794021887, 5.0, 5.0, 0.0),
            "twin_ticks": True,
        },
    ),
    (
        "at most once, and the executor dies",
        [
            Fault(35, Tear.STALL_BEFORE, seconds=70.0),
            Fault(7, Tear.STALL_BEFORE, seconds=12.0),
        ],
        {
            "seed": 50488,
            "skews": skews(0.0, 2.319998457672172, 0.0, 0.36888409395050503, 3.4318689566903986),
            "twin_ticks": True,
            "repeats": 0.3,
        },
    ),
    (
        "at most once, and the executor dies",
        [
            Fault(16, Tear.BEFORE),
            Fault(41, Tear.STALL_AFTER, seconds=35.0),
            Fault(21, Tear.AFTER),
            Fault(20, Tear.BEFORE),
        ],
        {
            "seed": 70026,
            "skews": skews(5.0, 0.0, 5.0, 0.0, 4.813377583621283),
            "repeats": 0.3,
        },
    ),
    (
        "cron",
        [
            Fault(126, Tear.AFTER),
            Fault(104, Tear.STALL_AFTER, seconds=2.0),
            Fault(115, Tear.STALL_AFTER, seconds=35.0),
            Fault(42, Tear.BEFORE),
            Fault(93, Tear.AFTER),
            Fault(89, Tear.BEFORE),
            Fault(6, Tear.BEFORE, crash=True),
            Fault(52, Tear.STALL_BEFORE, seconds=12.0),
        ],
        {
            "seed": 50170,
            "ahead": 2.0,
            "skews": skews(0.0, 5.0, 5.0, 4.610887950488407, 5.0),
            "twin_ticks": True,
            "repeats": 0.3,
        },
    ),
]


@pytest.mark.parametrize(
    ("name", "faults", "setup"), CASES, ids=[f"{case[0]} {case[2]['seed']}" for case in CASES]
)
def test_a_timer_that_becomes_due_in_a_slow_call_is_still_looked_at(
    name: str, faults: list[Fault], setup: dict[str, Any]
) -> None:
    scenario: Scenario = BY_NAME[name]
    world = scenario.play(faults, **setup)
    assert is_over(world), outcomes(world)


def unavailable() -> None:
    raise Unavailable("The queue does not answer.")


def slow_look(hand: Hand, timer: Timer, seconds: float) -> None:
    """An evaluation whose read of the job state takes so long."""
    hand.plan.before("job_states.load", lambda: hand.wait(seconds))
    steps = hand.steps(hand.interrupted("poller"))
    Evaluator(steps, hand.new_id).evaluate_timers([timer])


def test_the_timer_behind_an_api_call_survives_an_early_look_that_crosses_its_time() -> None:
    hand = Hand()
    hand.plan.before("run_queue.send", unavailable)
    key = hand.submit()
    (safety,) = hand.timers()
    hand.now = safety.at
    hand.wait(-0.8)

    slow_look(hand, safety, seconds=1)
    assert hand.now > safety.at
    assert hand.timers() == [safety]

    hand.look(safety)
    assert hand.message().run_id == hand.head(key).runs[0].run_id


def test_the_watch_of_a_lease_survives_an_early_look_that_crosses_its_end() -> None:
    hand = Hand()
    key = hand.submit()
    held = hand.claim()
    hand.executor().renew([(key, held.run.run_id, held.run.token)], is_first=True)
    (watch,) = [timer for timer in hand.timers() if timer.version == held.run.token]
    hand.now = watch.at
    hand.wait(-0.8)

    slow_look(hand, watch, seconds=1)
    assert watch in hand.timers()

    hand.wait(1)
    hand.look(watch)
    (run,) = hand.head(key).runs
    assert (run.status, run.past_attempts) == (RunStatus.QUEUED, "L")
