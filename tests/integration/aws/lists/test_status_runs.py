"""The list of runs over all jobs as the status function writes it: labels, faults, long lives."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.domain.errors import Unavailable
from punctual.domain.job_state import JobState, Rules
from punctual.domain.run import Reason, Run, RunStatus, WaitingRun
from punctual.engine.ports.lists.run_filters import RunFilters, TimeField
from punctual.engine.queries.slices import finish
from punctual.lambdas.status.handler import StatusHandler, build_handler
from punctual.web.contract import READ_FUNCTION
from tests.support.aws.moto_faults import lost_answers, unreached
from tests.support.aws.stream_records import Stream
from tests.support.builders import JOB, NOON, a_definition_row, a_job_state, a_run, after, an_id
from tests.support.deployed.drivers.api import an_api

Fault = Callable[[Any, str, int], AbstractContextManager[None]]
MORE_CALLS_THAN_RETRIES = 50
SECOND = timedelta(seconds=1)


class World:
    """The status function over moto, and the list that it writes."""

    def __init__(self, status: StatusHandler, store: Any) -> None:
        self.status, self.store = status, store
        self.stream = Stream(store)

    def follow(self, *records: Any) -> None:
        assert self.status.handle(list(records)) == []

    def listed(self, filters: RunFilters) -> list[tuple[str, RunStatus]]:
        page = finish(self.store.lists.page("acme", filters, 50, None, after(30)))
        assert page.next_cursor is None
        return [(view.run.run_id, view.run.status) for view in page.items]


@pytest.fixture
def world() -> Iterator[World]:
    with an_api(now=after(30)) as api:
        yield World(build_handler(api.runtimes[READ_FUNCTION]), api.store)


def an_ended_run(
    number: int, seconds: float, status: RunStatus = RunStatus.SUCCESS, **fields: Any
) -> Run:
    values: dict[str, Any] = {"started_at": after(1), "attempt_at": after(1), "token": 3}
    values |= {"ended_at": after(1 + seconds), "executor_id": "e1", "inline_output": "an id"}
    return a_run(an_id(number), status, **{**values, **fields})


def a_batch(world: World) -> tuple[Sequence[Any], list[tuple[str, RunStatus]]]:
    """Return records of live, ended and withdrawn runs, and what a list then shows."""
    waiting = WaitingRun(an_id(12), 1, NOON, NOON, NOON)
    queued = a_job_state(an_id(1), version=1, runs=(a_run(an_id(11)),))
    ahead = a_job_state(an_id(3), version=1, runs=(a_run(an_id(13), due_at=after(20)),))
    records = [
        world.stream.of(None, queued),
        world.stream.of(
            queued, a_job_state(an_id(1), version=2, unrecorded=(an_ended_run(11, 1),))
        ),
        world.stream.of(None, a_job_state(an_id(2), version=1, wait_queue=(waiting,))),
        world.stream.of(None, ahead),
        world.stream.of(ahead, a_job_state(an_id(3), version=2)),
    ]
    return records, [(an_id(12), RunStatus.WAITING), (an_id(11), RunStatus.SUCCESS)]


@pytest.mark.parametrize("fault", [unreached, lost_answers])
@pytest.mark.parametrize(
    "operation",
    ["BatchGetItem", "BatchWriteItem", "Query", "UpdateItem", "TransactWriteItems"],
)
def test_batch_that_fails_at_a_call_and_is_repeated_lists_each_run_once(
    world: World, fault: Fault, operation: str
) -> None:
    records, expected = a_batch(world)
    with (
        fault(world.store.clients.dynamodb, operation, MORE_CALLS_THAN_RETRIES),
        suppress(Unavailable),
    ):
        world.status.handle(list(records))
    world.follow(*records[:2])
    world.follow(*records)
    assert world.listed(RunFilters()) == expected


def put_definition(world: World, ref: str, name: str, tags: dict[str, str]) -> None:
    row = a_definition_row(JOB, ref, name=name, tags=tags, edition=int(ref[0]))
    world.store.ports.job_states.put_definitions([row])


def renamed(state: JobState, **fields: Any) -> JobState:
    rules = {**state.rules, 2: Rules("2-body", NOON)}
    return replace(state, version=state.version + 1, definition=2, rules=rules, **fields)


def test_run_has_the_name_and_tags_that_its_job_had_when_the_run_last_changed(
    world: World,
) -> None:
    put_definition(world, "1-body", "old", {"team": "data"})
    put_definition(world, "2-body", "new", {"team": "ops"})
    blank = a_job_state(version=1)
    first = replace(blank, version=2, unrecorded=(an_ended_run(1, 1),), runs=(a_run(an_id(2)),))
    later = renamed(first, unrecorded=())
    last = replace(later, version=4, runs=(), unrecorded=(an_ended_run(2, 1),))
    world.follow(world.stream.of(blank, first), world.stream.of(first, later))
    world.follow(world.stream.of(later, last))
    for old, new in (
        (RunFilters(job_name="old"), RunFilters(job_name="new")),
        (RunFilters(tags=(("team", "data"),)), RunFilters(tags=(("team", "ops"),))),
    ):
        assert world.listed(new) == [(an_id(2), RunStatus.SUCCESS)]
        assert world.listed(old) == [(an_id(1), RunStatus.SUCCESS)]


def test_runs_are_filtered_by_reason_duration_and_other_times(world: World) -> None:
    lost = an_ended_run(3, 9, status=RunStatus.FAILED, reason=Reason.LOST)
    live = a_run(an_id(4), RunStatus.WAITING, reason=Reason.BACKOFF, next_at=after(60))
    state = a_job_state(
        version=2, unrecorded=(an_ended_run(1, 1), an_ended_run(2, 5), lost), runs=(live,)
    )
    world.follow(world.stream.of(a_job_state(version=1), state))

    def found(**fields: Any) -> list[str]:
        return [run_id for run_id, _ in world.listed(RunFilters(**fields))]

    assert found(reasons=frozenset({"LOST"})) == [an_id(3)]
    assert found(reasons=frozenset({"LOST", "BACKOFF"})) == [an_id(4), an_id(3)]
    assert found(min_duration=5 * SECOND) == [an_id(3), an_id(2)]
    assert found(max_duration=5 * SECOND) == [an_id(2), an_id(1)]
    ended = TimeField.ENDED
    assert found(start=after(4), end=after(8), time_field=ended) == [an_id(2)]
    started = TimeField.STARTED
    assert found(start=after(0), time_field=started) == [an_id(3), an_id(2), an_id(1)]
    assert found(start=after(2), time_field=started) == []
