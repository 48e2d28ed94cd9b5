"""Poison messages, partial batches, dead letters and newer formats in a deployment."""

import json
from datetime import timedelta

import pytest

from bench.cost.meter import WrittenRow
from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import to_attribute
from punctual.aws.dynamodb.timers.rows import parse_row
from tests.support.builders import NOON
from tests.support.deployed.faults import Killed, Moment, Refusal
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.observations import (
    assert_at_rest,
    ended_run_events,
    published_events,
    runs_of,
    statuses,
)
from tests.support.deployed.scenes import submit_job
from tests.support.deployed.sqs import Queue
from tests.support.deployed.world import MINUTE, SECOND, World

EVENT = {"type": "event", "detail_type": "Paid"}


@pytest.fixture(params=["dev", "rehearsal"])
def stage(request: pytest.FixtureRequest) -> str:
    """`dev` has one shard. `rehearsal` has two shards, limits and metrics."""
    return str(request.param)


def at(seconds: float) -> str:
    return (NOON + timedelta(seconds=seconds)).isoformat()


def put(world: World, queue: Queue, body: str) -> None:
    fifo = {"MessageGroupId": "g", "MessageDeduplicationId": body} if queue.fifo else {}
    world.sqs.send(queue, {"MessageBody": body, **fifo})


def problems(world: World) -> set[str]:
    return {line["message"] for line in world.log_lines() if line.get("level") == "ERROR"}


def test_run_is_dead_lettered_if_executor_always_crashes(world: World, api: Gateway) -> None:
    world.faults.plan = lambda moment: (
        Killed("out of memory") if moment.role == world.name("executor-quick") else None
    )
    world.lane("quick").max_receives = 3
    job = submit_job(api, schedule_type="IMMEDIATE", task=EVENT)
    world.run(25 * MINUTE)
    (run,) = runs_of(api, job)
    assert (run["status"], run["reason"]["code"]) == ("FAILED", "POISON")
    assert {name for name, _ in world.failures} == {world.name("executor-quick")}
    assert "run_poisoned" in problems(world)
    world.run(10 * MINUTE)
    assert_at_rest(world)


def test_run_fails_after_five_claims_with_crashes(world: World, api: Gateway) -> None:
    def dies(moment: Moment) -> BaseException | None:
        claimed = moment.answered and moment.operation == "UpdateItem"
        return Killed("oom") if claimed and moment.role.endswith("executor-quick") else None

    world.faults.plan = dies
    job = submit_job(api, schedule_type="IMMEDIATE", task=EVENT)
    world.run(90 * MINUTE)
    (run,) = runs_of(api, job)
    assert run["status"] == "FAILED"
    assert published_events(world, "Paid") == []
    shown = api.get(f"/jobs/{job}/runs/{run['run_id']}").json
    assert [attempt["status"] for attempt in shown["attempts"]] == ["LOST"] * 4 + ["FAILED"]
    assert_at_rest(world)


def test_unreadable_message_is_dead_lettered_and_stops_no_run(world: World, api: Gateway) -> None:
    put(world, world.lane("quick"), "not json")
    put(world, world.queue("wake"), "not json either")
    job = submit_job(api, schedule_type="IMMEDIATE", task=EVENT)
    world.run(20 * MINUTE)
    assert statuses(api, job) == {"SUCCESS": 1}
    assert {"message_unreadable", "wake_up_refused"} <= problems(world)
    assert [message.body for message in world.queue("wake-dead").messages] == ["not json either"]


def test_message_of_newer_format_is_kept_and_stops_no_run(world: World, api: Gateway) -> None:
    """The old version refuses a message of the new one, and the queue keeps it."""
    later = json.dumps({"f": 99, "what": "a field of a newer format"})
    put(world, world.lane("quick"), later)
    put(world, world.queue("wake"), later)
    world.run(2 * MINUTE)
    assert [message.body for message in world.lane("quick").messages] == [later]
    assert [message.body for message in world.queue("wake").messages] == [later]
    job = submit_job(api, schedule_type="IMMEDIATE", task=EVENT)
    world.run(2 * SECOND)
    assert statuses(api, job) == {"SUCCESS": 1}


def test_job_state_of_newer_format_is_unchanged_until_readable(world: World, api: Gateway) -> None:
    mine = submit_job(api, schedule_type="FUTURE", schedule_time=at(90), task=EVENT)
    theirs = submit_job(api, schedule_type="FUTURE", schedule_time=at(90), task=EVENT)
    table = world.table(keys.JOBS_TABLE)
    key = keys.state_key("default", theirs).item()
    world.bare.update_item(
        TableName=table,
        Key=key,
        UpdateExpression="SET #f = :later",
        ExpressionAttributeNames={"#f": keys.LAYOUT_ATTR},
        ExpressionAttributeValues={":later": to_attribute(keys.ROW_LAYOUT + 1)},
    )
    before = world.bare.get_item(TableName=table, Key=key)["Item"]
    world.run(3 * MINUTE)
    assert world.bare.get_item(TableName=table, Key=key)["Item"] == before
    assert any(
        timer.job_id == theirs
        for row in world.rows(keys.TIMERS_TABLE)
        for timer in parse_row(row).timers
    )
    world.bare.update_item(
        TableName=table,
        Key=key,
        UpdateExpression="SET #f = :ours",
        ExpressionAttributeNames={"#f": keys.LAYOUT_ATTR},
        ExpressionAttributeValues={":ours": to_attribute(keys.ROW_LAYOUT)},
    )
    world.run(15 * MINUTE)
    assert statuses(api, mine) == {"SUCCESS": 1}
    assert statuses(api, theirs) == {"SUCCESS": 1}
    assert_at_rest(world)


def test_only_failed_run_of_a_batch_is_retried(world: World, api: Gateway) -> None:
    """The store refuses writes of one of three jobs for a whole invocation."""
    jobs = [
        submit_job(api, schedule_type="FUTURE", schedule_time=at(90), task=EVENT) for _ in range(3)
    ]
    until = NOON + timedelta(seconds=110)

    def throttled(moment: Moment) -> Refusal | None:
        struck = moment.job_id == jobs[1] and world.clock() < until and not moment.answered
        executor = moment.role == world.name("executor-quick")
        return Refusal("ThrottlingException") if struck and executor else None

    world.faults.plan = throttled
    world.run(4 * MINUTE)
    assert all(statuses(api, job) == {"SUCCESS": 1} for job in jobs)
    late = [runs_of(api, job)[0]["lateness_ms"] for job in jobs]
    assert (late[0], late[2]) == (0, 0) or max(late) > 15_000
    assert sorted(event["job_id"] for event in published_events(world, "Paid")) == sorted(jobs)
    assert world.failures == []
    assert_at_rest(world)


def test_poison_stream_record_is_set_aside(world: World, api: Gateway) -> None:
    job = submit_job(api, schedule_type="FUTURE", schedule_time=at(3600), task=EVENT)
    world.run(3 * SECOND)
    poison = keys.state_key("default", "poison")
    row = {**poison.item(), keys.STATUS_ATTR: {"S": "NO_SUCH_STATE"}, **keys.ROW_LAYOUT_ATTRIBUTE}
    (stream,) = world.streams.values()
    stream.append(WrittenRow(world.table(keys.JOBS_TABLE), poison, None, row), world.clock())
    others = [submit_job(api, schedule_type="IMMEDIATE", task=EVENT) for _ in range(3)]
    world.run(10 * MINUTE)
    assert {event["job_id"] for event in published_events(world, "Job State Change")} == {
        job,
        *others,
    }
    assert all(statuses(api, other_job) == {"SUCCESS": 1} for other_job in others)
    (message,) = world.queue("status-failed").messages
    assert json.loads(message.body)["DDBStreamBatchInfo"]["batchSize"] == 1
    assert "record_not_read" in problems(world)


def test_deployment_during_runs_loses_and_duplicates_no_run(world: World, api: Gateway) -> None:
    """Each deployment replaces every environment, also in the middle of its work."""
    job = submit_job(api, schedule_type="INTERVAL", interval_seconds=10, task=EVENT)
    for _ in range(12):
        world.run(5 * SECOND)
        world.deploy_again()
    world.run(SECOND)
    assert statuses(api, job) == {"SUCCESS": 6}
    ran = [event["scheduled_time"] for event in published_events(world, "Paid")]
    assert len(ran) == len(set(ran)) == 6
    assert all(run["lateness_ms"] == 0 for run in runs_of(api, job))
    assert world.failures == []


@pytest.mark.parametrize(
    "short", ["planner", "poller", "executor-quick", "executor-long", "status"]
)
def test_throttled_function_delays_and_loses_no_run(world: World, api: Gateway, short: str) -> None:
    jobs = [
        submit_job(api, schedule_type="FUTURE", schedule_time=at(150), task=EVENT) for _ in range(3)
    ]
    world.run(MINUTE)
    world.throttled.add(world.name(short))
    world.run(4 * MINUTE)
    world.throttled.clear()
    world.run(12 * MINUTE)
    assert all(statuses(api, job) == {"SUCCESS": 1} for job in jobs)
    assert sorted(event["job_id"] for event in published_events(world, "Paid")) == sorted(jobs)
    assert len(ended_run_events(world)) == 3
    assert world.failures == []
    assert_at_rest(world)
