"""Whatever is queued and due is taken in the end, however little of it is kept in memory."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from punctual.domain.job_state import Lane, Priority
from punctual.domain.tenants.limits import Limits
from punctual.engine.ports.run_queue import Message
from punctual.node.clock import ManualClock
from punctual.node.limits import Admission
from punctual.node.run_queue import refill
from punctual.node.run_queue.queue import RunQueue
from punctual.node.run_queue.slots import INLINE, INLINE_TYPES, KINDS, kind_of
from tests.unit.queued_jobs import QueuedJobs

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
TENANTS = ("free", "other", "small", "greedy", "slow", "half")
SOME = {
    "small": Limits(runs_per_minute=40),
    "greedy": Limits(runs_per_minute=90, concurrent_runs=9),
    "slow": Limits(concurrent_runs=1),
    "half": Limits(lane_percent=50),
}
SLOTS: dict[str, int] = {Lane.QUICK: 6, Lane.LONG: 2}
FIELDS = (("script", Lane.QUICK), ("script", Lane.LONG), ("event", Lane.QUICK))


class Forgets:
    def add(self, *_: object) -> None:
        """Not kept."""

    def since(self, *_: object) -> Sequence[datetime]:
        return ()


class Walk:
    """Steps in any order against a model that is nothing but the runs that stand queued."""

    def __init__(self, seed: int, kept: int) -> None:
        self.random = random.Random(seed)
        self.clock = ManualClock(NOON)
        self.limits = dict(SOME)
        self.admission = Admission(
            lambda tenant: self.limits.get(tenant, Limits()), self.clock, Forgets(), SLOTS
        )
        self.jobs = QueuedJobs()
        self.ready = RunQueue(self.jobs, INLINE_TYPES, self.admission, kept=kept)
        self.made = 0
        self.held: dict[str, Message] = {}
        self.running: list[tuple[str, str]] = []

    def a_message(self, tenant: str, job_id: str) -> Message:
        self.made += 1
        task_type, lane = self.random.choice(FIELDS)
        due_at = self.clock() + timedelta(seconds=self.random.choice((-9, -1, 0, 0, 0.5, 2)))
        priority = self.random.choice(list(Priority))
        return Message(
            tenant, job_id, f"run{self.made:06}", due_at, priority, lane, self.made, task_type
        )

    def fire(self) -> None:
        """Of jobs that have none queued, or some already, of one rank or of several."""
        tenant, made = self.random.choice(TENANTS), []
        for _ in range(self.random.choice((1, 5, 30))):
            job_id = f"job{self.random.randrange(60):02}"
            if self.random.random() < 0.7:
                job_id = f"job-{self.made:06}"
            made.append(self.a_message(tenant, job_id))
        self.jobs.put(made)
        self.ready.send(made)

    def hold(self) -> None:
        made = [
            self.a_message(self.random.choice(TENANTS), f"held-{self.made:06}") for _ in range(5)
        ]
        for message, ours in zip(made, self.ready.hold(made), strict=True):
            if ours:
                self.held[message.run_id] = message
            else:
                self.jobs.put([message])
                self.ready.send([message])

    def take(self, kind: str | None = None) -> None:
        kind = kind or self.random.choice(KINDS)
        now, most = self.clock(), self.random.choice((1, 4, 20))
        taken = self.ready.take(kind, now, most)
        assert len(taken) <= most
        for message in taken:
            assert message.due_at <= now
            assert kind_of(message.task_type, message.lane) == kind
            if self.held.pop(message.run_id, None) is not None:
                continue
            if not self.jobs.is_queued(message.run_id):
                continue
            if self.random.random() < 0.1:
                self.ready.again(message, now + timedelta(seconds=1))
                continue
            self.jobs.take([message.run_id])
            self.begin(message, kind)
        self.admission.begin((), "quick")

    def begin(self, message: Message, kind: str) -> None:
        tenant = message.tenant
        if self.admission.holds(tenant):
            self.admission._starts.add(tenant, self.clock(), 1)
            if kind != INLINE:
                self.admission._running.setdefault(tenant, {})[message.run_id] = kind
                self.running.append((tenant, message.run_id))

    def end(self) -> None:
        if self.running:
            at = self.random.randrange(len(self.running))
            self.admission.end(*self.running.pop(at))

    def cancel(self) -> None:
        """A run is queued no more, and nobody says so here."""
        queued = self.jobs.queued()
        if queued:
            self.jobs.take([self.random.choice(queued).run_id])

    def announce_again(self) -> None:
        queued = self.jobs.queued()
        if queued:
            self.made += 1
            self.ready.send([self.random.choice(queued)._replace(version=self.made)])

    def change_limits(self) -> None:
        tenant = self.random.choice(TENANTS)
        if self.limits.pop(tenant, None) is None:
            self.limits[tenant] = SOME.get(tenant, SOME["small"])

    def start_over(self) -> None:
        """A write failed: what was held is looked at again, which the node sees to."""
        self.ready.start_over()
        again = list(self.held.values())
        self.held.clear()
        self.jobs.put(again)
        self.ready.send(again)

    def pass_time(self) -> None:
        self.clock.advance(timedelta(seconds=self.random.choice((0.1, 1, 7))))

    def step(self) -> None:
        often = [self.fire, self.take, self.pass_time, self.end, self.cancel]
        seldom = [self.hold, self.announce_again, self.change_limits]
        chance = self.random.random()
        if chance < 0.004:
            self.start_over()
        elif chance < 0.1:
            self.random.choice(seldom)()
        else:
            self.random.choice(often)()

    def drain(self) -> None:
        """As the node goes on: a step where one is asked for at once, else at the next moment."""
        for _ in range(60_000):
            for kind in KINDS:
                self.take(kind)
            while self.running:
                self.end()
            if any(self.ready.waiting(kind, self.clock()) for kind in KINDS):
                continue
            at = self.ready.next_at()
            if at is None:
                return
            self.clock.set(max(at, self.clock.now))
        raise AssertionError("it has no end")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kept", [3, 40, 400])
def test_nothing_that_is_queued_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, seed: int, kept: int
) -> None:
    monkeypatch.setattr(refill, "LISTED", 7)
    monkeypatch.setattr(refill, "LOADED", 3)
    walk = Walk(seed, kept)
    for _ in range(600):
        walk.step()
    walk.drain()
    assert walk.jobs.queued() == []
    assert walk.held == {}


def a_run(job: int, number: int, seconds: int) -> Message:
    due_at = NOON - timedelta(seconds=seconds)
    lane, priority = Lane.QUICK, Priority.NORMAL
    return Message("free", f"job{job}", f"{job}-{number}", due_at, priority, lane, 1, "script")


def taken_to_the_end(jobs: QueuedJobs, ready: RunQueue) -> None:
    while ready.waiting(Lane.QUICK, NOON):
        jobs.take(one.run_id for one in ready.take(Lane.QUICK, NOON, 1))


def test_what_is_put_out_for_an_earlier_run_while_the_heads_are_read_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refill, "LISTED", 3)
    jobs = QueuedJobs()
    ready = RunQueue(jobs, INLINE_TYPES, kept=9)  # three of a part
    jobs.put(a_run(job, 1, 50 - job) for job in range(3))
    assert ready.take(Lane.QUICK, NOON, 0) == []  # all three are read; whether they are all, is not
    earlier = a_run(3, 1, 99)
    jobs.put([earlier])
    ready.send([earlier])
    taken_to_the_end(jobs, ready)
    assert jobs.queued() == []


def test_a_head_whose_place_moves_back_while_the_heads_are_read_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An earlier run of a job is queued, and stands where the walk has been."""
    monkeypatch.setattr(refill, "LISTED", 4)
    monkeypatch.setattr(refill, "LOADED", 2)
    jobs = QueuedJobs()
    ready = RunQueue(jobs, INLINE_TYPES, kept=300)

    jobs.put(a_run(job, 1, 50 - job) for job in range(9))
    taken = ready.take(Lane.QUICK, NOON, 9)
    assert [one.job_id for one in taken] == ["job0", "job1"]
    jobs.take(one.run_id for one in taken)
    earlier = a_run(8, 2, 99)
    jobs.put([earlier])
    ready.send([earlier])
    for _ in range(20):  # to the walk's end, while no slot is free
        assert ready.take(Lane.QUICK, NOON, 0) == []
    taken_to_the_end(jobs, ready)
    assert jobs.queued() == []
