"""Executor functions and scripts: short ones are waited for, others go to a detached runner."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from punctual.domain.claims import ClaimIdentity, OutputUpload
from punctual.domain.decide import Verdict
from punctual.domain.errors import Unavailable
from punctual.domain.leases import DETACHED_LEASE, RUN_LEASE
from punctual.domain.run import RunStatus
from punctual.domain.task_limits import MAX_WAITED_SCRIPT_SECONDS
from punctual.engine.changes.run_results import log_key, log_part_key, log_parts_folder, output_key
from punctual.engine.changes.timer_placement import LEASE_TIMER_GRID_SECONDS
from punctual.engine.execution.executor import StartedAttempt
from punctual.engine.ports.blobs import TEXT_CONTENT_TYPE as TEXT
from punctual.engine.ports.rows import JobKey
from punctual.lambdas.executor.attempt import HANDOVER_SECONDS
from punctual.lambdas.runtime import Runtime
from punctual.tasks.contract import BadTask, Throttled
from punctual.tasks.runner_event import RunnerArtifact
from punctual.tasks.script_function import (
    RUNNER_ANSWER_SECONDS,
    NoAnswer,
    RunnerDied,
    ScriptFunctionTask,
)
from tests.support.builders import NOON, after
from tests.support.deployed.drivers.executors import Executors, Record, executors
from tests.support.simulation.port_faults import Call, Crash, Fault, Plan, fault_kinds

SCRIPT = {"type": "script", "runtime": "bash", "code": "echo done"}
LONG = {"task": SCRIPT, "timeout_seconds": 120, "max_retries": 0}
SHORT = {"task": SCRIPT, "timeout_seconds": 20, "max_retries": 0}
"""What the run makes of its attempt shows in its status."""
ARTIFACT_ID = "6c9e8f1a-2b3c-8d4e-af50-617283940516"
ARTIFACT = RunnerArtifact("https://objects.test/a.zip?signed", "0" * 64, "a.zip", 5)
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
LEASE_TIMER_DELAY = timedelta(seconds=LEASE_TIMER_GRID_SECONDS)
LEASE_ENDED = NOON + DETACHED_LEASE + LEASE_TIMER_DELAY


class Functions:
    """Script functions with a list of answers: each is returned, raised or called."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.crash_before = False
        self.artifact_error: Exception | None = None
        self.events: list[dict[str, Any]] = []
        self.started: list[dict[str, Any]] = []

    def invoke(self, _function: str, _tenant: str, event: bytes, _seconds: float, /) -> bytes:
        self.events.append(json.loads(event))
        answer = self._next()
        return json.dumps({"format": 1, "status": "SUCCESS", **(answer or {})}).encode()

    def start(self, _function: str, _tenant: str, event: bytes, /) -> None:
        if self.crash_before and self.answers:
            self._next()
        self.started.append(json.loads(event))
        self._next()

    def find_artifact(self, tenant: str, artifact_id: str) -> RunnerArtifact:
        assert (tenant, artifact_id) == ("acme", ARTIFACT_ID)
        if self.artifact_error is not None:
            raise self.artifact_error
        return ARTIFACT

    def _next(self) -> Any:
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        return answer() if callable(answer) else answer


@pytest.fixture
def world() -> Iterator[Executors]:
    with executors() as world:
        yield world


@pytest.fixture
def functions(world: Executors) -> Functions:
    return script_functions(world)


def script_functions(world: Executors) -> Functions:
    functions = Functions()
    world.script = ScriptFunctionTask(
        functions,
        sign=lambda claim: json.dumps(claim),
        api_url=lambda: "https://api.example.com/v1",
        memory_mb=512,
        find_artifact=functions.find_artifact,
    )
    return functions


def invoke(
    world: Executors,
    records: Sequence[Record] | None = None,
    runtime: Runtime | None = None,
    seconds_left: float = 900,
) -> list[str]:
    """Invoke the executor of scripts with these messages, or with all that are visible."""
    messages = world.records() if records is None else records
    return world.invoke(messages, runtime, "long", seconds_left)


def claim_of(event: dict[str, Any]) -> ClaimIdentity:
    return ClaimIdentity(*json.loads(event["claim"]))


def lease_seconds(world: Executors, key: JobKey) -> float:
    """Return how long the lease of the job's run still lasts."""
    (lease,) = world.runtime.ports.job_states.load([key])[key].leases.values()
    return (lease.until - world.clock()).total_seconds()


def encoded(text: bytes) -> str:
    return b64encode(text).decode()


# Handover


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


# Waiting


def test_result_of_a_short_script_is_stored_as_of_other_tasks(
    world: Executors, functions: Functions
) -> None:
    key = world.submit(**SHORT)
    functions.answers = [
        {
            "exit_code": 0,
            "output": encoded(b"done\n"),
            "output_type": TEXT,
            "log": encoded(b"done\n"),
        }
    ]
    assert invoke(world) == []
    view = world.run(key)
    assert view.run.status is RunStatus.SUCCESS
    assert (view.detail.exit_code, view.detail.output_type) == (0, TEXT)
    claim = claim_of(functions.events[0])
    assert world.world.object(output_key(key, claim.run_id, 1)) == b"done\n"
    assert world.world.object(log_key(key, claim.run_id, 1)) == b"done\n"
    assert functions.started == []


def test_failure_of_a_short_script_is_its_attempt(world: Executors, functions: Functions) -> None:
    key = world.submit(**SHORT)
    functions.answers = [{"status": "FAILED", "error": "Exit code 3\noops", "exit_code": 3}]
    invoke(world)
    view = world.run(key)
    assert (view.run.status, view.detail.error) == (RunStatus.FAILED, "Exit code 3\noops")
    assert view.detail.exit_code == 3


def test_log_that_was_sent_before_is_joined_with_the_rest(
    world: Executors, functions: Functions
) -> None:
    key = world.submit(**SHORT)

    def answer() -> dict[str, Any]:
        claim = claim_of(functions.events[0])
        part = log_part_key(log_parts_folder(key, claim.run_id, 1), claim.token, 0)
        with world.world.meter.as_role("test"):
            world.runtime.ports.blobs.put(part, b"early ", TEXT)
        return {"log": encoded(b"late"), "log_offset": len(b"early ")}

    functions.answers = [answer]
    invoke(world)
    claim = claim_of(functions.events[0])
    assert world.world.object(log_key(key, claim.run_id, 1)) == b"early late"


def test_output_that_the_runner_stored_is_that_of_the_run(
    world: Executors, functions: Functions
) -> None:
    world.world.put_token("any")
    key, tokens = world.submit(**SHORT), world.runtime.claim_tokens

    def answer() -> dict[str, Any]:
        claim = claim_of(functions.events[0])
        with world.world.meter.as_role("test"):
            world.runtime.ports.blobs.put(
                output_key(key, claim.run_id, 1), b"a,b", "text/csv", claim.token
            )
        return {"output_upload": tokens.sign_upload(claim, OutputUpload(3, "text/csv"))}

    functions.answers = [answer]
    invoke(world)
    view = world.run(key)
    claim, detail = claim_of(functions.events[0]), view.detail
    assert view.run.status is RunStatus.SUCCESS
    assert detail.output_blob == output_key(key, claim.run_id, 1)
    assert (detail.output_size, detail.output_type) == (3, "text/csv")


@pytest.mark.parametrize("stored_by", [None, "an earlier claim"])
def test_announced_output_that_this_claim_has_not_uploaded_fails_the_attempt(
    world: Executors, functions: Functions, stored_by: str | None
) -> None:
    world.world.put_token("any")
    key, tokens = world.submit(**SHORT), world.runtime.claim_tokens

    def answer() -> dict[str, Any]:
        claim = claim_of(functions.events[0])
        if stored_by:
            name = output_key(key, claim.run_id, 1)
            with world.world.meter.as_role("test"):
                world.runtime.ports.blobs.put(name, b"bad", "text/csv", claim.token - 1)
        return {"output_upload": tokens.sign_upload(claim, OutputUpload(3, "text/csv"))}

    functions.answers = [answer]
    invoke(world)
    view = world.run(key)
    assert (view.run.status, view.detail.output_blob) == (RunStatus.FAILED, "")
    assert view.detail.error == "The output that the executor announced was not uploaded."


def test_forged_upload_names_no_output(world: Executors, functions: Functions) -> None:
    world.world.put_token("any")
    key = world.submit(**SHORT)
    functions.answers = [{"output_upload": "forged"}]
    invoke(world)
    view = world.run(key)
    assert (view.run.status, view.detail.output_blob) == (RunStatus.FAILED, "")


@pytest.mark.parametrize("status", ["FAILED", "TIMED_OUT"])
def test_log_of_a_runner_without_an_answer_becomes_that_of_the_run(
    world: Executors, functions: Functions, status: str
) -> None:
    """The runner has sent a part of the log, and the executor abandons it."""
    key = world.submit(**SHORT)

    def answer() -> dict[str, Any]:
        claim = claim_of(functions.events[0])
        part = log_part_key(log_parts_folder(key, claim.run_id, 1), claim.token, 0)
        with world.world.meter.as_role("test"):
            world.runtime.ports.blobs.put(part, b"all that was sent\n", TEXT)
        return {"status": status}

    functions.answers = [answer]
    invoke(world)
    claim = claim_of(functions.events[0])
    assert world.run(key).detail.log_blob == log_key(key, claim.run_id, 1)
    assert world.world.object(log_key(key, claim.run_id, 1)) == b"all that was sent\n"
    with world.world.meter.as_role("test"):
        folder = log_parts_folder(key, claim.run_id, 1)
        assert world.runtime.ports.blobs.list_names(folder) == []


def test_throttled_short_script_is_no_attempt(world: Executors, functions: Functions) -> None:
    key = world.submit(**SHORT)
    functions.answers = [Throttled("Lambda does not start another script now")]
    invoke(world)
    assert world.status(key) is RunStatus.WAITING
    world.clock.set(after(60))
    world.evaluate_due_timers()
    invoke(world)
    assert world.status(key) is RunStatus.SUCCESS
    assert [event["attempt_number"] for event in functions.events] == [1, 1]


def test_dead_runner_is_a_lost_attempt_and_the_next_follows_at_once(
    world: Executors, functions: Functions
) -> None:
    key = world.submit(**SHORT)
    functions.answers = [RunnerDied("signal: killed")]
    invoke(world)
    assert world.status(key) is RunStatus.QUEUED
    invoke(world)
    assert world.status(key) is RunStatus.SUCCESS
    assert [event["attempt_number"] for event in functions.events] == [1, 2]


def test_lost_answer_is_not_repeated_before_the_lease_ends(
    world: Executors, functions: Functions
) -> None:
    key = world.submit(**SHORT)
    functions.answers = [NoAnswer("ReadTimeoutError")]
    assert invoke(world) == [], "a timer covers the lease"
    world.clock.advance(RUN_LEASE - timedelta(seconds=1))
    world.evaluate_due_timers()
    assert world.status(key) is RunStatus.RUNNING, "its runner may go on"
    world.clock.advance(timedelta(seconds=1) + LEASE_TIMER_DELAY)
    world.evaluate_due_timers()
    invoke(world)
    assert world.status(key) is RunStatus.SUCCESS
    assert [event["attempt_number"] for event in functions.events] == [1, 2]


def test_cancelled_script_keeps_what_it_logged(world: Executors, functions: Functions) -> None:
    """The runner learns of the cancel by itself. Its answer has the log up to there."""
    key = world.submit(**SHORT)

    def answer() -> dict[str, Any]:
        with world.world.meter.as_role("test"):
            world.jobs.cancel(*key)
        return {"status": "CANCELLED", "error": "Cancelled", "log": encoded(b"begun")}

    functions.answers = [answer]
    invoke(world)
    assert world.status(key) is RunStatus.CANCELLED
    claim = claim_of(functions.events[0])
    assert world.world.object(log_key(key, claim.run_id, 1)) == b"begun"


def test_cancel_gives_the_runner_time_to_answer(world: Executors, functions: Functions) -> None:
    key = world.submit(**SHORT, payload={"lasts": 500, "stubborn": True})
    records = world.records()
    world.task_runner.at(after(2), lambda: world.jobs.cancel(*key))
    invoke(world, records)
    waited = (world.clock() - NOON).total_seconds()
    assert 4 + RUNNER_ANSWER_SECONDS <= waited <= 6 + RUNNER_ANSWER_SECONDS
    assert world.status(key) is RunStatus.CANCELLED


def test_runner_without_an_answer_is_abandoned_after_its_timeout(
    world: Executors, functions: Functions
) -> None:
    key = world.submit(**SHORT, payload={"lasts": 500, "stubborn": True})
    invoke(world)
    assert world.status(key) is RunStatus.TIMED_OUT
    waited = (world.clock() - NOON).total_seconds()
    assert waited == pytest.approx(20 + RUNNER_ANSWER_SECONDS, abs=2)


def test_executor_that_has_to_end_soon_hands_over(world: Executors, functions: Functions) -> None:
    world.submit(**{**SHORT, "timeout_seconds": MAX_WAITED_SCRIPT_SECONDS})
    invoke(world, seconds_left=30)
    assert (len(functions.started), functions.events) == (1, [])
