"""Scenes with interrupted work that later evaluations repair, using all their rights."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bench.cost.meter import Call
from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import to_attribute
from tests.support.deployed.faults import Killed, Moment, Refusal
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.observations import runs_of
from tests.support.deployed.scenes import a_task, submit_job
from tests.support.deployed.sqs import Queue
from tests.support.deployed.world import MINUTE, SECOND, World

EVENT = {"type": "event", "detail_type": "Paid"}
HOURLY = {"schedule_type": "INTERVAL", "interval_seconds": 3600, "task": EVENT}
FROM_COMPLETION = {"interval_seconds": 60, "interval_from": "COMPLETED"}
AT_ONCE = {"schedule_type": "IMMEDIATE", "task": EVENT}
LANES = ("quick", "long")
LONG = {"timeout_seconds": 900}
QUICK = {"timeout_seconds": 60}
CONDITION_FAILED = Refusal("ConditionalCheckFailedException")  # as after a lost race
OUT_OF_MEMORY = Killed("out of memory")


def queue_fields(world: World) -> list[dict[str, Any]]:
    """Return fields that send a job through each queue, by lane and priority."""
    variants = []
    for lane, fields in zip(LANES, (QUICK, LONG), strict=True):
        for queue in world.feeding(f"executor-{lane}"):
            parts = queue.name.removesuffix(".fifo").split("-")
            priority = parts[-1].upper() if parts[-1] != lane else "NORMAL"
            variants.append({**fields, "priority": priority})
    return variants


def queues(world: World) -> list[Queue]:
    return [queue for lane in LANES for queue in world.feeding(f"executor-{lane}")]


@contextmanager
def without_executors(world: World) -> Iterator[None]:
    """Stop Lambda from starting executors.

    Their messages become visible again at once afterwards.
    """
    names = {world.name(f"executor-{lane}") for lane in LANES}
    world.throttled |= names
    try:
        yield
    finally:
        world.throttled -= names
        for message in (message for queue in queues(world) for message in queue.messages):
            message.visible_at = min(message.visible_at, world.clock.now)


@contextmanager
def inject_fault(
    world: World, matches: Callable[[Moment], bool], fault: Refusal | BaseException, times: int = 1
) -> Iterator[None]:
    """Apply `fault` to the first `times` moments that `matches` accepts."""
    remaining = [times]

    def plan(moment: Moment) -> Refusal | BaseException | None:
        if not remaining[0] or not matches(moment):
            return None
        remaining[0] -= 1
        return fault

    world.faults.plan = plan
    try:
        yield
    finally:
        world.faults.plan = None
    assert remaining[0] < times, "no call matched the fault"


def call_of(world: World, short: str, operation: str, answered: bool) -> Callable[[Moment], bool]:
    return lambda moment: (
        (moment.role, moment.operation, moment.answered) == (world.name(short), operation, answered)
    )


def after_stored_end(world: World, short: str) -> Callable[[Moment], bool]:
    """Match the moment after an executor stored a run's end, before any of its effects."""
    has_run_task = [False]

    def matches(moment: Moment) -> bool:
        if moment.role != world.name(short) or not moment.answered:
            return False
        has_run_task[0] |= moment.operation == "Invoke"
        return has_run_task[0] and moment.operation == "UpdateItem"

    return matches


def send_again(world: World, lane: str) -> None:
    """Send the last message of a lane again, as after a lost answer."""
    fed = {queue.url: queue for queue in world.feeding(f"executor-{lane}")}
    sent = [call for call in world.meter.calls if _is_sent(call, fed)]
    queue, entry = fed[sent[-1].params["QueueUrl"]], sent[-1].params["Entries"][-1]
    fifo = {"MessageGroupId": "again", "MessageDeduplicationId": world.new_id()}
    world.sqs.send(queue, {"MessageBody": entry["MessageBody"], **fifo})


def _is_sent(call: Call, fed: Mapping[str, Queue]) -> bool:
    return call.operation == "SendMessageBatch" and call.params["QueueUrl"] in fed


HOURLY_WORK = {**HOURLY, "task": a_task(), "payload": "say nothing"}


@contextmanager
def without_output(world: World) -> Iterator[None]:
    """Let tasks return no output, so an evaluation has no output to find."""
    before, world.work = world.work, lambda _: b""
    try:
        yield
    finally:
        world.work = before


def job_with_unrecorded_end(world: World, api: Gateway, lane: str) -> str:
    """Return a job with an ended run. Only the job state holds the end."""
    job = submit_job(api, **HOURLY_WORK, **(LONG if lane == "long" else QUICK))
    with (
        without_output(world),
        inject_fault(world, after_stored_end(world, f"executor-{lane}"), OUT_OF_MEMORY),
    ):
        assert api.post(f"/jobs/{job}/runNow").status < 300
        world.run(3 * SECOND)
    return job


def check_unrecorded_ends(world: World, api: Gateway) -> None:
    """Check that unrecorded ends are repaired by a message, a change or the next occurrence."""
    for lane in LANES:
        job = job_with_unrecorded_end(world, api, lane)
        send_again(world, lane)
        world.run(10 * SECOND)
        assert_succeeded(api, job)
    job = job_with_unrecorded_end(world, api, "quick")
    with without_executors(world):
        assert api.post(f"/jobs/{job}/pause").status == 200
        assert_succeeded(api, job)
    job = submit_job(api, **{**HOURLY_WORK, "interval_seconds": 60})
    with (
        without_output(world),
        inject_fault(world, after_stored_end(world, "executor-quick"), OUT_OF_MEMORY),
    ):
        world.run(61 * SECOND)
    with without_executors(world):
        world.run(2 * MINUTE)
        assert_succeeded(api, job)
        assert api.call("DELETE", f"/jobs/{job}").status == 200
    world.run(MINUTE)


def assert_succeeded(api: Gateway, job: str) -> None:
    assert "SUCCESS" in [run["status"] for run in runs_of(api, job)]


def check_admission_after_end(world: World, api: Gateway) -> None:
    """Check that each end of a run admits the next one, in any lane, and sets the next time."""
    all_fields = queue_fields(world)
    for fields in (QUICK, LONG):
        with without_executors(world):
            for other in all_fields:
                job = submit_job(api, **HOURLY, **fields)
                for change in (None, other):
                    if change is not None:
                        assert api.call("PATCH", f"/jobs/{job}", change).status == 200
                    assert api.post(f"/jobs/{job}/runNow").status < 300
        often = submit_job(api, **{**HOURLY, **FROM_COMPLETION}, **fields)
        world.run(65 * SECOND)
        assert {run["status"] for run in runs_of(api, job)} == {"SUCCESS"}
        assert api.call("DELETE", f"/jobs/{often}").status == 200


def check_lost_claim(world: World, api: Gateway) -> None:
    """Redeliver the message of a long run after its executor died, and read its log."""
    job = submit_job(api, **HOURLY, **LONG)
    with inject_fault(
        world, call_of(world, "executor-long", "UpdateItem", answered=True), OUT_OF_MEMORY
    ):
        assert api.post(f"/jobs/{job}/runNow").status < 300
        world.run(SECOND)
    send_again(world, "long")
    world.run(SECOND)
    (run,) = runs_of(api, job)
    assert api.get(f"/jobs/{job}/runs/{run['run_id']}/logs").status == 200
    world.run(MINUTE)


def check_dead_letters(world: World, api: Gateway) -> None:
    """End runs after too many receipts of their messages. Their successors are sent at once."""
    _check_dead_letter_with_unrecorded_end(world, api)
    with without_executors(world):
        often = submit_job(
            api, **{**HOURLY, **FROM_COMPLETION}
        )  # its next time counts from its end
        world.run(61 * SECOND)
        jobs = [submit_job(api, **HOURLY, **fields) for fields in queue_fields(world)]
        jobs += [submit_job(api, **HOURLY, **QUICK) for _ in range(4)]
        for job in jobs * 2:
            assert api.post(f"/jobs/{job}/runNow").status < 300
        for queue in queues(world):
            for message in list(queue.messages):
                world.sqs.move_to_dead_letters(queue, message)
        swap = call_of(world, "dead-letters", "UpdateItem", answered=False)
        together = set(jobs[-4:])  # their timers share a row, which loses some of them
        with inject_fault(
            world, lambda moment: swap(moment) and moment.job_id in together, CONDITION_FAILED, 2
        ):
            world.tick("dead-letters")
            world.run(SECOND)
    world.run(MINUTE)
    for job in (*jobs, often):
        assert "FAILED" in [run["status"] for run in runs_of(api, job)]


def _check_dead_letter_with_unrecorded_end(world: World, api: Gateway) -> None:
    """Dead-letter one run of a job while its other run has an unrecorded end."""
    job = submit_job(api, **HOURLY_WORK, **QUICK, max_concurrency=2)
    with without_executors(world):
        for _ in range(2):
            assert api.post(f"/jobs/{job}/runNow").status < 300
        (queue,) = [queue for queue in queues(world) if queue.messages]
        world.sqs.move_to_dead_letters(queue, queue.messages[-1])
    with (
        without_output(world),
        inject_fault(world, after_stored_end(world, "executor-quick"), OUT_OF_MEMORY),
    ):
        world.run(SECOND)
    with without_executors(world):
        world.tick("dead-letters")
        world.run(SECOND)
        assert {run["status"] for run in runs_of(api, job)} == {"SUCCESS", "FAILED"}
    world.run(MINUTE)


def check_interrupted_requests(world: World, api: Gateway) -> None:
    """Interrupt requests and batches."""
    with inject_fault(
        world, call_of(world, "job-service", "PutItem", answered=False), OUT_OF_MEMORY
    ):
        assert api.post("/jobs", {"name": "never", **AT_ONCE}).status == 500
    batch = [{"name": "n", **AT_ONCE, **fields} for fields in (QUICK, LONG) for _ in range(3)]
    with inject_fault(
        world, call_of(world, "job-service", "PutItem", answered=False), CONDITION_FAILED
    ):
        assert api.post("/jobs/batch", {"jobs": batch}).status < 300
    at = (world.clock() + 90 * SECOND).isoformat()
    later = {"name": "n", "schedule_type": "FUTURE", "schedule_time": at, "task": EVENT}
    answer = api.post(
        "/jobs/batch", {"jobs": [{**later, **way} for way in queue_fields(world) * 2]}
    )
    with unreadable_state(world, answer.json["results"][0]["job_id"]):
        world.run(2 * MINUTE)
    world.run(MINUTE)


@contextmanager
def unreadable_state(world: World, job: str) -> Iterator[None]:
    """Give the job state a newer format inside the context."""
    for layout in (keys.ROW_LAYOUT + 1, keys.ROW_LAYOUT):
        world.bare.update_item(
            TableName=world.table(keys.JOBS_TABLE),
            Key=keys.state_key("default", job).item(),
            UpdateExpression="SET #f = :f",
            ExpressionAttributeNames={"#f": keys.LAYOUT_ATTR},
            ExpressionAttributeValues={":f": to_attribute(layout)},
        )
        if layout > keys.ROW_LAYOUT:
            yield
