"""The function of operations: its rate, its messages, and operations that wait or fail."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import Any

import pytest

from punctual.aws.sqs.operation_queue import OperationMessage
from punctual.domain.errors import Unavailable, Unreadable
from punctual.domain.job_state import JobStatus
from punctual.domain.operations.operation import MAX_SLICE_AGE, OperationAction, OperationStatus
from punctual.domain.run import RunStatus
from punctual.engine.operations.matching import BulkFilter
from punctual.engine.ports.job_states import StoredState
from punctual.engine.ports.lists.job_index import JobFilters
from punctual.engine.ports.lists.operations import OperationKey
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.quotas import QuotaGrant
from punctual.engine.ports.rows import JobKey
from punctual.engine.quotas.limits import NoQuotas
from punctual.lambdas.operations.handler import MAX_MESSAGE_WAIT_SECONDS, TURN_SECONDS
from tests.support.aws.adapters import ADAPTERS
from tests.support.builders import NOON, ManualClock, a_row, a_run, after, an_id
from tests.support.operations.world import OperationsWorld
from tests.support.simulation.port_faults import Call, Crash, Fault, FaultKind, Plan

PAUSE, RUN_NOW = OperationAction.PAUSE, OperationAction.RUN_NOW


@pytest.fixture(params=["memory"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OperationsWorld]:
    clock = ManualClock(NOON)
    with ADAPTERS[request.param](tmp_path, clock) as world:
        yield OperationsWorld(world.ports, clock)


def submit_jobs(world: OperationsWorld, count: int, **fields: Any) -> list[JobKey]:
    return [world.submit(f"job {number}", **fields) for number in range(count)]


class JobStatesWithErrors:
    """Job states, some of which cannot be loaded."""

    def __init__(
        self, real: Any, keys: Sequence[JobKey], error: Callable[[], BaseException]
    ) -> None:
        self._real, self._keys, self._error = real, frozenset(keys), error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def load(self, keys: Sequence[JobKey]) -> Mapping[JobKey, StoredState]:
        if self._keys.intersection(keys):
            raise self._error()
        loaded: Mapping[JobKey, StoredState] = self._real.load(keys)
        return loaded


class FewRuns(NoQuotas):
    """Allows some runs in each minute."""

    def __init__(self, clock: ManualClock, runs_per_minute: int) -> None:
        self._clock, self._limit = clock, runs_per_minute
        self._minute, self._left = -1, 0
        self.denials = 0

    def take_run_requests(
        self, tenant: str, count: int, all_or_none: bool = False, /
    ) -> QuotaGrant:
        minute = int(self._clock.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._left = minute, self._limit
        number = min(count, self._left)
        self._left -= number
        self.denials += number < count
        seconds = inf if not self._limit else 60 - self._clock.monotonic() % 60
        return QuotaGrant(number, 0.0 if number == count else seconds)


def test_operation_keeps_to_the_rate_and_goes_on_by_messages(world: OperationsWorld) -> None:
    world.items_per_second = 4
    keys = submit_jobs(world, 200)
    operation = world.begin(PAUSE)
    begun = world.clock.monotonic()
    world.run()
    assert world.load(operation).done == 200
    assert world.statuses(keys) == {JobStatus.PAUSED: 200}
    assert 49 <= world.clock.monotonic() - begun <= 60
    assert world.invocations == 3  # 20 s each


@pytest.mark.parametrize(("rate", "most"), [(0.5, 1), (4, 4), (50, 50), (1_000, 100)])
def test_slice_has_the_items_of_a_second(world: OperationsWorld, rate: float, most: int) -> None:
    world.items_per_second = rate
    submit_jobs(world, 120)
    plan = Plan()
    world.begin(PAUSE)
    world.run(plan)
    sizes = [call.size for call in plan.calls if call.method == "swap" and call.size > 1]
    assert max(sizes, default=1) == most


def test_quota_lets_an_operation_wait_and_it_shows_that_it_moves(world: OperationsWorld) -> None:
    world.quotas = FewRuns(world.clock, 2)
    keys = submit_jobs(world, 7)
    operation = world.begin(RUN_NOW)
    world.run()
    assert world.load(operation).done == 7
    assert [len(world.requested_runs(key)) for key in keys] == [1] * 7
    assert world.clock.monotonic() < 300
    assert world.load(operation).revision >= 1 + 4  # four slices


def test_longest_wait_of_one_message_is_a_minute(world: OperationsWorld) -> None:
    class Never(FewRuns):
        def take_run_requests(
            self, tenant: str, count: int, all_or_none: bool = False, /
        ) -> QuotaGrant:
            return QuotaGrant(0, 3_000)

    world.quotas = Never(world.clock, 1)
    submit_jobs(world, 1)
    operation = world.begin(RUN_NOW)
    for _ in range(3):
        queued = world.queue.receive()
        assert queued is not None
        world.invoke(queued)
        (queued,) = world.queue.messages
        assert queued.visible_at - world.clock() == timedelta(seconds=MAX_MESSAGE_WAIT_SECONDS)
        assert queued.message.revision == world.load(operation).revision
        world.clock.advance(timedelta(seconds=MAX_MESSAGE_WAIT_SECONDS))
    assert world.load(operation).revision == 4


def test_tenant_without_runs_gets_an_error_for_each_job(world: OperationsWorld) -> None:
    world.quotas = FewRuns(world.clock, 0)
    submit_jobs(world, 3)
    operation = world.begin(RUN_NOW)
    world.run()
    ended = world.load(operation)
    assert (ended.done, ended.failed) == (0, 3)
    assert {error.code for error in ended.errors} == {"LIMIT_EXCEEDED"}


def test_repeated_messages_of_an_operation_end(world: OperationsWorld) -> None:
    """Messages may come twice, and the planner may send some that were not lost."""
    world.items_per_second = 1
    submit_jobs(world, 60)
    operation = world.begin(PAUSE)
    key = OperationKey(operation.tenant, operation.operation_id)
    world.queue.send([OperationMessage(key, 1)] * 4)
    world.run()
    assert world.load(operation).done == 60
    outdated = [fields for event, fields in world.log.events if event.endswith("outdated")]
    assert len(outdated) == 4
    assert world.invocations == 4 + 3


def test_second_handler_at_the_same_time_ends_the_first(world: OperationsWorld) -> None:
    """It works within a call of the first. One chain of messages is left."""
    world.items_per_second = 1
    keys = submit_jobs(world, 60)
    operation = world.begin(PAUSE)
    queued = world.queue.messages.pop()._replace(receives=1)

    class Interrupted(Plan):
        def run(self, call: Call, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
            answer = super().run(call, real, args)
            if call.method == "items":
                world.invoke(queued)
            return answer

    world.invoke(queued, Interrupted())
    assert len(world.queue.messages) == 1
    assert 15 <= world.load(operation).done <= 25
    world.run()
    assert world.load(operation).done == 60
    assert world.statuses(keys) == {JobStatus.PAUSED: 60}


def test_message_of_a_gone_or_ended_operation_is_deleted(world: OperationsWorld) -> None:
    submit_jobs(world, 1)
    operation = world.begin(PAUSE)
    world.run()
    key = OperationKey(operation.tenant, operation.operation_id)
    for old in (OperationMessage(key, 1), OperationMessage(key._replace(operation_id="x"), 1)):
        world.queue.send([old])
        world.run()
    assert world.queue.messages == []
    assert world.load(operation).revision == 2


def test_unreadable_message_stays_in_its_queue(world: OperationsWorld) -> None:
    record = {
        "messageId": "m",
        "body": "{}",
        "attributes": {"ApproximateReceiveCount": "1"},
    }
    answer = world.handler().handle([record])
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m"}]}
    assert [event for event, _ in world.log.problems] == ["operation_message_failed"]


def test_unreadable_job_is_an_error_and_stops_no_other(world: OperationsWorld) -> None:
    keys = submit_jobs(world, 7)
    damaged = JobStatesWithErrors(
        world.ports.job_states, keys[2:3], lambda: Unreadable("A row is damaged.")
    )
    operation = world.begin(PAUSE)
    world.with_port("job_states", damaged).run()
    ended = world.load(operation)
    assert (ended.status, ended.done, ended.failed) == (OperationStatus.DONE, 6, 1)
    assert ended.errors[0].job_id == keys[2].job_id
    assert world.clock.monotonic() < 30


def test_job_that_the_store_never_returns_is_given_up(world: OperationsWorld) -> None:
    keys = submit_jobs(world, 7)
    silent = JobStatesWithErrors(
        world.ports.job_states, keys[2:3], lambda: Unavailable("no answer")
    )
    operation = world.begin(PAUSE)
    world.with_port("job_states", silent).run()
    ended = world.load(operation)
    assert (ended.status, ended.done, ended.failed) == (OperationStatus.DONE, 6, 1)
    (error,) = ended.errors
    assert (error.job_id, error.code) == (keys[2].job_id, "UNAVAILABLE")
    assert world.statuses([*keys[:2], *keys[3:]]) == {JobStatus.PAUSED: 6}


def test_slice_that_kills_its_handler_is_given_up(world: OperationsWorld) -> None:
    """Each further receive of a message counts as a failure."""
    keys = submit_jobs(world, 3)
    deadly = JobStatesWithErrors(world.ports.job_states, keys[1:2], lambda: Crash("memory"))
    operation = world.begin(PAUSE)
    world.with_port("job_states", deadly).run()
    ended = world.load(operation)
    assert (ended.done, ended.failed) == (2, 1)
    assert ended.errors[0].job_id == keys[1].job_id


def test_operation_of_one_tenant_does_not_stop_another(world: OperationsWorld) -> None:
    world.items_per_second = 1
    submit_jobs(world, 200)
    large = world.begin(PAUSE)
    world.submit("other", tenant="bcme")
    small = world.begin(PAUSE, tenant="bcme")
    world.run_some(None, 2)
    assert not world.load(small).is_running
    assert world.load(large).done <= 2 * TURN_SECONDS
    world.run()
    assert world.load(large).done == 200


def test_cancel_ends_an_operation_between_two_slices(world: OperationsWorld) -> None:
    world.items_per_second = 1
    keys = submit_jobs(world, 60)
    operation = world.begin(PAUSE)
    world.run_some(None, 1)
    stopped = world.cancel(operation)
    assert stopped.status is OperationStatus.CANCELLED
    assert 15 <= stopped.done <= 25
    world.run()
    assert world.load(operation) == stopped
    assert world.statuses(keys)[JobStatus.PAUSED] == stopped.done


@pytest.mark.parametrize("hours", [1, 7, 24])
def test_old_slice_is_not_repeated_after_its_jobs_forgot_it(
    world: OperationsWorld, hours: int
) -> None:
    """The handler crashes after it paused the first slice, and nothing runs for hours."""
    world.items_per_second = 100
    keys = submit_jobs(world, 130)
    operation = world.begin(PAUSE)
    queued = world.queue.receive()
    assert queued is not None
    plan = Plan((Fault(number_of_record_call(), FaultKind.BEFORE, crash=True),))
    world.invoke(queued, plan)
    assert world.statuses(keys) == {JobStatus.PAUSED: 100, JobStatus.SCHEDULED: 30}
    acted = [key for key in keys if world.state(key).status is JobStatus.PAUSED]
    for key in acted:
        world.jobs().resume(*key)
    world.clock.advance(timedelta(hours=hours))
    for key in acted:
        world.jobs().pause(*key)  # so the job writes, and forgets old operations
        world.jobs().resume(*key)
    world.run()
    ended = world.load(operation)
    is_too_old = timedelta(hours=hours) > MAX_SLICE_AGE
    assert ended.status is OperationStatus.DONE
    assert (ended.done, ended.failed) == ((30, 100) if is_too_old else (130, 0))
    assert world.statuses(acted) == {JobStatus.SCHEDULED: 100}
    assert world.statuses(keys) == {JobStatus.SCHEDULED: 100, JobStatus.PAUSED: 30}


def number_of_record_call() -> int:
    """Return the number of the handler's call that records its first slice."""
    clock = ManualClock(NOON)
    with ADAPTERS["memory"](Path(), clock) as memory:
        twin = OperationsWorld(memory.ports, clock, items_per_second=100)
        submit_jobs(twin, 130)
        twin.begin(PAUSE)
        plan = Plan()
        twin.run(plan)
        names = [f"{call.port}.{call.method}" for call in plan.calls]
        return names.index("operations.swap") + 1


def test_retry_of_latest_failures_only(world: OperationsWorld) -> None:
    keys = submit_jobs(world, 3)
    for number, key in enumerate(keys):
        failed = a_run(an_id(900 + number), RunStatus.FAILED, ended_at=after(1))
        world.ports.history.put_runs([a_row(failed.run_id, key.job_id, run=failed)])
    success = a_run(an_id(950), RunStatus.SUCCESS, ended_at=after(2))
    world.ports.history.put_runs([a_row(success.run_id, keys[0].job_id, run=success)])
    failures = RunFilters(status=frozenset({RunStatus.FAILED}))
    bulk_filter = BulkFilter(JobFilters(), failures, latest_only=True)
    operation = world.begin(OperationAction.RETRY, bulk_filter)
    world.run()
    assert (operation.matched, world.load(operation).done) == (2, 2)
    assert [len(world.requested_runs(key)) for key in keys] == [0, 1, 1]
    again = world.begin(OperationAction.RETRY, bulk_filter)
    assert again.matched == 0


def test_resume_reaches_only_what_one_operation_paused(world: OperationsWorld) -> None:
    keys = submit_jobs(world, 4)
    world.jobs().pause(*keys[0])
    paused = world.begin(PAUSE)
    world.run()
    assert world.load(paused).done == 3
    bulk_filter = BulkFilter(JobFilters(), paused_by=paused.operation_id)
    resumed = world.begin(OperationAction.RESUME, bulk_filter)
    world.run()
    assert (resumed.matched, world.load(resumed).done) == (3, 3)
    assert world.state(keys[0]).status is JobStatus.PAUSED
