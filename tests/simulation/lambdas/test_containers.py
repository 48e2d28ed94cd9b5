"""Containers while their executor and the function `containers` are killed, frozen and cut off.

Each call of a port, from the claim to the last sweep, meets each fault. Whatever fails, no run ends
twice, no attempt begins twice, each run ends, and an old claim changes nothing. A play is repeated
with `failures_of(name, [[Fault(...)]])`.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from random import Random

import pytest

from tests.support.containers.story import (
    CONTAINER,
    FROZEN_SECONDS,
    LONG_SCRIPT,
    Play,
    container_story,
)
from tests.support.simulation.port_faults import Call, Fault, FaultKind, fault_kinds
from tests.support.simulation.seeds import DAY, replay_hint, seeds, share

HOUR = {"timeout_seconds": 3_600}
ONCE = {"delivery": "AT_MOST_ONCE"}
PLAYS = {
    "container": Play({"task": CONTAINER, **HOUR}),
    "cancelled container": Play({"task": CONTAINER, **HOUR}, cancel_minute=2),
    "container at most once": Play({"task": CONTAINER, **HOUR, **ONCE}),
    "script": Play({"task": LONG_SCRIPT, **HOUR}),
    "cancelled script": Play({"task": LONG_SCRIPT, **HOUR}, cancel_minute=2),
    "script at most once": Play({"task": LONG_SCRIPT, **HOUR, **ONCE}),
}
STRIDE = 16  # of the faults of the other plays, one in so many is tried each day
SEEDS = seeds(fixed=8, fresh=8, day=DAY)
READING_CALLS = frozenset({"read", "query", "describe"})  # besides those of the engine's ports
MIN_CALLS = 38  # of one play
PROCESSES = ("executor", "events", "sweep")


@cache
def calls_of(name: str) -> tuple[Call, ...]:
    """Return the calls of ports that a play makes without a fault."""
    with container_story(PLAYS[name]) as story:
        story.run_to_end()
        story.check_end()
        return tuple(story.plan.calls)


@cache
def faults_of(name: str) -> Sequence[Fault]:
    """Return each fault at each call: killed, cut off and frozen, before and after it."""
    faults: list[Fault] = []
    for number, call in enumerate(calls_of(name), start=1):
        kinds = fault_kinds(call)
        moments = [FaultKind.STALL_BEFORE, FaultKind.STALL_AFTER]
        if call.reads or call.method in READING_CALLS:  # nothing differs after a read
            kinds = [(kind, crash) for kind, crash in kinds if kind is FaultKind.BEFORE]
            moments = moments[:1]
        faults += [Fault(number, kind, crash) for kind, crash in kinds]
        faults += [Fault(number, kind, seconds=FROZEN_SECONDS) for kind in moments]
    return faults


def failures_of(name: str, plans: Iterable[Sequence[Fault]]) -> list[str]:
    """Return what each play with these faults breaks."""
    failures = []
    for faults in plans:
        with container_story(PLAYS[name], faults) as story:
            try:
                story.run_to_end()
                story.check_end()
            except AssertionError as error:
                broken = [story.plan.calls[fault.call - 1] for fault in faults]
                failures.append(f"{[*map(str, faults)]} {broken}: {error}")
    return failures


@pytest.mark.parametrize("name", PLAYS)
def test_play_without_a_fault_reaches_every_store(name: str) -> None:
    calls = calls_of(name)
    assert len(calls) >= MIN_CALLS
    assert {call.process for call in calls} == set(PROCESSES)
    assert {"job_states", "timers", "control", "registry", "ecs"} <= {call.port for call in calls}


@pytest.mark.parametrize("process", PROCESSES)
def test_container_with_a_fault_at_each_call_ends_once(process: str) -> None:
    """Each call meets half of the faults today, and the others tomorrow."""
    calls, faults = calls_of("container"), faults_of("container")
    plans = [[fault] for fault in faults if calls[fault.call - 1].process == process]
    check_plays("container", share(plans, 2))


@pytest.mark.parametrize("name", [name for name in PLAYS if name != "container"])
def test_other_play_with_a_fault_ends_once(name: str) -> None:
    check_plays(name, share([[fault] for fault in faults_of(name)], STRIDE))


def check_plays(name: str, plans: Sequence[Sequence[Fault]]) -> None:
    assert plans
    failures = failures_of(name, plans)
    text = f"{len(failures)} of {len(plans)} plays; {replay_hint(DAY)}"
    assert not failures, "\n".join([text, *failures[:5]])


def test_play_with_two_random_faults_ends_once() -> None:
    failures = []
    for seed in SEEDS:
        random = Random(seed)
        name = random.choice(sorted(PLAYS))
        first, second = random.sample(faults_of(name), 2)
        failures += [f"seed {seed}: {text}" for text in failures_of(name, [[first, second]])]
    assert not failures, "\n".join([replay_hint(DAY), *failures[:5]])
