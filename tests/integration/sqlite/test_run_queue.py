"""The node's run queue on its real store: order, times, limits, and the cost of a read."""

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
from punctual.node.limits import Admission
from punctual.node.run_queue import QUEUE_PAGE_SIZE, RunQueue
from punctual.node.script_memory import ScriptMemory
from punctual.node.sqlite.state_rows import INLINE_SLOT, SLOT_NUMBERS
from punctual.node.sqlite.store import Store
from tests.support.builders import NOON, RUN, ManualClock, a_job_state, a_run, after, an_id

FIVE = TenantLimits(runs_per_minute=5)
QUICK = Lane.QUICK


class Scene:
    """A store and its queue. A test may change `limits` at any time."""

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
        self.memory = ScriptMemory(2_048)
        self.queue = RunQueue(
            self.store.transaction(), self.store.job_states, self.admission, self.memory
        )
        self.states: dict[tuple[str, str], JobState] = {}
        self.write_count = 0

    def put(self, *states: JobState) -> None:
        """Store these job states over the present ones."""
        swaps = []
        for state in states:
            old_state = self.states.get((state.tenant, state.job_id))
            version = 0 if old_state is None else old_state.version
            new_state = replace(state, version=version + 1, write_ids=(f"w{self.write_count}",))
            self.write_count += 1
            self.states[state.tenant, state.job_id] = new_state
            swaps.append(Swap(new_state, version))
        assert all(self.store.job_states.swap(swaps))

    def queue_runs(self, count: int, tenant: str = "acme", **fields: Any) -> None:
        self.put(*(a_job(tenant, self.write_count + number, **fields) for number in range(count)))

    def take(self, limit: int = 1_000, slot: str = QUICK) -> list[Message]:
        return self.queue.find_due(slot, self.clock(), limit)

    def start(self, limit: int = 1_000, slot: str = QUICK) -> list[Message]:
        """Take and claim, as the node does."""
        taken_runs = self.take(limit, slot)
        for run in taken_runs:
            state = self.states[run.tenant, run.job_id]
            fields = {"status": RunStatus.RUNNING, "attempt_at": self.clock(), "token": 1}
            runs = [
                replace(other, **fields) if other.run_id == run.run_id else other
                for other in state.runs
            ]
            self.put(replace(state, runs=tuple(runs)))
            begun = next(other for other in runs if other.run_id == run.run_id)
            self.admission.add_started([(run.tenant, begun)], slot)
        return taken_runs

    def instruction_count(self) -> int:
        """Return how many instructions of SQLite one `find_due` takes."""
        count = 0

        def step() -> int:
            nonlocal count
            count += 1
            return 0

        self.take(0)  # writes what is pending
        self.store._db.set_progress_handler(step, 1)
        self.take(8)
        self.store._db.set_progress_handler(None, 0)
        return count


def a_job(
    tenant: str,
    number: int,
    due_at: datetime = NOON,
    priority: Priority = Priority.NORMAL,
    lane: Lane = QUICK,
    task_type: str = "http",
) -> JobState:
    rules = Rules("1-body", NOON, task_type=task_type, lane=lane, priority=priority)
    run = a_run(an_id(10_000_000 + number), due_at=due_at)
    return a_job_state(an_id(number), tenant=tenant, rules={1: rules}, runs=(run,))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path / "data")
    yield scene
    scene.store.close()


def jobs(messages: Iterable[Message]) -> list[int]:
    numbers = {an_id(number): number for number in range(100)}
    return [numbers[run.job_id] for run in messages]


def test_due_runs_are_taken_by_priority_then_time_then_job(scene: Scene) -> None:
    scene.put(
        a_job("acme", 1, after(-9), Priority.LOW),
        a_job("acme", 2, after(-1)),
        a_job("acme", 3, after(-2)),
        a_job("acme", 5, after(0), Priority.HIGH),
        a_job("acme", 4, after(0), Priority.HIGH),
    )
    assert jobs(scene.take(1)) == [4]
    assert jobs(scene.take()) == [4, 5, 3, 2, 1]


def test_taken_run_stays_in_the_queue_until_it_is_claimed(scene: Scene) -> None:
    scene.queue_runs(2)
    assert scene.take() == scene.take()
    assert len(scene.start()) == 2
    assert scene.take() == []


def test_high_priority_run_is_not_taken_before_its_due_time(scene: Scene) -> None:
    scene.put(a_job("acme", 1, after(1), Priority.HIGH), a_job("acme", 2))
    assert jobs(scene.start()) == [2]
    scene.queue.update_next_at([QUICK], scene.clock())
    assert scene.queue.next_at() == after(1)
    scene.clock.advance(timedelta(seconds=1))
    assert jobs(scene.start()) == [1]


def test_later_high_priority_run_is_taken_first(scene: Scene) -> None:
    scene.queue_runs(2)
    assert len(scene.start(1)) == 1
    scene.put(a_job("acme", 50, priority=Priority.HIGH))
    assert jobs(scene.take())[0] == 50


def test_runs_of_one_slot_do_not_block_another_slot(scene: Scene) -> None:
    scene.queue_runs(300, lane=Lane.LONG, priority=Priority.HIGH)
    scene.queue_runs(3)
    scene.queue_runs(2, task_type="event", lane=Lane.LONG)
    assert len(scene.take(2)) == 2
    assert len(scene.take(slot=INLINE_SLOT)) == 2
    assert len(scene.take(slot=Lane.LONG)) == 300
    assert {run.lane for run in scene.take(slot=Lane.LONG)} == {Lane.LONG}


@pytest.mark.parametrize("other", [{"priority": Priority.HIGH}, {"lane": Lane.LONG}])
def test_runs_of_one_job_keep_their_own_lane_and_priority(
    scene: Scene, other: dict[str, Any]
) -> None:
    rules = {1: Rules("1", NOON, task_type="http"), 2: Rules("2", NOON, task_type="http", **other)}
    runs = (a_run("b", due_at=after(60), definition=2), a_run("a"))
    scene.put(a_job_state(rules=rules, runs=runs))
    assert [run.run_id for run in scene.take()] == ["a"]
    scene.clock.advance(timedelta(seconds=60))
    run_ids = [run.run_id for slot in SLOT_NUMBERS for run in scene.take(slot=slot)]
    assert sorted(run_ids) == ["a", "b"]


def test_queue_holds_only_queued_runs(scene: Scene) -> None:
    running = a_job_state(an_id(1), runs=(a_run(status=RunStatus.RUNNING),))
    waiting = a_job_state(an_id(2), wait_queue=(WaitingRun(RUN, 1, NOON, NOON, NOON),))
    both = a_job_state(an_id(3), runs=(a_run("a", RunStatus.RUNNING), a_run("b"), a_run("c")))
    scene.put(running, waiting, both, a_job_state(an_id(4)))
    assert [run.run_id for run in scene.take(slot=INLINE_SLOT)] == ["b", "c"]
    assert scene.store.count_queued("acme") == 2
    scene.put(replace(both, runs=both.runs[:1]))
    assert scene.take(slot=INLINE_SLOT) == []
    assert scene.store.count_queued("acme") == 0


def test_rolled_back_write_leaves_the_queue_unchanged(scene: Scene) -> None:
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


def test_queue_survives_a_restart(tmp_path: Path) -> None:
    first = Scene(tmp_path)
    first.queue_runs(3)
    before = first.take()
    first.store.close()
    second = Scene(tmp_path)
    assert second.take() == before
    second.store.close()


def test_postponed_run_blocks_no_other_run_of_its_slot(scene: Scene) -> None:
    scene.queue_runs(3)
    first, *others = scene.take()
    scene.queue.postpone(QUICK, [first], after(20))
    assert scene.take() == others
    scene.clock.advance(timedelta(seconds=20))
    assert scene.take() == [first, *others]


def test_clock_set_back_ends_postponements(scene: Scene) -> None:
    scene.queue_runs(1)
    scene.queue.postpone(QUICK, scene.take(), after(3_600))
    assert scene.take() == []
    scene.queue.on_clock_set()
    assert len(scene.take()) == 1


def test_tenant_at_its_limit_is_left_out(scene: Scene) -> None:
    scene.limits["greedy"] = FIVE
    scene.queue_runs(200, "greedy", due_at=after(-1))
    scene.queue_runs(30, "other")
    begun = [run.tenant for run in scene.start()]
    assert (begun.count("greedy"), begun.count("other")) == (5, 30)
    assert scene.take() == []


def test_many_runs_of_a_limited_tenant_cost_no_more_reads_than_few(scene: Scene) -> None:
    scene.limits["greedy"] = FIVE
    scene.queue_runs(10, "greedy")
    scene.queue_runs(20, "other")
    assert len(scene.start(25)) == 25
    baseline = scene.instruction_count()
    scene.queue_runs(3_000, "greedy", due_at=after(-1), priority=Priority.HIGH)
    assert scene.take() == []
    assert scene.instruction_count() <= baseline


def test_take_reads_little_of_a_long_queue(scene: Scene) -> None:
    scene.queue_runs(2 * QUEUE_PAGE_SIZE)
    baseline = scene.instruction_count()
    scene.queue_runs(3_000)
    assert scene.instruction_count() <= 1.2 * baseline
    assert len(scene.take(5_000)) == 3_000 + 2 * QUEUE_PAGE_SIZE


def test_each_tenant_has_its_own_limit(scene: Scene) -> None:
    tenants = [f"tenant{number:03}" for number in range(60)]
    scene.limits = dict.fromkeys(tenants, FIVE)
    for tenant in tenants:
        scene.queue_runs(7, tenant)
    begun = [run.tenant for run in scene.start()]
    assert {tenant: begun.count(tenant) for tenant in tenants} == dict.fromkeys(tenants, 5)


def test_limited_runs_start_five_a_minute(scene: Scene) -> None:
    scene.limits["greedy"] = FIVE
    scene.queue_runs(40, "greedy")
    for _ in range(8):
        assert len(scene.start()) == 5
        scene.queue.update_next_at([QUICK], scene.clock())
        assert scene.queue.next_at() in (None, scene.clock() + timedelta(minutes=1))
        scene.clock.advance(timedelta(minutes=1))
    assert scene.start() == []


def test_changed_tenant_limits_apply_at_once(scene: Scene) -> None:
    scene.queue_runs(20, "acme")
    scene.limits["acme"] = FIVE
    assert len(scene.start()) == 5
    scene.limits.clear()
    assert len(scene.start()) == 15


def test_slot_without_room_schedules_no_step(scene: Scene) -> None:
    scene.queue_runs(1, lane=Lane.LONG)
    scene.queue.update_next_at([INLINE_SLOT, Lane.QUICK], scene.clock())
    assert scene.queue.next_at() is None
    scene.queue.update_next_at(list(SLOT_NUMBERS), scene.clock())
    assert scene.queue.next_at() == NOON


@pytest.mark.parametrize("seed", range(4))
def test_queue_takes_the_same_runs_as_a_sorted_list(scene: Scene, seed: int) -> None:
    """Queue, claim and cancel jobs at random, and compare with a model that sorts all runs."""
    chance = random.Random(seed)
    scene.limits = {"b": TenantLimits(concurrent_runs=3), "c": TenantLimits(lane_percent=50)}
    for number in range(150):
        new_states: list[JobState] = []
        for _ in range(chance.choice((0, 1, 6))):
            lane, task_type = chance.choice(list(Lane)), chance.choice(("http", "event"))
            due_at = scene.clock() + timedelta(seconds=chance.choice((-2, 0, 0, 1, 3)))
            priority, tenant = chance.choice(list(Priority)), chance.choice("abc")
            number = 1_000 * seed + scene.write_count + len(new_states)
            new_states.append(a_job(tenant, number, due_at, priority, lane, task_type))
        scene.put(*new_states)
        queued = [state for state in scene.states.values() if state.runs]
        if queued and chance.random() < 0.3:
            scene.put(replace(chance.choice(queued), runs=()))
        slot, limit = chance.choice(list(SLOT_NUMBERS)), chance.choice((1, 3, 50))
        expected = expected_run_ids(scene, slot, limit)
        assert [run.run_id for run in scene.start(limit, slot)] == expected
        scene.clock.advance(timedelta(seconds=chance.choice((0, 0.5, 2))))


def expected_run_ids(scene: Scene, slot: str, limit: int) -> list[str]:
    now = scene.clock()
    rows = sorted(
        (state.current_rules.priority, run.due_at, state.job_id, run.run_id, state.tenant)
        for state in scene.states.values()
        for run in state.runs
        if run.status is RunStatus.QUEUED and run.due_at <= now
        if slot
        == (INLINE_SLOT if state.current_rules.task_type == "event" else state.current_rules.lane)
    )
    rooms = {tenant: scene.admission.room(tenant, now, limit, slot) for tenant in "abc"}
    taken_runs: list[str] = []
    for *_, run_id, tenant in rows:
        if rooms[tenant] and len(taken_runs) < limit:
            rooms[tenant] -= 1
            taken_runs.append(run_id)
    return taken_runs
