"""Operations with faults at any call: each job is acted on once, whatever a person does between.

The person changes each job back at once, so a second action of the same operation would show.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from punctual.domain.draft import MAX_WRITE_IDS
from punctual.domain.errors import PunctualError, Unavailable
from punctual.domain.job_state import JobStatus
from punctual.domain.operations.operation import Operation, OperationAction, OperationStatus
from punctual.domain.run import RunStatus
from punctual.engine.operations.matching import BulkFilter
from punctual.engine.ports.lists.job_index import JobFilters
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.rows import JobKey
from tests.support.aws.adapters import ADAPTERS
from tests.support.builders import NOON, ManualClock, a_row, a_run, after, an_id
from tests.support.operations.world import TENANT, OperationsWorld
from tests.support.simulation.port_faults import Call, Crash, Fault, FaultKind, Plan, fault_kinds
from tests.support.simulation.seeds import DAY, replay_hint, seeds, share

JOBS = 5
REQUEST_KEY = "once"
ACTIONS = tuple(OperationAction)
RUN_FILTER = BulkFilter(JobFilters(), RunFilters(status=frozenset({RunStatus.FAILED})))


@contextmanager
def a_world(adapter: str = "memory") -> Iterator[OperationsWorld]:
    clock = ManualClock(NOON)
    with ADAPTERS[adapter](Path(), clock) as world:
        yield OperationsWorld(world.ports, clock)


class Person:
    """Counts what an operation did to each job, and changes the job back."""

    def __init__(self, world: OperationsWorld, action: OperationAction) -> None:
        self.world = world
        self.action = action
        self.keys = [world.submit(f"job {number}") for number in range(JOBS)]
        self.acts: Counter[JobKey] = Counter()
        if action is OperationAction.RESUME:
            for key in self.keys:
                world.jobs().pause(*key)
        if action is OperationAction.RETRY:
            for number, key in enumerate(self.keys):
                run_id = an_id(900 + number)
                run = a_run(run_id, RunStatus.FAILED, ended_at=after(1), changed_at=after(1))
                world.ports.history.put_runs([a_row(run_id, key.job_id, run=run)])

    def begin(self, plan: Plan | None = None) -> Operation:
        """Begin the operation, and ask again with the same key until there is an answer."""
        bulk_filter = RUN_FILTER if self.action is OperationAction.RETRY else None
        try:
            return self.world.begin(self.action, bulk_filter, plan, REQUEST_KEY)
        except (Crash, Unavailable):
            return self.world.begin(self.action, bulk_filter, None, REQUEST_KEY)

    def change_back(self) -> None:
        """Change back what the operation did, by more changes than a job knows write ids of."""
        jobs = self.world.jobs()
        undo = {
            OperationAction.PAUSE: (JobStatus.PAUSED, jobs.resume, jobs.pause),
            OperationAction.RESUME: (JobStatus.SCHEDULED, jobs.pause, jobs.resume),
        }.get(self.action)
        if undo is None:
            return
        acted_status, change_back, change_again = undo
        for key in self.keys:
            if self.world.state(key).status is acted_status:
                self.acts[key] += 1
                for _ in range(MAX_WRITE_IDS // 2):
                    change_back(*key)
                    change_again(*key)
                change_back(*key)

    def counted_acts(self) -> Mapping[JobKey, int]:
        self.change_back()
        match self.action:
            case OperationAction.PAUSE | OperationAction.RESUME:
                return {key: self.acts[key] for key in self.keys}
            case OperationAction.CANCEL:
                return {
                    key: int(self.world.state(key).status is JobStatus.CANCELLED)
                    for key in self.keys
                }
            case _:
                return {key: len(self.world.requested_runs(key)) for key in self.keys}


def check_done(world: OperationsWorld, person: Person, operation: Operation) -> None:
    ended = world.load(operation)
    assert (ended.status, ended.matched) == (OperationStatus.DONE, JOBS), ended
    assert (ended.done, ended.failed) == (JOBS, 0), ended.errors
    assert person.counted_acts() == dict.fromkeys(person.keys, 1)
    listed = world.ports.operations.page(TENANT, None, 9)
    assert [listed_one.operation_id for listed_one in listed] == [operation.operation_id]


def operate(world: OperationsWorld, person: Person, plan: Plan | None) -> Operation:
    """Begin an operation and carry it out. The plan counts the calls of both."""
    world.person = person.change_back
    operation = person.begin(plan)
    world.run(plan)
    return operation


@cache
def calls_of(action: OperationAction) -> tuple[Call, ...]:
    with a_world() as world:
        plan = Plan()
        operate(world, Person(world, action), plan)
        return tuple(plan.calls)


def faults(action: OperationAction) -> Iterator[Fault]:
    for number, call in enumerate(calls_of(action), start=1):
        for kind, crash in fault_kinds(call):
            if kind is not FaultKind.REFUSED:
                yield Fault(number, kind, crash)


@pytest.mark.parametrize("action", ACTIONS)
def test_one_fault_at_any_call_changes_each_job_once(action: OperationAction) -> None:
    count = 0
    for fault in faults(action):
        with a_world() as world:
            person = Person(world, action)
            try:
                check_done(world, person, operate(world, person, Plan((fault,))))
            except AssertionError as error:
                error.add_note(f"{fault} {calls_of(action)[fault.call - 1]}")
                raise
        count += 1
    print(f"{action.value}: {count} faults")
    assert count > 50


AWS_FAULTS = [
    (action, fault)
    for action in (OperationAction.PAUSE, OperationAction.RUN_NOW)
    for fault in share(list(faults(action)), 8)
]


@pytest.mark.parametrize(
    ("action", "fault"), AWS_FAULTS, ids=[f"{action}-{fault}" for action, fault in AWS_FAULTS]
)
def test_one_fault_on_dynamodb_changes_each_job_once(action: OperationAction, fault: Fault) -> None:
    with a_world("aws") as world:
        person = Person(world, action)
        check_done(world, person, operate(world, person, Plan((fault,))))


def test_faults_cover_every_port_of_a_slice() -> None:
    calls = {f"{call.process} {call.port}.{call.method}" for call in calls_of(ACTIONS[0])}
    assert {
        "api operations.create",
        "api operation_queue.send",
        "api audit_log.add_note",
        "operations operations.load",
        "operations operations.items",
        "operations operations.load_request",
        "operations operations.swap",
        "operations job_states.load",
        "operations job_states.swap",
    } <= calls


class RandomPlan(Plan):
    """Fails some calls, and lets others act in between: a person, and other handlers."""

    def __init__(self, chance: random.Random, disturb: Callable[[], object]) -> None:
        super().__init__()
        self._chance = chance
        self._disturb = disturb
        self._is_disturbing = False
        self.faults_left = 6

    def run(self, call: Call, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self._maybe_disturb()
        kinds = [kind for kind in fault_kinds(call) if kind[0] is not FaultKind.REFUSED]
        if self.faults_left and self._chance.random() < 0.06:
            self.faults_left -= 1
            kind, crash = self._chance.choice(kinds)
            return self._break(Fault(0, kind, crash), call, real, args)
        answer = real(*args)
        self._maybe_disturb()
        return answer

    def _maybe_disturb(self) -> None:
        if self._is_disturbing or self._chance.random() > 0.08:
            return
        self._is_disturbing = True
        try:
            self._disturb()
        finally:
            self._is_disturbing = False


def disturbances(
    world: OperationsWorld, person: Person, chance: random.Random
) -> Callable[[], None]:
    """Return what else happens during a call: another handler works, or a person acts."""

    def disturb() -> None:
        if chance.random() < 0.5:
            person.change_back()
            return
        for key in world.ports.operations.running(1):
            stored = world.ports.operations.load(key)
            if stored is not None:
                world.invoke_another(stored)

    return disturb


def play(seed: int, adapter: str = "memory", cancels: bool = False) -> None:
    chance = random.Random(seed)
    action = chance.choice(ACTIONS)
    with a_world(adapter) as world:
        person = Person(world, action)
        world.items_per_second = chance.choice((1, 2, 4, 100))
        plan = RandomPlan(chance, disturbances(world, person, chance))
        world.person = person.change_back
        operation = person.begin(plan)
        if cancels:
            world.run_some(plan, chance.randint(0, 3))
            cancel(world, operation, plan)
        world.run(plan)
        ended = world.load(operation)
        acts = person.counted_acts()
        assert set(acts.values()) <= {0, 1}, acts
        if cancels:
            assert ended.status in (OperationStatus.CANCELLED, OperationStatus.DONE)
            assert ended.done <= sum(acts.values())
        else:
            check_done(world, person, operation)


def cancel(world: OperationsWorld, operation: Operation, plan: Plan) -> None:
    for attempt_plan in (plan, None):
        try:
            world.cancel(operation, attempt_plan)
        except (Crash, Unavailable):
            continue
        return


@pytest.mark.parametrize("cancels", [False, True])
def test_random_faults_and_twins_change_each_job_once(cancels: bool) -> None:
    for seed in seeds(60, 60, DAY):
        try:
            play(seed, cancels=cancels)
        except (AssertionError, PunctualError) as error:
            error.add_note(f"seed {seed}; {replay_hint(DAY)}")
            raise


@pytest.mark.parametrize("seed", seeds(3, 3, DAY))
def test_random_faults_on_dynamodb_change_each_job_once(seed: int) -> None:
    play(seed, "aws", cancels=seed % 3 == 0)
