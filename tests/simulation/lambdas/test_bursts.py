"""Much that is due at once: fired up to a minute ahead, held, and sent two seconds before."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from punctual.domain.run import RunStatus
from punctual.engine.ports.run_queue import Message
from tests.support.simulation.functions import OnFunctions
from tests.support.simulation.processes import Action
from tests.support.simulation.scenario import at, document, submit, text
from tests.support.simulation.torn import Fault, Tear
from tests.support.simulation.world import Setup, World

DUE = at(140)
TWO = timedelta(seconds=2)
QUICK = Setup()


Sent = list[tuple[datetime, Message]]


def burst(number: int, faults: Sequence[Fault] = (), setup: Setup = QUICK) -> tuple[World, Sent]:
    documents = [document(schedule_type="FUTURE", schedule_time=text(DUE)) for _ in range(number)]
    batches = [
        Action(1 + n / 100, f"submit {n}", submit(f"k{n}", *documents[n : n + 100]))
        for n in range(0, number, 100)
    ]
    world = OnFunctions("burst", batches, setup=setup).world(faults)
    sent: Sent = []
    real = world.memory.queue.send

    def send(messages: Sequence[Message]) -> Sequence[bool]:
        sent.extend((world.now, message) for message in messages)
        return real(messages)

    world.memory.queue.send = send  # type: ignore[method-assign]
    world.processes[:] = [one for one in world.processes if one.name not in ("e1", "e2")]
    return world, sent


def fired(world: World) -> list[datetime]:
    heads = [stored.state for stored in world.memory.heads.rows.values()]
    return sorted(run.created_at for head in heads for run in head.runs)


@pytest.mark.parametrize("number", [300, 1_500, 6_000])
def test_a_burst_is_fired_in_time_and_sent_two_seconds_before(number: int) -> None:
    # One place: what another poller does meanwhile is done within this one's pauses here.
    world, sent = burst(number, setup=Setup(shards=1))
    world.run(DUE + timedelta(seconds=20))
    each = sum(1 / rate for rate in world.setup.pace)
    assert len(fired(world)) == number
    assert fired(world)[-1] <= DUE
    needs = timedelta(seconds=number * each)
    assert DUE - needs - TWO <= fired(world)[0] <= DUE - needs + TWO, "when it has to, not earlier"
    assert {message.due_at for _, message in sent} == {DUE}
    assert min(moment for moment, _ in sent) >= DUE - TWO
    assert len(sent) == number
    assert world.memory.timers.all() == []


def test_few_are_fired_two_seconds_ahead_at_the_most() -> None:
    world, sent = burst(100)
    world.run(DUE + timedelta(seconds=20))
    assert DUE - TWO <= fired(world)[0] <= DUE
    assert len(sent) == 100


@pytest.mark.parametrize("call", range(0, 30, 4))
def test_a_poller_that_dies_with_messages_held_loses_none(call: int) -> None:
    world, _ = burst(800)
    world.run(DUE - timedelta(seconds=10))
    before = len(world.plan.calls)
    world, sent = burst(800, [Fault(before + 1 + call, Tear.BEFORE, crash=True)])
    world.run(DUE + timedelta(seconds=240))
    assert world.crashes == 1
    assert len({message.job_id for _, message in sent}) == 800
    statuses = {run.status for one in world.memory.heads.rows.values() for run in one.state.runs}
    assert statuses == {RunStatus.QUEUED}
