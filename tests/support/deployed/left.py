"""Scenes with interrupted work that later evaluations repair, using all their rights."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bench.meter import Call
from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import to_attribute
from tests.support.deployed.faults import Killed, Moment, Refusal
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.scenes import a_task, submitted
from tests.support.deployed.seen import runs_of
from tests.support.deployed.sqs import Queue
from tests.support.deployed.world import MINUTE, SECOND, World

EVENT = {"type": "event", "detail_type": "Paid"}
OFTEN = {"schedule_type": "INTERVAL", "interval_seconds": 3600, "task": EVENT}
BEHIND = {"interval_seconds": 60, "interval_from": "COMPLETED"}
AT_ONCE = {"schedule_type": "IMMEDIATE", "task": EVENT}
LANES = ("quick", "long")
LONG = {"timeout_seconds": 900}
QUICK = {"timeout_seconds": 60}
LOST = Refusal("ConditionalCheckFailedException")  # as after a lost race
GONE = Killed("out of memory")


def ways(world: World) -> list[dict[str, Any]]:
    """Return fields that send a job through each queue, by lane and priority."""
    found = []
    for lane, says in zip(LANES, (QUICK, LONG), strict=True):
        for queue in world.feeding(f"executor-{lane}"):
            parts = queue.name.removesuffix(".fifo").split("-")
            priority = parts[-1].upper() if parts[-1] != lane else "NORMAL"
            found.append({**says, "priority": priority})
    return found


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
        for letter in (one for queue in queues(world) for one in queue.letters):
            letter.visible_at = min(letter.visible_at, world.clock.now)


@contextmanager
def struck(
    world: World, hit: Callable[[Moment], bool], blow: Refusal | BaseException, times: int = 1
) -> Iterator[None]:
    """Apply `blow` to the first `times` moments that `hit` accepts."""
    left = [times]

    def plan(moment: Moment) -> Refusal | BaseException | None:
        if not left[0] or not hit(moment):
            return None
        left[0] -= 1
        return blow

    world.faults.plan = plan
    try:
        yield
    finally:
        world.faults.plan = None
    assert left[0] < times, "nothing was struck"


def by(world: World, short: str, operation: str, answered: bool) -> Callable[[Moment], bool]:
    return lambda moment: (
        (moment.role, moment.operation, moment.answered) == (world.name(short), operation, answered)
    )


def after_its_end(world: World, short: str) -> Callable[[Moment], bool]:
    """Match the moment after an executor stored a run's end, before any of its effects."""
    told = [False]

    def hit(moment: Moment) -> bool:
        if moment.role != world.name(short) or not moment.answered:
            return False
        told[0] |= moment.operation == "Invoke"
        return told[0] and moment.operation == "UpdateItem"

    return hit


def sent_again(world: World, lane: str) -> None:
    """Send the last message of a lane again, as after a lost answer."""
    fed = {queue.url: queue for queue in world.feeding(f"executor-{lane}")}
    sent = [one for one in world.meter.calls if _is_sent(one, fed)]
    queue, entry = fed[sent[-1].params["QueueUrl"]], sent[-1].params["Entries"][-1]
    fifo = {"MessageGroupId": "again", "MessageDeduplicationId": world.new_id()}
    world.sqs.send(queue, {"MessageBody": entry["MessageBody"], **fifo})


def _is_sent(call: Call, fed: Mapping[str, Queue]) -> bool:
    return call.operation == "SendMessageBatch" and call.params["QueueUrl"] in fed


SILENT = {**OFTEN, "task": a_task(), "payload": "say nothing"}


@contextmanager
def silent(world: World) -> Iterator[None]:
    """Let tasks return no output, so an evaluation has no output to find."""
    before, world.work = world.work, lambda _: b""
    try:
        yield
    finally:
        world.work = before


def unrecorded(world: World, api: Gateway, lane: str) -> str:
    """Return a job with an ended run. Only the job state holds the end."""
    job = submitted(api, **SILENT, **(LONG if lane == "long" else QUICK))
    with silent(world), struck(world, after_its_end(world, f"executor-{lane}"), GONE):
        assert api.post(f"/jobs/{job}/runNow").status < 300
        world.run(3 * SECOND)
    return job


def ends_are_found(world: World, api: Gateway) -> None:
    """Check that unrecorded ends are repaired by a message, a change or the next occurrence."""
    for lane in LANES:
        job = unrecorded(world, api, lane)
        sent_again(world, lane)
        world.run(10 * SECOND)
        is_over(api, job)
    job = unrecorded(world, api, "quick")
    with without_executors(world):
        assert api.post(f"/jobs/{job}/pause").status == 200
        is_over(api, job)
    job = submitted(api, **{**SILENT, "interval_seconds": 60})
    with silent(world), struck(world, after_its_end(world, "executor-quick"), GONE):
        world.run(61 * SECOND)
    with without_executors(world):
        world.run(2 * MINUTE)
        is_over(api, job)
        assert api.call("DELETE", f"/jobs/{job}").status == 200
    world.run(MINUTE)


def is_over(api: Gateway, job: str) -> None:
    assert "SUCCESS" in [run["status"] for run in runs_of(api, job)]


def others_are_let_in(world: World, api: Gateway) -> None:
    """Check that each end of a run admits the next one, in any lane, and sets the next time."""
    all_ways = ways(world)
    for says in (QUICK, LONG):
        with without_executors(world):
            for other in all_ways:
                job = submitted(api, **OFTEN, **says)
                for change in (None, other):
                    if change is not None:
                        assert api.call("PATCH", f"/jobs/{job}", change).status == 200
                    assert api.post(f"/jobs/{job}/runNow").status < 300
        often = submitted(api, **{**OFTEN, **BEHIND}, **says)
        world.run(65 * SECOND)
        assert {run["status"] for run in runs_of(api, job)} == {"SUCCESS"}
        assert api.call("DELETE", f"/jobs/{often}").status == 200


def held_by_nobody(world: World, api: Gateway) -> None:
    """Redeliver the message of a long run after its executor died, and read its log."""
    job = submitted(api, **OFTEN, **LONG)
    with struck(world, by(world, "executor-long", "UpdateItem", answered=True), GONE):
        assert api.post(f"/jobs/{job}/runNow").status < 300
        world.run(SECOND)
    sent_again(world, "long")
    world.run(SECOND)
    (run,) = runs_of(api, job)
    assert api.get(f"/jobs/{job}/runs/{run['run_id']}/logs").status == 200
    world.run(MINUTE)


def buried(world: World, api: Gateway) -> None:
    """End runs after too many receipts of their messages. Their successors are sent at once."""
    _buried_beside_an_end(world, api)
    with without_executors(world):
        often = submitted(api, **{**OFTEN, **BEHIND})  # its next time counts from its end
        world.run(61 * SECOND)
        jobs = [submitted(api, **OFTEN, **says) for says in ways(world)]
        jobs += [submitted(api, **OFTEN, **QUICK) for _ in range(4)]
        for job in jobs * 2:
            assert api.post(f"/jobs/{job}/runNow").status < 300
        for queue in queues(world):
            for letter in list(queue.letters):
                world.sqs.bury(queue, letter)
        swap = by(world, "dead-letters", "UpdateItem", answered=False)
        together = set(jobs[-4:])  # their timers share a row, which loses some of them
        with struck(world, lambda moment: swap(moment) and moment.row in together, LOST, 2):
            world.tick("dead-letters")
            world.run(SECOND)
    world.run(MINUTE)
    for job in (*jobs, often):
        assert "FAILED" in [run["status"] for run in runs_of(api, job)]


def _buried_beside_an_end(world: World, api: Gateway) -> None:
    """Dead-letter one run of a job while its other run has an unrecorded end."""
    job = submitted(api, **SILENT, **QUICK, max_concurrency=2)
    with without_executors(world):
        for _ in range(2):
            assert api.post(f"/jobs/{job}/runNow").status < 300
        (queue,) = [queue for queue in queues(world) if queue.letters]
        world.sqs.bury(queue, queue.letters[-1])
    with silent(world), struck(world, after_its_end(world, "executor-quick"), GONE):
        world.run(SECOND)
    with without_executors(world):
        world.tick("dead-letters")
        world.run(SECOND)
        assert {run["status"] for run in runs_of(api, job)} == {"SUCCESS", "FAILED"}
    world.run(MINUTE)


def torn(world: World, api: Gateway) -> None:
    """Interrupt requests and batches."""
    with struck(world, by(world, "job-service", "PutItem", answered=False), GONE):
        assert api.post("/jobs", {"name": "never", **AT_ONCE}).status == 500
    batch = [{"name": "n", **AT_ONCE, **says} for says in (QUICK, LONG) for _ in range(3)]
    with struck(world, by(world, "job-service", "PutItem", answered=False), LOST):
        assert api.post("/jobs/batch", {"jobs": batch}).status < 300
    at = (world.clock() + 90 * SECOND).isoformat()
    later = {"name": "n", "schedule_type": "FUTURE", "schedule_time": at, "task": EVENT}
    answer = api.post("/jobs/batch", {"jobs": [{**later, **way} for way in ways(world) * 2]})
    with unreadable(world, answer.json["results"][0]["job_id"]):
        world.run(2 * MINUTE)
    world.run(MINUTE)


@contextmanager
def unreadable(world: World, job: str) -> Iterator[None]:
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
