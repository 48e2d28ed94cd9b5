"""One decision reads the clock once, and uses this time until its last step."""

from typing import Any

import pytest

from punctual.domain.errors import Unavailable
from punctual.domain.run import RunStatus
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.ports.timers import Timer
from tests.support.simulation.manual_engine import ManualEngine
from tests.support.simulation.port_faults import Fault, FaultKind
from tests.support.simulation.scenario import Scenario, is_over, outcomes
from tests.support.simulation.scenarios import SCENARIOS

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def skews(api: float, planner: float, poller: float, e1: float, e2: float) -> dict[str, float]:
    return {"api": api, "planner": planner, "poller": poller, "e1": e1, "e2": e2}


# In each case a slow call makes a timer due between a decision and its last step.
CASES: list[tuple[str, list[Fault], dict[str, Any]]] = [
    (
        "interval from completion",
        [
            Fault(32, FaultKind.BEFORE, crash=True),
            Fault(65, FaultKind.BEFORE),
            Fault(78, FaultKind.STALL_BEFORE, seconds=2.0),
            Fault(89, FaultKind.STALL_BEFORE, seconds=2.0),
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
            Fault(35, FaultKind.STALL_BEFORE, seconds=70.0),
            Fault(7, FaultKind.STALL_BEFORE, seconds=12.0),
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
            Fault(16, FaultKind.BEFORE),
            Fault(41, FaultKind.STALL_AFTER, seconds=35.0),
            Fault(21, FaultKind.AFTER),
            Fault(20, FaultKind.BEFORE),
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
            Fault(126, FaultKind.AFTER),
            Fault(104, FaultKind.STALL_AFTER, seconds=2.0),
            Fault(115, FaultKind.STALL_AFTER, seconds=35.0),
            Fault(42, FaultKind.BEFORE),
            Fault(93, FaultKind.AFTER),
            Fault(89, FaultKind.BEFORE),
            Fault(6, FaultKind.BEFORE, crash=True),
            Fault(52, FaultKind.STALL_BEFORE, seconds=12.0),
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
def test_timer_that_becomes_due_in_a_slow_call_is_evaluated(
    name: str, faults: list[Fault], setup: dict[str, Any]
) -> None:
    scenario: Scenario = BY_NAME[name]
    world = scenario.play(faults, **setup)
    assert is_over(world), outcomes(world)


def unavailable() -> None:
    raise Unavailable("The queue does not answer.")


def evaluate_slowly(engine: ManualEngine, timer: Timer, seconds: float) -> None:
    """Evaluate a timer while the read of the job state takes `seconds`."""
    engine.plan.before("job_states.load", lambda: engine.wait(seconds))
    applier = engine.applier(engine.interrupted("poller"))
    Evaluator(applier, engine.new_id).evaluate_timers([timer])


def test_fallback_timer_survives_an_early_evaluation_past_its_time() -> None:
    engine = ManualEngine()
    engine.plan.before("run_queue.send", unavailable)
    key = engine.submit()
    (fallback_timer,) = engine.timers()
    engine.now = fallback_timer.at
    engine.wait(-0.8)

    evaluate_slowly(engine, fallback_timer, seconds=1)
    assert engine.now > fallback_timer.at
    assert engine.timers() == [fallback_timer]

    engine.evaluate(fallback_timer)
    assert engine.message().run_id == engine.state(key).runs[0].run_id


def test_lease_timer_survives_an_early_evaluation_past_the_lease_end() -> None:
    engine = ManualEngine()
    key = engine.submit()
    assignment = engine.claim()
    engine.executor().renew([(key, assignment.run.run_id, assignment.run.token)], is_first=True)
    (lease_timer,) = [timer for timer in engine.timers() if timer.version == assignment.run.token]
    engine.now = lease_timer.at
    engine.wait(-0.8)

    evaluate_slowly(engine, lease_timer, seconds=1)
    assert lease_timer in engine.timers()

    engine.wait(1)
    engine.evaluate(lease_timer)
    (run,) = engine.state(key).runs
    assert (run.status, run.past_attempts) == (RunStatus.QUEUED, "L")
