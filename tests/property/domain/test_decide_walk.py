"""Walk every order of events over two occurrences and two holders, to a limited depth."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from punctual.domain.decide import Decision
from punctual.domain.events import (
    Backfill,
    Cancel,
    CancelRun,
    Claim,
    DeadLetter,
    Event,
    Finish,
    Pause,
    Resume,
    ReturnClaim,
    Started,
    StartRun,
)
from punctual.domain.job_state import JobState, MisfirePolicy, OverlapPolicy
from punctual.domain.run import RunStatus
from tests.support.builders_jobs import NOON, a_job, after, an_update, every
from tests.support.decide.decide_ledger import World
from tests.support.decide.decide_rules import JOB_TRANSITIONS, RUN_TRANSITIONS, transitions_of
from tests.support.examples import examples

NODES = examples(900)  # job states evaluated in each case


def beat_all(world: World) -> None:
    for run in world.held:
        world.renew_lease(run)


class Case(NamedTuple):
    job: JobState
    missed: MisfirePolicy | None = None
    begin: Callable[[World], object] = lambda world: world  # the start of the walk
    pauses: tuple[Event, ...] = (Pause(),)
    is_resumed_by_clients: bool = True


def begin_with_one_held_run(world: World) -> None:
    world.evaluate_at(10).claim()


END = after(25)  # occurrences at 10 and 20
CASES = {
    "queue": Case(a_job(every(10, end_at=END), max_concurrency=2, max_retries=1)),
    "queue of one": Case(a_job(every(10, end_at=END), max_retries=0)),
    "skip": Case(a_job(every(10, end_at=END), overlap=OverlapPolicy.SKIP, max_retries=0)),
    "replace": Case(a_job(every(10, end_at=END), overlap=OverlapPolicy.REPLACE, max_retries=1)),
    "short grace": Case(
        a_job(every(10, end_at=END), misfire_grace_seconds=0, misfire=MisfirePolicy.SKIP),
        MisfirePolicy.SKIP,
    ),
    "once at most": Case(
        a_job(every(10, end_at=END), at_most_once=True, max_retries=0, max_runs=1)
    ),
    "deadline": Case(
        a_job(every(10, end_at=END), max_retries=0, deadline_seconds=8),
        begin=begin_with_one_held_run,
    ),
    "two held": Case(
        a_job(every(10, end_at=END), max_concurrency=2, overlap=OverlapPolicy.REPLACE),
        begin=lambda world: world.evaluate_at(10, 20) and (world.claim(), world.claim()),
    ),
    "pause until a time": Case(
        a_job(every(10, end_at=after(15)), max_retries=0, misfire=MisfirePolicy.SKIP),
        pauses=(Pause(after(15)), Pause(after(20), "later")),
        is_resumed_by_clients=False,
    ),
}


def events_of(state: JobState, case: Case) -> Iterator[Event]:
    """Yield each event that can reach this state, also from late messages and old tokens."""
    yield from case.pauses
    if case.is_resumed_by_clients:
        yield Resume(case.missed)
    yield Cancel()
    if state.edition < 4:
        other_limit = 1 if state.limits.max_concurrency == 2 else 2
        yield an_update(state, max_concurrency=other_limit)
        yield an_update(state, every(10, end_at=after(45), anchor_at=after(5)))
    for run in state.runs:
        if run.status is RunStatus.QUEUED:
            yield Claim(run.run_id, "e", "n")
            yield Claim(run.run_id, "e", "n", starts_later=True)
            yield DeadLetter(run.run_id)
        if run.token:
            for status in (
                RunStatus.SUCCESS,
                RunStatus.FAILED,
                RunStatus.TIMED_OUT,
                RunStatus.CANCELLED,
            ):
                yield Finish(run.run_id, run.token, status)
            yield ReturnClaim(run.run_id, run.token)
            yield ReturnClaim(run.run_id, run.token, work_begun=False)
            yield ReturnClaim(run.run_id, run.token, never_started=True, at_once=True)
            yield Started(run.run_id, run.token)
        yield CancelRun(run.run_id)
    for waiting in state.wait_queue:
        yield CancelRun(waiting.run_id)


def moves(world: World, case: Case) -> Iterator[Callable[[World], object]]:
    # A run that moved to the history is not requested again, because callers look there first.
    orders: list[Event] = [] if "mine" in world.ledger else [StartRun("mine")]
    orders += [] if "b" in world.ledger else [Backfill((("b", after(-10)),))]
    for event in (*events_of(world.state, case), *orders):
        yield lambda target, event=event: target.do(event)  # type: ignore[misc]
    yield lambda target: target.evaluate()
    yield lambda target: target.evaluate(horizon=12)
    if world.now < after(60):
        yield lambda target: target.wait(5 if target.now.second % 10 else 10)
        yield lambda target: (target.wait(10), target.evaluate())
    if world.held:
        yield beat_all


def fork(world: World) -> World:
    copy = World.__new__(World)
    copy.__dict__.update(world.__dict__)
    for name in ("timers", "ledger", "leases", "sent", "killed", "attempts", "periods"):
        setattr(copy, name, world.__dict__[name].copy())
    return copy


def key_of(world: World) -> bytes:
    """Return a key of the state without versions and values that follow from them."""
    state = world.state
    runs = tuple(
        replace(run, token=bool(run.token), send_count=0, sent_at=None, changed_at=NOON)
        for run in state.runs
    )
    comparable = replace(
        state,
        version=0,
        write_ids=(),
        runs=runs,
        unrecorded=(),
        rules={},
        updated_at=NOON,
        ended_at=None,
    )
    leases = [lease.until for lease in world.leases.values()]
    outcomes = [(run.run_id, run.status, run.reason) for run in world.ledger.values()]
    return msgspec.json.encode((comparable, world.now, leases, sorted(outcomes)))


class Walk:
    """A breadth-first walk from one job. It visits each state once."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.run_steps: set[tuple[str, str]] = set()
        self.job_steps: set[tuple[str, str]] = set()

    def run(self, nodes: int) -> int:
        start = World(self.case.job, NOON)
        start.silent = True
        self.case.begin(start)
        seen_keys = {key_of(start)}
        queue = deque([start])
        visited = 0
        while queue and visited < nodes:
            world = queue.popleft()
            visited += 1
            for move in moves(world, self.case):
                next_world = fork(world)
                try:
                    move(next_world)
                    self._note(world, next_world)
                    next_world.check_ledger()
                except AssertionError as error:
                    for at, event in next_world.trail:
                        error.add_note(f"{at:%H:%M:%S} {event}")
                    raise
                key = key_of(next_world)
                if key not in seen_keys:
                    seen_keys.add(key)
                    queue.append(next_world)
        return visited

    def _note(self, old: World, new: World) -> None:
        recorded = tuple(run for key, run in new.ledger.items() if old.ledger.get(key) != run)
        self.run_steps |= set(
            transitions_of(old.state, Decision(new.state, True, runs_to_record=recorded))
        )
        if old.state.status != new.state.status:
            self.job_steps.add((old.state.status.value, new.state.status.value))


@pytest.fixture(scope="module")
def walks() -> dict[str, Walk]:
    walks = {name: Walk(case) for name, case in CASES.items()}
    for walk in walks.values():
        assert walk.run(NODES) > 100
    return walks


def test_walk_meets_exactly_the_documented_steps_of_a_run(
    walks: dict[str, Walk],
) -> None:
    assert set().union(*(walk.run_steps for walk in walks.values())) == RUN_TRANSITIONS


def test_walk_meets_exactly_the_documented_steps_of_a_job(
    walks: dict[str, Walk],
) -> None:
    assert set().union(*(walk.job_steps for walk in walks.values())) == JOB_TRANSITIONS


def test_job_that_is_paused_until_a_time_resumes_without_a_client(walks: dict[str, Walk]) -> None:
    steps = walks["pause until a time"].job_steps
    assert {("SCHEDULED", "PAUSED"), ("PAUSED", "SCHEDULED"), ("PAUSED", "COMPLETED")} <= steps
