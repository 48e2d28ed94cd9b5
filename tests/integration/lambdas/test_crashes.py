"""An executor crashes or loses a store at any call. Redelivery finishes each run once."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from punctual.domain.run import RunStatus
from punctual.engine.ports.rows import JobKey
from tests.support.deployed.drivers.executors import Executors, Record, executors
from tests.support.simulation.port_faults import Call, Crash, Fault, Plan, fault_kinds

JSON = "application/json"
ROUNDS = 40


class Story:
    """The submitted jobs, and the lane of their runs."""

    def __init__(self, lane: str, seconds_left: float, documents: Sequence[dict[str, Any]]) -> None:
        self.lane = lane
        self.seconds_left = seconds_left
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
            world.records(),
            world.faulty_runtime(plan),
            STORIES[story].lane,
            STORIES[story].seconds_left,
        )
        return tuple(plan.calls)


def faults() -> list[Any]:
    return [
        pytest.param(
            story,
            Fault(number, kind, crash),
            id=f"{story} {call.port}.{call.method} {kind}{' crash' if crash else ''} {number}",
        )
        for story in STORIES
        for number, call in enumerate(calls(story), start=1)
        for kind, crash in fault_kinds(call)
    ]


def settle(world: Executors, story: Story, old: list[Record]) -> None:
    """Redeliver messages and evaluate timers until none is left."""
    for _ in range(ROUNDS):
        world.clock.advance(timedelta(seconds=31))
        world.evaluate_due_timers()
        records = [*old, *world.records()]
        if not records:
            return
        failed = world.invoke(records, world.new_runtime(), story.lane, story.seconds_left)
        old = [record for record in records if record["messageId"] in failed]
    raise AssertionError("messages or timers are still left")


def attempt(work: Callable[[], list[str]], records: Sequence[Record]) -> list[Record]:
    """Return the records that were not acknowledged."""
    try:
        failed = work()
    except Crash:
        return list(records)
    return [record for record in records if record["messageId"] in failed]


@pytest.mark.parametrize(("name", "fault"), faults())
def test_executor_with_one_fault_finishes_each_run_once(name: str, fault: Fault) -> None:
    story = STORIES[name]
    with executors() as world:
        keys = story.begin(world)
        records = world.records()
        with_faults = world.faulty_runtime(Plan((fault,)))
        old = attempt(
            lambda: world.invoke(records, with_faults, story.lane, story.seconds_left), records
        )
        settle(world, story, old)
        for key, document in zip(keys, story.documents, strict=True):
            view = world.run(key)
            assert view.run.status is RunStatus.SUCCESS
            assert world.output_of(key) == document["payload"]["out"].encode()
            assert not world.runtime.ports.job_states.load([key])[key].leases
        assert len(world.aws.rows("timers")) == 0
        assert len(world.task.ran) <= 2 * len(keys)


def test_faults_cover_every_port_call_of_a_batch() -> None:
    assert [f"{call.port}.{call.method}" for call in calls("quick")] == [
        *("job_states.load", "job_states.swap", "job_states.load_definitions"),
        *("job_states.load", "job_states.swap", "history.put_runs"),
    ]
    assert [f"{call.port}.{call.method}" for call in calls("outputs")] == [
        *("job_states.load", "job_states.swap", "job_states.load_definitions", "blobs.put_many"),
        *("job_states.load", "history.put_results", "job_states.swap", "history.put_runs"),
    ]
    assert "job_states.renew_leases" in [f"{call.port}.{call.method}" for call in calls("long")]
