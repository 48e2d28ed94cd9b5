"""An executor that dies or loses its stores between any two calls: delivered again, all is well."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from punctual.domain.run import RunStatus
from punctual.engine.ports.rows import JobKey
from tests.support.deployed.executors import Executors, Record, executors
from tests.support.simulation.torn import Call, Crash, Fault, Plan, tears

JSON = "application/json"
ROUNDS = 40


class Story:
    """What is submitted, and through which lane it goes."""

    def __init__(self, lane: str, left: float, documents: Sequence[dict[str, Any]]) -> None:
        self.lane = lane
        self.left = left
        self.documents = documents

    def begin(self, world: Executors) -> list[JobKey]:
        return [world.submit(**document) for document in self.documents]


QUICK = Story("quick", 330, [{"payload": {"out": "an-id"}}, {"payload": {"out": "also an id"}}])
LONG = Story(
    "long", 900, [{"payload": {"out": "said", "type": JSON, "lasts": 9}, "timeout_seconds": 900}]
)
OUTPUTS = Story(
    "quick",
    330,
    [
        {"payload": {"out": '{"ok":true}', "type": JSON}},
        {"payload": {"out": "s" * 200}},
        {"payload": {"out": "an answer of an API", "http_status": 200}},
    ],
)
STORIES = {"quick": QUICK, "long": LONG, "outputs": OUTPUTS}


@cache
def calls(story: str) -> tuple[Call, ...]:
    with executors() as world:
        STORIES[story].begin(world)
        plan = Plan()
        world.invoke(
            world.records(), world.torn_runtime(plan), STORIES[story].lane, STORIES[story].left
        )
        return tuple(plan.calls)


def faults() -> list[Any]:
    return [
        pytest.param(
            story,
            Fault(number, tear, crash),
            id=f"{story} {call.port}.{call.method} {tear}{' crash' if crash else ''} {number}",
        )
        for story in STORIES
        for number, call in enumerate(calls(story), start=1)
        for tear, crash in tears(call)
    ]


def settle(world: Executors, story: Story, old: list[Record]) -> None:
    """Deliver what was not acknowledged, and look at what timers there are, until it rests."""
    for _ in range(ROUNDS):
        world.clock.advance(timedelta(seconds=31))
        world.look()
        records = [*old, *world.records()]
        if not records:
            return
        failed = world.invoke(records, world.new_runtime(), story.lane, story.left)
        old = [one for one in records if one["messageId"] in failed]
    raise AssertionError("it does not come to rest")


def attempt(what: Callable[[], list[str]], records: Sequence[Record]) -> list[Record]:
    """The records that were not acknowledged."""
    try:
        failed = what()
    except Crash:
        return list(records)
    return [one for one in records if one["messageId"] in failed]


@pytest.mark.parametrize(("name", "fault"), faults())
def test_nothing_is_lost_and_nothing_is_told_twice(name: str, fault: Fault) -> None:
    story = STORIES[name]
    with executors() as world:
        keys = story.begin(world)
        records = world.records()
        torn = world.torn_runtime(Plan((fault,)))
        old = attempt(lambda: world.invoke(records, torn, story.lane, story.left), records)
        settle(world, story, old)
        for key, document in zip(keys, story.documents, strict=True):
            view = world.run(key)
            assert view.run.status is RunStatus.SUCCESS
            assert world.output_of(key) == document["payload"]["out"].encode()
            assert not world.runtime.ports.job_states.load([key])[key].leases
        assert len(world.aws.rows("timers")) == 0
        assert len(world.doing.ran) <= 2 * len(keys)


def test_there_is_something_to_break() -> None:
    assert [f"{call.port}.{call.method}" for call in calls("quick")] == [
        *("job_states.load", "heads.swap", "job_states.load_definitions"),
        *("job_states.load", "heads.swap", "history.put_runs"),
    ]
    assert [f"{call.port}.{call.method}" for call in calls("outputs")] == [
        *("job_states.load", "heads.swap", "job_states.load_definitions", "blobs.put_many"),
        *("job_states.load", "history.put_results", "heads.swap", "history.put_runs"),
    ]
    assert "job_states.renew_leases" in [f"{call.port}.{call.method}" for call in calls("long")]
