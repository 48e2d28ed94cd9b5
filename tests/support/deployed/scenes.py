"""Scenes for the cost report. They make the same calls on any machine."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple

from bench.cost.accounts import Line, UnitSums, priced_lines, subtract_units, sum_units
from bench.cost.meter import Call, Unit, purpose
from bench.cost.prices import prices
from bench.cost.sizes import ITEM_OVERHEAD_BYTES, item_bytes
from tests.support.deployed.gateway import Answer, Gateway
from tests.support.deployed.latency import Latency
from tests.support.deployed.world import MINUTE, SECOND, World, a_world

SMALL = {"order": 4711, "mail": "ada@example.com"}
PAYLOAD = {**SMALL, "lines": [{"n": n, "sku": f"A-{n * 7919 % 9973}"} for n in range(35)]}  # 1 KB
OUTPUT = {"did": 4711, "text": "all is well; " * 150}  # 2 KB
WATERMARK = (Unit.WRITE, "control: #watermark")
MOMENTS = 5
TOKEN = "a-token-that-only-these-tests-know"


class Counted(NamedTuple):
    """The lines of one run, submission or minute, and the bytes that it leaves in storage."""

    label: str
    lines: Sequence[Line]
    stored: Mapping[str, float]


def open_api(world: World) -> Gateway:
    """Set the admin token as a deployment does, and return the API."""
    world.put_token(TOKEN)
    return Gateway(world, TOKEN)


def a_task() -> dict[str, Any]:
    """Return a task that calls the `work` of the world."""
    return {"type": "lambda", "function": "task-work"}


def submit_job(gateway: Gateway, **document: Any) -> str:
    name = f"count {next(gateway.world.job_numbers)}"
    wanted = {"name": name, "task": a_task(), "payload": PAYLOAD, **document}
    answer: Answer = gateway.post("/jobs", wanted)
    assert answer.status in (201, 202), answer.body
    return str(answer.json["job_id"])


def spent_in(world: World, calls: Sequence[Call]) -> UnitSums:
    memory = {name: function.memory for name, function in world.deployed.functions.items()}
    return sum_units(calls, memory, prices())


def stored_by(calls: Sequence[Call], by: float) -> dict[str, float]:
    """Return the bytes that these calls added to storage."""
    sizes: Counter[str] = Counter()
    for call in calls:
        for write in call.writes:
            category = purpose(write.table, write.key)
            sizes[category] += _stored_bytes(write.after) - _stored_bytes(write.before)
        if call.operation == "PutObject" and not call.error:
            sizes["outputs"] += len(call.params["Body"])
    return {category: size / by for category, size in sorted(sizes.items()) if size > 0}


def _stored_bytes(item: Mapping[str, Any] | None) -> int:
    return 0 if item is None else item_bytes(item) + ITEM_OVERHEAD_BYTES


def empty_minute(world: World) -> Counted:
    """Count a minute without due timers and requests."""
    world.run(5 * MINUTE)
    began = len(world.meter.calls)
    world.run(10 * MINUTE)
    calls = world.meter.calls[began:]
    return Counted("an empty minute", priced_lines(spent_in(world, calls), 10, prices()), {})


def daily_walk(world: World) -> Counted:
    """Count a daily walk without anything to repair."""
    world.run(5 * MINUTE)
    world.ticks = False
    began = len(world.meter.calls)
    world.tick("reconciler")
    world.run(MINUTE)
    calls = world.meter.calls[began:]
    return Counted("a day's walk", priced_lines(spent_in(world, calls), 1, prices()), {})


def dead_letter_round(world: World) -> Counted:
    """Count a round over all dead-letter queues while they are empty."""
    world.ticks = False
    world.tick("dead-letters")
    world.run(MINUTE)
    began = len(world.meter.calls)
    world.tick("dead-letters")
    world.run(MINUTE)
    calls = world.meter.calls[began:]
    return Counted("a round", priced_lines(spent_in(world, calls), 1, prices()), {})


def recurring(
    world: World, jobs: int, minutes: int, returned: Any = None, **document: Any
) -> Counted:
    """Count one run of jobs that run each minute, without the cost of an idle minute.

    `returned` is the result of each task, and `document` holds extra fields of the definition.
    """
    world.work = lambda _: returned
    gateway = open_api(world)
    world.run(5 * MINUTE)
    idle = idle_units(world, 10)
    world.run(MINUTE / 2)
    for _ in range(jobs):
        submit_job(gateway, schedule_type="CRON", cron_expression="* * * * *", **document)
    world.run(2 * MINUTE)
    began, seen = len(world.meter.calls), len(world.ended())
    world.run(minutes * MINUTE)
    calls = world.meter.calls[began:]
    runs = len(world.ended()) - seen
    assert (runs, world.failures) == (jobs * minutes, [])
    left = without_watermark(subtract_units(spent_in(world, calls), idle, minutes / 10))
    label = "alone" if jobs == 1 else f"{jobs} at a time"
    return Counted(label, priced_lines(left, runs, prices()), stored_by(calls, runs))


def with_outputs(world: World, jobs: int) -> Counted:
    """Count one run of jobs with a stored output, each in an object of its own."""
    counted = recurring(world, jobs, 7, OUTPUT)
    return counted._replace(label=f"{counted.label}, each with 2 KB of output")


def with_discarded_outputs(world: World, jobs: int) -> Counted:
    """Count one run of jobs that return the same, and discard it."""
    counted = recurring(world, jobs, 7, OUTPUT, output="discard")
    return counted._replace(label=f"{counted.label}, each with 2 KB of output that it discards")


def one_shot(world: World, jobs: int) -> Counted:
    """Count the only run of a job, without its submission.

    The planner ticks at a fixed fraction of a second. Several due times stand for several tick
    times.
    """
    world.work = lambda _: None
    gateway = open_api(world)
    world.run(5 * MINUTE)
    idle = idle_units(world, 10)
    for number in range(MOMENTS):
        later = timedelta(minutes=5 + number, seconds=10 + number / MOMENTS)
        at = (world.clock() + later).isoformat()
        for _ in range(jobs):
            submit_job(gateway, schedule_type="FUTURE", schedule_time=at)
    world.run(MINUTE)
    began, seen, minutes = len(world.meter.calls), len(world.ended()), 4 + MOMENTS
    world.run(minutes * MINUTE)
    calls = world.meter.calls[began:]
    runs = len(world.ended()) - seen
    assert (runs, world.failures) == (jobs * MOMENTS, [])
    left = without_watermark(subtract_units(spent_in(world, calls), idle, minutes / 10))
    return Counted(f"{jobs} at a time", priced_lines(left, runs, prices()), stored_by(calls, runs))


SCENES: Mapping[str, Callable[[World], Counted]] = {
    "hundred": lambda world: recurring(world, 100, 3),
    "many": lambda world: recurring(world, 20, 4),
    "ten": lambda world: recurring(world, 10, 7),
    "alone": lambda world: recurring(world, 1, 14),
    "discards": lambda world: with_discarded_outputs(world, 10),
    "outputs": lambda world: with_outputs(world, 10),
    "output": lambda world: with_outputs(world, 1),
    "one-shot": lambda world: one_shot(world, 10),
    "submission": lambda world: submission(world, 10, SMALL),
    "large submission": lambda world: submission(world, 10, PAYLOAD),
    "minute": empty_minute,
    "day": daily_walk,
    "round": dead_letter_round,
}
IDLE = ("minute", "round", "day")


@cache
def measured(scene: str, stage: str = "dev") -> Counted:
    """Return the count of a scene of docs/cost.md, in a deployment of its own."""
    with a_world(stage) as world:
        # This round runs each five minutes and is counted separately.
        world.clocks = [clock for clock in world.clocks if clock.short != "dead-letters"]
        world.latency = Latency(slow=("poller",))  # it waits for the due time and works until then
        return SCENES[scene](world)


@cache
def metrics_of(stage: str) -> int:
    """Return how many of our own metrics a stage emits. Each is paid by the month."""
    with a_world(stage) as world:
        gateway = open_api(world)
        minutely = {"schedule_type": "CRON", "cron_expression": "* * * * *"}
        # Every stage lets its tasks reach these targets.
        submit_job(gateway, **minutely, task={"type": "event", "detail_type": "Paid"})
        submit_job(gateway, **minutely, task={"type": "http", "url": "https://192.0.2.1/"})
        world.run(3 * MINUTE)
        metrics = set()
        for line in world.log_lines():
            for told in line.get("_aws", {}).get("CloudWatchMetrics", []):
                for names in told["Dimensions"]:
                    values = tuple(line[name] for name in names)
                    metrics |= {(metric["Name"], values) for metric in told["Metrics"]}
        return len(metrics)


def without_watermark(left: UnitSums) -> UnitSums:
    """Drop writes of the watermark. Their number in a short interval is random."""
    return {place: n for place, n in left.items() if place[0::2] != WATERMARK}


def idle_units(world: World, minutes: int) -> UnitSums:
    """Return what these minutes cost without a run."""
    began = len(world.meter.calls)
    world.run(minutes * MINUTE)
    return spent_in(world, world.meter.calls[began:])


def submission(world: World, count: int, payload: Any) -> Counted:
    """Count the submission of future jobs, with its storage and its stream records."""
    world.ticks = False
    gateway = open_api(world)
    daily = {"schedule_type": "CRON", "cron_expression": "0 0 * * *", "payload": payload}
    submit_job(gateway, **daily)
    world.run(5 * SECOND)
    began = len(world.meter.calls)
    for _ in range(count):
        submit_job(gateway, **daily)
    world.run(5 * SECOND)
    calls = world.meter.calls[began:]
    spent_here = spent_in(world, calls)
    label = f"{len(json.dumps(payload)):,} bytes of payload"
    return Counted(label, priced_lines(spent_here, count, prices()), stored_by(calls, count))
