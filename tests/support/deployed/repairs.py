"""Scenes that the daily walk repairs: missing or late timers, orphaned payloads, wrong counts."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import to_item
from punctual.aws.dynamodb.control import counters, walk_progress
from punctual.aws.dynamodb.keys import time_key
from punctual.aws.dynamodb.lists.job_counts import job_class, part_key
from punctual.aws.dynamodb.timers.rows import build_rows, parse_row
from punctual.domain.identifiers import bucket_of
from punctual.domain.job_state import JobStatus
from punctual.engine.ports.timers import Timer
from punctual.lambdas.reconciler.recount import COUNT_LAG
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.interrupted_work import (
    AT_ONCE,
    EVENT,
    HOURLY,
    OUT_OF_MEMORY,
    assert_succeeded,
    call_of,
    inject_fault,
    job_with_unrecorded_end,
    queue_fields,
    queues,
    unreadable_state,
    without_executors,
)
from tests.support.deployed.scenes import SMALL, submit_job
from tests.support.deployed.world import MINUTE, SECOND, World
from tests.support.names.own_names import own_name


def check_timer_repair(world: World, api: Gateway) -> None:
    """Check that the daily walk repairs missing timers, and timers behind the watermark."""
    at = (world.clock() + 2 * MINUTE).isoformat()
    gone = submit_job(api, schedule_type="FUTURE", schedule_time=at, task=EVENT)
    _forget_timers(world, gone)
    ended = job_with_unrecorded_end(world, api, "quick")
    with without_executors(world):
        waiting = [submit_job(api, **AT_ONCE, **fields) for fields in queue_fields(world)]
        few = [submit_job(api, **HOURLY) for _ in range(6)]
        for queue in queues(world):
            queue.messages.clear()
        world.run(20 * SECOND)
        set_walk_start(world, world.clock.now - 70 * MINUTE)
        _put_late_timers(world, [*waiting, *few, ended, "no-such-job"])
        with unreadable_state(world, few[0]):
            world.tick("reconciler")
            world.run(SECOND)
    world.run(4 * MINUTE)
    for job in (gone, *waiting, ended):
        assert_succeeded(api, job)


def _forget_timers(world: World, job: str) -> None:
    for row in world.rows(keys.TIMERS_TABLE):
        timer_row = parse_row(row)
        if any(timer.job_id == job for timer in timer_row.timers):
            world.bare.delete_item(
                TableName=world.table(keys.TIMERS_TABLE), Key=timer_row.key.item()
            )


def set_walk_start(world: World, minute: datetime) -> None:
    """Let today's walk start its sweep at `minute`, because a sweep of two days takes long."""
    _put_progress(
        world,
        {
            walk_progress.TIMER_CURSOR_ATTR: time_key(bucket_of(minute)),
            walk_progress.STATES_DONE_ATTR: False,
        },
    )


def crash_submission(world: World, api: Gateway, operation: str) -> None:
    """Kill the function during a large submission, after its call of `operation`."""
    large = {"name": own_name("n"), **HOURLY, "payload": {**SMALL, "text": "x" * 10_000}}
    with inject_fault(
        world, call_of(world, "job-service", operation, answered=True), OUT_OF_MEMORY
    ):
        assert api.post("/jobs", large).status >= 500


def remove_orphans(world: World) -> None:
    """Run the last part of the walk, which deletes orphaned payloads."""
    _put_progress(
        world, {walk_progress.STATES_DONE_ATTR: True, walk_progress.TIMERS_DONE_ATTR: True}
    )
    world.tick("reconciler")
    world.run(SECOND)


def recount_tenant(world: World, wrong: Mapping[str, int]) -> None:
    """Change a tenant's counts by `wrong`, and let two separate invocations repair them."""
    jobs = {
        job_class(JobStatus(name.removeprefix("job_")), None): number
        for name, number in wrong.items()
        if name.startswith("job_")
    }
    runs = {name: number for name, number in wrong.items() if name.startswith("run_")}
    _add(world, keys.LISTS_TABLE, part_key("default", 1), jobs)
    _add(world, keys.CONTROL_TABLE, counters.totals_key("default"), runs)
    set_walk_start(world, world.clock.now - MINUTE)
    world.tick("reconciler")
    world.run(COUNT_LAG + MINUTE)
    world.tick("reconciler")
    world.run(10 * SECOND)


def _add(world: World, table: keys.Table, row_key: keys.RowKey, numbers: Mapping[str, int]) -> None:
    if numbers:
        world.bare.update_item(
            TableName=world.table(table),
            Key=row_key.item(),
            UpdateExpression="ADD "
            + ", ".join(f"{name} :{name}" for name in numbers)
            + " SET #layout = :layout",
            ExpressionAttributeNames={"#layout": keys.LAYOUT_ATTR},
            ExpressionAttributeValues=to_item(
                {
                    **{f":{name}": number for name, number in numbers.items()},
                    ":layout": keys.ROW_LAYOUT,
                }
            ),
        )


def _put_progress(world: World, fields: Mapping[str, Any]) -> None:
    values = {
        keys.LAYOUT_ATTR: keys.ROW_LAYOUT,
        walk_progress.STARTED_AT_ATTR: time_key(world.clock.now),
        walk_progress.COMPLETE_ATTR: False,
        walk_progress.STEP_ATTR: 1,
        **fields,
    }
    row = {**keys.walk_key().item(), **to_item(values)}
    world.bare.put_item(TableName=world.table(keys.CONTROL_TABLE), Item=row)


def _put_late_timers(world: World, jobs: Sequence[str]) -> None:
    """Put timers into a minute that closed an hour ago."""
    at = bucket_of(world.clock()) - 60 * MINUTE
    timers = [Timer(at, 0, at, "default", job, 1) for job in jobs]
    for row in build_rows(timers, "late"):
        world.bare.put_item(TableName=world.table(keys.TIMERS_TABLE), Item=row.item())
