"""Executor functions hand over long scripts, large ones, and artifacts to detached runners."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from punctual.domain.decide import Verdict
from punctual.domain.errors import Unavailable
from punctual.domain.leases import DETACHED_LEASE
from punctual.domain.run import RunStatus
from punctual.domain.task_limits import MAX_WAITED_SCRIPT_SECONDS
from punctual.engine.execution.executor import StartedAttempt
from punctual.engine.ports.rows import JobKey
from punctual.lambdas.executor.attempt import HANDOVER_SECONDS
from punctual.lambdas.runtime import Runtime
from punctual.tasks.contract import BadTask, Throttled
from punctual.tasks.script_function import RUNNER_ANSWER_SECONDS, NoAnswer
from tests.support.builders import NOON, after
from tests.support.deployed.drivers.executors import Executors, executors
from tests.support.deployed.drivers.script_functions import (
    ARTIFACT,
    ARTIFACT_ID,
    LEASE_TIMER_DELAY,
    LONG,
    SCRIPT,
    SHORT,
    Functions,
    claim_of,
    invoke,
    lease_seconds,
    script_functions,
)
from tests.support.simulation.port_faults import Call, Crash, Fault, Plan, fault_kinds

WITH_ARTIFACT = {
    "task": {"type": "script", "runtime": "python", "artifact_id": ARTIFACT_ID},
    "timeout_seconds": 20,
    "max_retries": 0,
}
LARGE = {
    "task": {**SCRIPT, "resources": {"memory_mb": 1024}},
    "timeout_seconds": 20,
    "max_retries": 0,
}
HANDED_OVER = pytest.mark.parametrize("document", [LONG, WITH_ARTIFACT], ids=["long", "artifact"])
LEASE_ENDED = NOON + DETACHED_LEASE + LEASE_TIMER_DELAY


def test_long_script_goes_to_a_detached_runner(world: Executors, functions: Functions) -> None:
    key = world.submit(**LONG)
    records = world.records()
    assert invoke(world, records) == []
    (event,) = functions.started
    assert (event["mode"], event["timeout_seconds"]) == ("detached", 120)
    assert world.status(key) is RunStatus.CLAIMED
    assert lease_seconds(world, key) == DETACHED_LEASE.total_seconds()
    assert world.clock() == NOON, "the executor waits for nothing"


def test_lease_is_extended_before_the_function_is_invoked(
    world: Executors, functions: Functions
) -> None:
    key, leases, timers = world.submit(**LONG), list[float](), list[Any]()

    def look() -> None:
        with world.world.meter.as_role("test"):
            leases.append(lease_seconds(world, key))
            timers.extend(timer.at for timer in world.aws.timers())

    functions.answers = [look]
    invoke(world)
    assert leases == [DETACHED_LEASE.total_seconds()]
    assert any(NOON + DETACHED_LEASE <= at <= LEASE_ENDED for at in timers), (
        "a timer ends the lease if the runner never starts"
    )


def test_runner_finishes_the_run_by_its_claim(world: Executors, functions: Functions) -> None:
    key = world.submit(**LONG)
    invoke(world)
    claim = claim_of(functions.started[0])
    attempt = StartedAttempt(key, claim.run_id, claim.token, "runner-1")
    (result,) = world.runtime.executor.start([attempt])
    assert result.decision is not None
    world.clock.set(after(30))
    assert world.records() == [], "and its message does not return"


@HANDED_OVER
@pytest.mark.parametrize("delivery", [{}, {"delivery": "AT_MOST_ONCE"}])
def test_script_without_a_runner_starts_again_and_no_attempt_counts(
    world: Executors, functions: Functions, document: dict[str, Any], delivery: dict[str, str]
) -> None:
    """Lambda drops an event that it cannot start for a minute."""
    key = world.submit(**document, **delivery)
    invoke(world)
    world.clock.set(NOON + DETACHED_LEASE - timedelta(seconds=1))
    world.evaluate_due_timers()
    assert world.status(key) is RunStatus.CLAIMED
    world.clock.set(LEASE_ENDED)
    world.evaluate_due_timers()
    assert world.status(key) is RunStatus.WAITING
    world.clock.set(LEASE_ENDED + timedelta(seconds=60))
    world.evaluate_due_timers()
    assert world.status(key) is RunStatus.QUEUED
    invoke(world)
    first, second = (claim_of(event) for event in functions.started)
    assert second.token > first.token, "so the first runner can change nothing"
    assert (first.attempt_number, second.attempt_number) == (1, 1)


def test_script_that_never_gets_a_runner_is_not_failed(
    world: Executors, functions: Functions
) -> None:
    key = world.submit(**LONG)
    for round_number in range(1, 8):  # more than the lost attempts that a run may have
        invoke(world)
        world.clock.set(NOON + round_number * timedelta(minutes=10))
        world.evaluate_due_timers()  # the lease has ended
        world.clock.advance(timedelta(minutes=5))
        world.evaluate_due_timers()  # and so has the wait
        assert world.status(key) is RunStatus.QUEUED
    assert {claim_of(event).attempt_number for event in functions.started} == {1}


def test_at_most_once_script_with_a_lost_runner_has_no_second_one(
    world: Executors, functions: Functions
) -> None:
    key = world.submit(**LONG, delivery="AT_MOST_ONCE")
    invoke(world)
    claim = claim_of(functions.started[0])
    attempt = StartedAttempt(key, claim.run_id, claim.token, "runner-1")
    (result,) = world.runtime.executor.start([attempt])
    assert result.verdict is Verdict.OK
    world.clock.set(LEASE_ENDED)
    world.evaluate_due_timers()
    assert world.status(key) is RunStatus.FAILED
    assert len(functions.started) == 1


def test_throttled_start_returns_the_run_without_an_attempt(
    world: Executors, functions: Functions
) -> None:
    key = world.submit(**LONG, delivery="AT_MOST_ONCE")
    functions.answers = [Throttled("Lambda does not start another script now")]
    invoke(world)
    assert world.status(key) is RunStatus.WAITING
    world.clock.set(after(60))
    world.evaluate_due_timers()
    invoke(world)
    assert [claim_of(event).attempt_number for event in functions.started] == [1, 1]
    assert world.status(key) is RunStatus.CLAIMED


def test_lost_answer_of_a_start_leaves_the_run_to_its_runner(
    world: Executors, functions: Functions
) -> None:
    key = world.submit(**LONG)
    functions.answers = [NoAnswer("ReadTimeoutError")]
    assert invoke(world) == []
    assert world.status(key) is RunStatus.CLAIMED
    assert len(functions.started) == 1, "a second call could start a second runner"


def test_cancelled_run_is_not_handed_over(world: Executors, functions: Functions) -> None:
    key = world.submit(**LONG)
    records = world.records()

    renew = world.runtime.executor.renew

    def cancel_then_renew(*args: Any, **options: Any) -> Any:
        with world.world.meter.as_role("test"):
            world.jobs.cancel(*key)
        return renew(*args, **options)

    world.runtime.executor.renew = cancel_then_renew  # type: ignore[method-assign]
    invoke(world, records)
    assert functions.started == []
    assert world.status(key) is RunStatus.CANCELLED


def test_script_with_an_artifact_is_handed_over_however_short(
    world: Executors, functions: Functions
) -> None:
    key = world.submit(**WITH_ARTIFACT)
    assert invoke(world) == []
    (event,) = functions.started
    assert (event["mode"], event["timeout_seconds"], functions.events) == ("detached", 20, [])
    assert event["task"]["artifact"]["url"] == ARTIFACT.url
    assert world.status(key) is RunStatus.CLAIMED
    assert lease_seconds(world, key) == DETACHED_LEASE.total_seconds()


def test_script_with_a_missing_artifact_fails_without_a_start(
    world: Executors, functions: Functions
) -> None:
    functions.artifact_error = BadTask(f"There is no artifact {ARTIFACT_ID}")
    key = world.submit(**{**WITH_ARTIFACT, "max_retries": 3})
    invoke(world)
    view = world.run(key)
    assert (view.run.status, view.run.attempt) == (RunStatus.FAILED, 1)
    assert view.detail.error == f"There is no artifact {ARTIFACT_ID}"
    assert functions.started == []


def test_artifact_that_cannot_be_read_for_now_is_no_attempt(
    world: Executors, functions: Functions
) -> None:
    functions.artifact_error = Unavailable("The store does not answer.")
    key = world.submit(**WITH_ARTIFACT, delivery="AT_MOST_ONCE")
    invoke(world)
    assert world.status(key) is RunStatus.WAITING
    functions.artifact_error = None
    world.clock.set(after(60))
    world.evaluate_due_timers()
    invoke(world)
    assert [claim_of(event).attempt_number for event in functions.started] == [1]


def test_short_script_with_more_memory_than_a_function_is_handed_over_as_claimed(
    world: Executors, functions: Functions
) -> None:
    key = world.submit(**LARGE, delivery="AT_MOST_ONCE")
    invoke(world)
    assert world.status(key) is RunStatus.CLAIMED
    world.clock.set(LEASE_ENDED + timedelta(minutes=4))
    world.evaluate_due_timers()
    view = world.run(key)
    assert (view.run.status, view.run.attempt) == (RunStatus.WAITING, 1), "nothing has begun"


@pytest.mark.parametrize("order", [0, 1])
@HANDED_OVER
def test_short_task_beside_a_handover_begins_first(
    world: Executors, functions: Functions, document: dict[str, Any], order: int
) -> None:
    """A handover first extends leases, which may take long. A timeout counts from the claim."""
    documents = {"short": {**SHORT, "timeout_seconds": 1}, "handed over": document}
    names = list(documents) if order == 0 else list(reversed(documents))
    keys = {name: world.submit(**documents[name]) for name in names}
    begun: list[str] = []
    functions.answers = [lambda: begun.append("short"), lambda: begun.append("handed over")]
    renew = world.runtime.executor.renew

    def slow_renew(*args: Any, **options: Any) -> Any:
        if options.get("lease") == DETACHED_LEASE:
            begun.append("lease extended")
            world.clock.advance(timedelta(seconds=5))
        return renew(*args, **options)

    world.runtime.executor.renew = slow_renew  # type: ignore[method-assign]
    assert invoke(world, sorted(world.records(), key=lambda record: record["body"])) == []
    assert begun == ["short", "lease extended", "handed over"]
    assert world.status(keys["short"]) is RunStatus.SUCCESS
    assert world.status(keys["handed over"]) is RunStatus.CLAIMED


def test_hanging_start_is_left_to_its_lease(world: Executors, functions: Functions) -> None:
    """The executor waits for the start in vain, for example while a secret is read."""
    key = world.submit(**LONG, payload={"lasts": 500, "stubborn": True})
    invoke(world)
    waited = (world.clock() - NOON).total_seconds()
    assert waited == pytest.approx(HANDOVER_SECONDS + RUNNER_ANSWER_SECONDS, abs=2)
    assert world.status(key) is RunStatus.CLAIMED
    assert lease_seconds(world, key) == pytest.approx(DETACHED_LEASE.total_seconds() - waited)


HANDOVERS = {"long": LONG, "artifact": WITH_ARTIFACT}


@cache
def handover_calls(name: str) -> tuple[Call, ...]:
    with executors() as world:
        functions = script_functions(world)
        world.submit(**HANDOVERS[name])
        plan = Plan()
        invoke(world, runtime=world.faulty_runtime(plan))
        assert functions.started
        return tuple(plan.calls)


def handover_faults() -> list[Any]:
    return [
        pytest.param(
            name,
            Fault(number, kind, crash),
            id=f"{name} {call.port}.{call.method} {kind}{' crash' if crash else ''} {number}",
        )
        for name in HANDOVERS
        for number, call in enumerate(handover_calls(name), start=1)
        for kind, crash in fault_kinds(call)
    ]


@pytest.mark.parametrize("name", HANDOVERS)
def test_faults_cover_the_lease_of_the_handover(name: str) -> None:
    names = [f"{call.port}.{call.method}" for call in handover_calls(name)]
    assert names[-2:] == ["wakeups.notify_new_timers", "job_states.renew_leases"]


@pytest.mark.parametrize(("name", "fault"), handover_faults())
def test_handover_with_one_fault_ends_with_one_runner(name: str, fault: Fault) -> None:
    with executors() as world:
        functions = script_functions(world)
        key = world.submit(**HANDOVERS[name])
        settle(world, functions, key, lambda runtime: world.faulty_runtime(Plan((fault,))))
        assert_one_runner(world, functions, key)


@HANDED_OVER
@pytest.mark.parametrize("sent", [True, False])
def test_crash_around_the_start_ends_with_one_runner(sent: bool, document: dict[str, Any]) -> None:
    """The executor dies before Lambda has the event, or before it sees the answer."""
    with executors() as world:
        functions = script_functions(world)
        functions.crash_before, functions.answers = not sent, [Crash()]
        key = world.submit(**document)
        settle(world, functions, key, lambda runtime: runtime)
        assert_one_runner(world, functions, key)


def settle(
    world: Executors,
    functions: Functions,
    key: JobKey,
    first_runtime: Callable[[Runtime], Runtime],
) -> None:
    """Go on until the run is handed over and its runner could start.

    A planned crash ends an invocation. SQS then delivers its messages again.
    """
    runtime, old = first_runtime(world.new_runtime()), world.records()
    for _ in range(12):
        with suppress(Crash):
            failed = invoke(world, old, runtime) if old else []
            old = [record for record in old if record["messageId"] in failed]
        world.clock.advance(timedelta(seconds=31))
        world.evaluate_due_timers()
        runtime = world.new_runtime()
        old = [*old, *world.records()]
        claims = [claim_of(event) for event in functions.started]
        if claims and world.run(key).run.token == claims[-1].token:
            break


def assert_one_runner(world: Executors, functions: Functions, key: JobKey) -> None:
    claims, run = [claim_of(event) for event in functions.started], world.run(key).run
    assert run.status is RunStatus.CLAIMED, "the run has a runner"
    tokens = [claim.token for claim in claims]
    assert tokens == sorted(set(tokens)), "each start has a token of its own"
    for claim in claims[:-1]:
        stale = StartedAttempt(key, claim.run_id, claim.token, "stale")
        (result,) = world.runtime.executor.start([stale])
        assert result.verdict is Verdict.FENCED, "and an earlier runner may not begin"
    last = StartedAttempt(key, claims[-1].run_id, claims[-1].token, "last")
    (result,) = world.runtime.executor.start([last])
    assert result.verdict is Verdict.OK


def test_executor_that_has_to_end_soon_hands_over(world: Executors, functions: Functions) -> None:
    world.submit(**{**SHORT, "timeout_seconds": MAX_WAITED_SCRIPT_SECONDS})
    invoke(world, seconds_left=30)
    assert (len(functions.started), functions.events) == (1, [])
