"""Many runs due at once: fired up to a minute ahead, held, and sent two seconds before."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from punctual.domain.run import RunStatus
from punctual.engine.ports.run_queue import Message
from tests.support.simulation.functions import OnFunctions
from tests.support.simulation.port_faults import Fault, FaultKind
from tests.support.simulation.processes import Action
from tests.support.simulation.scenario import at, document, submit, text
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
    real = world.memory.run_queue.send

    def send(messages: Sequence[Message]) -> Sequence[bool]:
        sent.extend((world.now, message) for message in messages)
        return real(messages)

    world.memory.run_queue.send = send  # type: ignore[method-assign]
    world.processes[:] = [
        process for process in world.processes if process.name not in ("e1", "e2")
    ]
    return world, sent


def fired_at(world: World) -> list[datetime]:
    states = [stored.state for stored in world.memory.job_states.rows.values()]
    return sorted(run.created_at for state in states for run in state.runs)


@pytest.mark.parametrize("number", [300, 1_500, 6_000])
def test_burst_is_fired_in_time_and_sent_two_seconds_before(number: int) -> None:
    # One shard, because another poller would work within the pauses of this one.
    world, sent = burst(number, setup=Setup(shards=1))
    world.run(DUE + timedelta(seconds=20))
    seconds_each = sum(1 / rate for rate in world.setup.pace)
    assert len(fired_at(world)) == number
    assert fired_at(world)[-1] <= DUE
    duration = timedelta(seconds=number * seconds_each)
    assert DUE - duration - TWO <= fired_at(world)[0] <= DUE - duration + TWO, (
        "fired when needed, not earlier"
    )
    assert {message.due_at for _, message in sent} == {DUE}
    assert min(moment for moment, _ in sent) >= DUE - TWO
    assert len(sent) == number
    assert world.memory.timers.all() == []


def test_few_runs_are_fired_at_most_two_seconds_ahead() -> None:
    world, sent = burst(100)
    world.run(DUE + timedelta(seconds=20))
    assert DUE - TWO <= fired_at(world)[0] <= DUE
    assert len(sent) == 100


@pytest.mark.parametrize("call", range(0, 30, 4))
def test_crashed_poller_loses_no_held_message(call: int) -> None:
    world, _ = burst(800)
    world.run(DUE - timedelta(seconds=10))
    before = len(world.plan.calls)
    world, sent = burst(800, [Fault(before + 1 + call, FaultKind.BEFORE, crash=True)])
    world.run(DUE + timedelta(seconds=240))
    assert world.crashes == 1
    assert len({message.job_id for _, message in sent}) == 800
    statuses = {
        run.status for stored in world.memory.job_states.rows.values() for run in stored.state.runs
    }
    assert statuses == {RunStatus.QUEUED}
