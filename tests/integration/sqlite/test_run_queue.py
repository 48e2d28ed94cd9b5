"""The node's run queue on its real store: order, times, limits, and how little is read."""

import random
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.domain.job_state import JobState, Lane, Priority, Rules
from punctual.domain.run import RunStatus, WaitingRun
from punctual.domain.tenants.limits import TenantLimits
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.run_queue import Message
from punctual.node.clock import ManualClock
from punctual.node.limits import Admission
from punctual.node.run_queue.queue import QUEUE_PAGE_SIZE, RunQueue
from punctual.node.run_queue.slots import INLINE_SLOT, SLOT_NUMBERS
from punctual.node.sqlite.store import Store
from tests.support.builders import NOON, RUN, a_head, a_run, after, an_id

FIVE = TenantLimits(runs_per_minute=5)
QUICK = Lane.QUICK


class Scene:
    """A store and its queue; `limits` may change at any time."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(NOON)
        self.store = Store.open(folder, self.clock)
        self.limits: dict[str, TenantLimits] = {}
        self.admission = Admission(
            lambda tenant: self.limits.get(tenant, TenantLimits()),
            self.clock,
            self.store.starts,
            {Lane.QUICK: 8, Lane.LONG: 4},
        )
        self.queue = RunQueue(self.store.transaction(), self.store.job_states, self.admission)
        self.heads: dict[tuple[str, str], JobState] = {}
        self.made = 0

    def put(self, *heads: JobState) -> None:
        """Swap these in, whatever stands there."""
        swaps = []
        for head in heads:
            old = self.heads.get((head.tenant, head.job_id))
            version = 0 if old is None else old.version
            new = replace(head, version=version + 1, write_ids=(f"w{self.made}",))
            self.made += 1
            self.heads[head.tenant, head.job_id] = new
            swaps.append(Swap(new, version))
        assert all(self.store.job_states.swap(swaps))

    def queue_runs(self, count: int, tenant: str = "acme", **fields: Any) -> None:
        self.put(*(a_job(tenant, self.made + number, **fields) for number in range(count)))

    def take(self, limit: int = 1_000, slot: str = QUICK) -> list[Message]:
        return self.queue.find_due(slot, self.clock(), limit)

    def start(self, limit: int = 1_000, slot: str = QUICK) -> list[Message]:
        """Take and claim, as the node does."""
        taken = self.take(limit, slot)
        for run in taken:
            head = self.heads[run.tenant, run.job_id]
            began = {"status": RunStatus.RUNNING, "attempt_at": self.clock(), "token": 1}
            runs = [replace(one, **began) if one.run_id == run.run_id else one for one in head.runs]
            self.put(replace(head, runs=tuple(runs)))
            begun = next(one for one in runs if one.run_id == run.run_id)
            self.admission.add_started([(run.tenant, begun)], slot)
        return taken

    def steps(self) -> int:
        """Return how many instructions one `find_due` costs the store's machine."""
        taken = 0

        def step() -> int:
            nonlocal taken
            taken += 1
            return 0

        self.take(0)  # what is pending is written
        self.store._db.set_progress_handler(step, 1)
        self.take(8)
        self.store._db.set_progress_handler(None, 0)
        return taken


def a_job(
    tenant: str,
    number: int,
    due_at: datetime = NOON,
    priority: Priority = Priority.NORMAL,
    lane: Lane = QUICK,
    task_type: str = "script",
) -> JobState:
    rules = Rules("1-body", NOON, task_type=task_type, lane=lane, priority=priority)
    run = a_run(an_id(10_000_000 + number), due_at=due_at)
    return a_head(an_id(number), tenant=tenant, rules={1: rules}, runs=(run,))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path / "data")
    yield scene
    scene.store.close()


def jobs(runs: Iterable[Message]) -> list[int]:
    numbers = {an_id(number): number for number in range(100)}
    return [numbers[run.job_id] for run in runs]


def test_due_runs_are_taken_by_priority_then_by_time_then_by_job(scene: Scene) -> None:
    scene.put(
        a_job("acme", 1, after(-9), Priority.LOW),
        a_job("acme", 2, after(-1)),
        a_job("acme", 3, after(-2)),
        a_job("acme", 5, after(0), Priority.HIGH),
        a_job("acme", 4, after(0), Priority.HIGH),
    )
    assert jobs(scene.take(1)) == [4]
    assert jobs(scene.take()) == [4, 5, 3, 2, 1]


def test_a_taken_run_stays_in_the_queue_until_it_is_claimed(scene: Scene) -> None:
    scene.queue_runs(2)
    assert scene.take() == scene.take()
    assert len(scene.start()) == 2
    assert scene.take() == []


def test_an_urgent_run_is_not_taken_before_its_time(scene: Scene) -> None:
    scene.put(a_job("acme", 1, after(1), Priority.HIGH), a_job("acme", 2))
    assert jobs(scene.start()) == [2]
    scene.queue.update_next_at([QUICK], scene.clock())
    assert scene.queue.next_at() == after(1)
    scene.clock.advance(timedelta(seconds=1))
    assert jobs(scene.start()) == [1]


def test_an_urgent_run_that_comes_later_goes_first(scene: Scene) -> None:
    scene.queue_runs(2)
    assert len(scene.start(1)) == 1
    scene.put(a_job("acme", 50, priority=Priority.HIGH))
    assert jobs(scene.take())[0] == 50


def test_runs_of_one_slot_hold_up_no_run_of_another(scene: Scene) -> None:
    scene.queue_runs(300, lane=Lane.LONG, priority=Priority.HIGH)
    scene.queue_runs(3)
    scene.queue_runs(2, task_type="event", lane=Lane.LONG)
    assert len(scene.take(2)) == 2
    assert len(scene.take(slot=INLINE_SLOT)) == 2
    assert len(scene.take(slot=Lane.LONG)) == 300
    assert {run.lane for run in scene.take(slot=Lane.LONG)} == {Lane.LONG}


@pytest.mark.parametrize("other", [{"priority": Priority.HIGH}, {"lane": Lane.LONG}])
def test_runs_of_one_job_are_each_in_their_own_place(scene: Scene, other: dict[str, Any]) -> None:
    rules = {1: Rules("1", NOON, task_type="http"), 2: Rules("2", NOON, task_type="http", **other)}
    runs = (a_run("b", due_at=after(60), definition=2), a_run("a"))
    scene.put(a_head(rules=rules, runs=runs))
    assert [run.run_id for run in scene.take()] == ["a"]
    scene.clock.advance(timedelta(seconds=60))
    found = [run.run_id for slot in SLOT_NUMBERS for run in scene.take(slot=slot)]
    assert sorted(found) == ["a", "b"]


def test_only_what_stands_queued_is_in_the_queue(scene: Scene) -> None:
    running = a_head(an_id(1), runs=(a_run(status=RunStatus.RUNNING),))
    waiting = a_head(an_id(2), wait_queue=(WaitingRun(RUN, 1, NOON, NOON, NOON),))
    both = a_head(an_id(3), runs=(a_run("a", RunStatus.RUNNING), a_run("b"), a_run("c")))
    scene.put(running, waiting, both, a_head(an_id(4)))
    assert [run.run_id for run in scene.take(slot=INLINE_SLOT)] == ["b", "c"]
    assert scene.store.count_queued("acme") == 2
    scene.put(replace(both, runs=both.runs[:1]))
    assert scene.take(slot=INLINE_SLOT) == []
    assert scene.store.count_queued("acme") == 0


def test_a_write_that_is_undone_leaves_the_queue_as_it_was(scene: Scene) -> None:
    scene.queue_runs(1)
    before = scene.take()

    def fail() -> None:
        with scene.store.transaction():
            scene.start()
            assert scene.take() == []
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert scene.take() == before


def test_the_queue_is_found_again_after_a_restart(tmp_path: Path) -> None:
    first = Scene(tmp_path)
    first.queue_runs(3)
    before = first.take()
    first.store.close()
    second = Scene(tmp_path)
    assert second.take() == before
    second.store.close()


def test_a_postponed_run_keeps_no_other_from_its_slot(scene: Scene) -> None:
    scene.queue_runs(3)
    first, *others = scene.take()
    scene.queue.postpone(QUICK, [first], after(20))
    assert scene.take() == others
    scene.clock.advance(timedelta(seconds=20))
    assert scene.take() == [first, *others]


def test_a_clock_that_is_set_back_ends_what_was_postponed(scene: Scene) -> None:
    scene.queue_runs(1)
    scene.queue.postpone(QUICK, scene.take(), after(3_600))
    assert scene.take() == []
    scene.queue.on_clock_set()
    assert len(scene.take()) == 1


def test_a_tenant_at_its_limit_is_left_out(scene: Scene) -> None:
    scene.limits["greedy"] = FIVE
    scene.queue_runs(200, "greedy", due_at=after(-1))
    scene.queue_runs(30, "other")
    begun = [run.tenant for run in scene.start()]
    assert (begun.count("greedy"), begun.count("other")) == (5, 30)
    assert scene.take() == []


def test_many_runs_at_their_limit_cost_no_more_reads_than_few(scene: Scene) -> None:
    scene.limits["greedy"] = FIVE
    scene.queue_runs(10, "greedy")
    scene.queue_runs(20, "other")
    assert len(scene.start(25)) == 25
    few = scene.steps()
    scene.queue_runs(3_000, "greedy", due_at=after(-1), priority=Priority.HIGH)
    assert scene.take() == []
    assert scene.steps() <= few


def test_a_take_reads_little_of_a_long_queue(scene: Scene) -> None:
    scene.queue_runs(2 * QUEUE_PAGE_SIZE)
    few = scene.steps()
    scene.queue_runs(3_000)
    assert scene.steps() <= 1.2 * few
    assert len(scene.take(5_000)) == 3_000 + 2 * QUEUE_PAGE_SIZE


def test_each_of_many_tenants_has_its_own_room(scene: Scene) -> None:
    tenants = [f"tenant{number:03}" for number in range(60)]
    scene.limits = dict.fromkeys(tenants, FIVE)
    for tenant in tenants:
        scene.queue_runs(7, tenant)
    begun = [run.tenant for run in scene.start()]
    assert {tenant: begun.count(tenant) for tenant in tenants} == dict.fromkeys(tenants, 5)


def test_all_that_wait_start_in_their_minutes(scene: Scene) -> None:
    scene.limits["greedy"] = FIVE
    scene.queue_runs(40, "greedy")
    for _ in range(8):
        assert len(scene.start()) == 5
        scene.queue.update_next_at([QUICK], scene.clock())
        assert scene.queue.next_at() in (None, scene.clock() + timedelta(minutes=1))
        scene.clock.advance(timedelta(minutes=1))
    assert scene.start() == []


def test_a_tenant_whose_limits_change_is_held_and_let_go_at_once(scene: Scene) -> None:
    scene.queue_runs(20, "acme")
    scene.limits["acme"] = FIVE
    assert len(scene.start()) == 5
    scene.limits.clear()
    assert len(scene.start()) == 15


def test_a_slot_without_room_asks_for_no_step(scene: Scene) -> None:
    scene.queue_runs(1, lane=Lane.LONG)
    scene.queue.update_next_at([INLINE_SLOT, Lane.QUICK], scene.clock())
    assert scene.queue.next_at() is None
    scene.queue.update_next_at(list(SLOT_NUMBERS), scene.clock())
    assert scene.queue.next_at() == NOON


@pytest.mark.parametrize("seed", range(4))
def test_each_take_is_what_a_list_of_all_runs_would_give(scene: Scene, seed: int) -> None:
    """Jobs are queued, claimed and cancelled at random, against a model that sorts them all."""
    chance = random.Random(seed)
    scene.limits = {"b": TenantLimits(concurrent_runs=3), "c": TenantLimits(lane_percent=50)}
    for number in range(150):
        made: list[JobState] = []
        for _ in range(chance.choice((0, 1, 6))):
            lane, task_type = chance.choice(list(Lane)), chance.choice(("script", "event"))
            due_at = scene.clock() + timedelta(seconds=chance.choice((-2, 0, 0, 1, 3)))
            priority, tenant = chance.choice(list(Priority)), chance.choice("abc")
            number = 1_000 * seed + scene.made + len(made)
            made.append(a_job(tenant, number, due_at, priority, lane, task_type))
        scene.put(*made)
        queued = [head for head in scene.heads.values() if head.runs]
        if queued and chance.random() < 0.3:
            scene.put(replace(chance.choice(queued), runs=()))
        slot, limit = chance.choice(list(SLOT_NUMBERS)), chance.choice((1, 3, 50))
        expected = by_sorting(scene, slot, limit)
        assert [run.run_id for run in scene.start(limit, slot)] == expected
        scene.clock.advance(timedelta(seconds=chance.choice((0, 0.5, 2))))


def by_sorting(scene: Scene, slot: str, limit: int) -> list[str]:
    now = scene.clock()
    rows = sorted(
        (head.current_rules.priority, run.due_at, head.job_id, run.run_id, head.tenant)
        for head in scene.heads.values()
        for run in head.runs
        if run.status is RunStatus.QUEUED and run.due_at <= now
        if slot
        == (INLINE_SLOT if head.current_rules.task_type == "event" else head.current_rules.lane)
    )
    rooms = {tenant: scene.admission.room(tenant, now, limit, slot) for tenant in "abc"}
    taken: list[str] = []
    for *_, run_id, tenant in rows:
        if rooms[tenant] and len(taken) < limit:
            rooms[tenant] -= 1
            taken.append(run_id)
    return taken
