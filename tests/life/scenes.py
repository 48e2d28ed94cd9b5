"""Pieces of life whose cost is counted; the same calls on any machine."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from bench.accounts import Line, Spent, less, lines, spent
from bench.meter import Call
from bench.prices import prices
from tests.life.gateway import Answer, Gateway
from tests.life.world import MINUTE, World

PAYLOAD = {"text": "x" * 1013}  # 1 KB of JSON
TOKEN = "a-token-that-only-these-tests-know"


class Counted(NamedTuple):
    """The lines of one run, submission or minute, and the calls behind them."""

    what: str
    lines: Sequence[Line]
    calls: Sequence[Call]


def opened(world: World) -> Gateway:
    """The API with its token put in place, as a deployment does."""
    world.put_token(TOKEN)
    return Gateway(world, TOKEN)


def a_task() -> dict[str, Any]:
    """Answers what it is given, which is kept as its output."""
    return {"type": "lambda", "function": "task-work"}


def submitted(gateway: Gateway, **document: Any) -> str:
    wanted = {"name": "count", "task": a_task(), "payload": PAYLOAD, **document}
    answer: Answer = gateway.post("/jobs", wanted)
    assert answer.status in (201, 202), answer.body
    return str(answer.json["job_id"])


def spent_in(world: World, calls: Sequence[Call]) -> Spent:
    memory = {name: one.memory for name, one in world.deployed.functions.items()}
    return spent(calls, memory, prices())


def empty_minute(world: World) -> Counted:
    """Nothing is due in it, and nobody asks."""
    world.run(5 * MINUTE)
    began = len(world.meter.calls)
    world.run(10 * MINUTE)
    calls = world.meter.calls[began:]
    return Counted("an empty minute", lines(spent_in(world, calls), 10, prices()), calls)


def recurring(world: World, jobs: int, minutes: int = 4) -> Counted:
    """Each job runs each minute; a minute without any is taken away, the rest is the runs'."""
    gateway = opened(world)
    world.run(3 * MINUTE)
    began = len(world.meter.calls)
    world.run(minutes * MINUTE)
    idle = spent_in(world, world.meter.calls[began:])
    world.run(timedelta(seconds=20))
    for _ in range(jobs):
        submitted(gateway, schedule_type="CRON", cron_expression="* * * * *")
    world.run(3 * MINUTE)
    began, seen = len(world.meter.calls), len(world.ended())
    world.run(minutes * MINUTE)
    calls = world.meter.calls[began:]
    runs = len(world.ended()) - seen
    assert runs == jobs * minutes, f"{runs} runs of {jobs * minutes}"
    left = less(spent_in(world, calls), idle, 1)
    return Counted(f"{jobs} at a time", lines(left, runs, prices()), calls)


def one_shot(world: World, jobs: int) -> Counted:
    """Submitted before; what is counted is what its one run costs."""
    gateway = opened(world)
    world.run(3 * MINUTE)
    began = len(world.meter.calls)
    world.run(6 * MINUTE)
    idle = spent_in(world, world.meter.calls[began:])
    at = (world.clock() + timedelta(minutes=5, seconds=30)).isoformat()
    for _ in range(jobs):
        submitted(gateway, schedule_type="FUTURE", schedule_time=at)
    world.pump()
    began, seen = len(world.meter.calls), len(world.ended())
    world.run(6 * MINUTE)
    calls = world.meter.calls[began:]
    runs = len(world.ended()) - seen
    assert runs == jobs, f"{runs} runs of {jobs}"
    left = less(spent_in(world, calls), idle, 1)
    return Counted("a one-shot", lines(left, runs, prices()), calls)


def submission(world: World, count: int = 10) -> Counted:
    """Jobs of days to come: the request, what it stores, and what the stream makes of it."""
    gateway = opened(world)
    submitted(gateway, schedule_type="CRON", cron_expression="0 0 * * *")
    world.pump()
    began = len(world.meter.calls)
    for _ in range(count):
        submitted(gateway, schedule_type="CRON", cron_expression="0 0 * * *")
    world.pump()
    calls = world.meter.calls[began:]
    return Counted("a submission", lines(spent_in(world, calls), count, prices()), calls)
