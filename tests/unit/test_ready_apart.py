"""What many runs of a tenant at its limit leave of the node's memory: room for all others."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from punctual.domain.job_state import Lane, Priority
from punctual.domain.tenants.limits import Limits
from punctual.engine.ports.run_queue import Message
from punctual.node.clock import ManualClock
from punctual.node.limits import Admission, Windows
from punctual.node.run_queue.queue import RunQueue
from punctual.node.run_queue.refill import LOADED
from punctual.node.sqlite.recent_starts import START
from tests.unit.queued_jobs import QueuedJobs

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
KEPT = 2_000
FIVE = Limits(runs_per_minute=5)
MANY = Limits(runs_per_minute=1_000_000)


class Forgets:
    def add(self, *_: object) -> None:
        """Not kept."""

    def since(self, *_: object) -> Sequence[datetime]:
        return ()


class Scene:
    def __init__(self, *limited: str, limits: Limits = FIVE) -> None:
        self.heads, self.clock = QueuedJobs(), ManualClock(NOON)
        admission = Admission(
            lambda tenant: limits if tenant in limited else Limits(),
            self.clock,
            Forgets(),
        )
        self.admission = admission
        self.ready = RunQueue(self.heads, frozenset(), admission, kept=KEPT)

    def queue(
        self,
        tenant: str,
        count: int,
        send: bool = True,
        priority: Priority = Priority.NORMAL,
        lane: Lane = Lane.QUICK,
    ) -> None:
        made = [a_message(tenant, number, priority, lane) for number in range(count)]
        self.heads.put(made)
        if send:
            self.ready.send(made)

    def start(self, most: int = 1_000) -> list[str]:
        """Whose runs begin now, in as many steps as it takes."""
        return [one.tenant for one in self.all_begin(most)]

    def all_begin(self, most: int) -> list[Message]:
        begun: list[Message] = []
        steps = 0
        while steps == 0 or self.ready.waiting(Lane.QUICK, self.clock()):
            before = self.heads.read
            begun += self.begin(most)
            assert self.heads.read - before <= len(Priority) * LOADED
            steps += 1
            assert steps < 1_000
        return begun

    def begin(self, most: int) -> list[Message]:
        taken = self.ready.take(Lane.QUICK, self.clock(), most)
        gone = [one.run_id for one in taken]
        self.heads.take(gone)
        now = self.clock()
        for one in taken:
            if self.admission.holds(one.tenant):
                self.admission._starts.add(one.tenant, now, 1)
        self.admission.begin([], "quick")
        return taken


def a_message(
    tenant: str, number: int, priority: Priority = Priority.NORMAL, lane: Lane = Lane.QUICK
) -> Message:
    run_id = f"{tenant}-{lane}-{priority}-{number:06d}"
    return Message(tenant, run_id, run_id, NOON, priority, lane, 1, "script")


def test_others_start_at_once_behind_any_number_that_wait() -> None:
    scene = Scene("greedy")
    scene.queue("greedy", 10 * KEPT)
    scene.queue("other", 30)
    assert len(scene.ready) < KEPT // 10 + 30
    begun = scene.start()
    assert (begun.count("greedy"), begun.count("other")) == (5, 30)


def test_after_a_start_others_are_found_behind_those_that_wait() -> None:
    scene = Scene("greedy", "second")
    scene.queue("greedy", 10 * KEPT, send=False)
    scene.queue("second", 5 * KEPT, send=False)
    scene.queue("other", 30, send=False)
    begun = scene.start()
    assert (begun.count("greedy"), begun.count("second"), begun.count("other")) == (5, 5, 30)


def test_all_that_wait_start_in_their_minutes_and_the_heads_are_seldom_asked() -> None:
    scene = Scene("greedy")
    scene.queue("greedy", 200)
    for _ in range(40):
        assert scene.start() == ["greedy"] * 5
        scene.clock.advance(timedelta(minutes=1))
    assert len(scene.heads) == 0
    assert scene.heads.asked <= 60


def test_an_urgent_run_of_who_has_too_many_goes_first() -> None:
    scene = Scene("greedy")
    scene.queue("greedy", KEPT)
    scene.ready.send([a_message("greedy", 1, Priority.HIGH)])
    first, *_ = scene.ready.take(Lane.QUICK, NOON, 5)
    assert first.priority is Priority.HIGH


def test_many_tenants_at_their_limits_leave_room_for_each_other_and_for_who_has_none() -> None:
    greedy = [f"greedy{number}" for number in range(60)]
    scene = Scene(*greedy, "late")
    for tenant in greedy:
        scene.queue(tenant, KEPT)
    scene.queue("late", 1)
    scene.queue("other", KEPT // 2)
    begun = scene.start(2 * KEPT)
    assert begun.count("late") == 1
    assert begun.count("other") == KEPT // 2
    assert set(begun) == {*greedy, "late", "other"}


def test_who_has_no_limit_still_overflows_and_comes_from_the_heads() -> None:
    scene = Scene("greedy")
    scene.queue("greedy", KEPT)
    scene.queue("other", 2 * KEPT)
    found = [tenant for _ in range(12) for tenant in scene.start(KEPT)]
    assert found.count("other") == 2 * KEPT


@pytest.mark.parametrize("limited", ["greedy", "acme"])
def test_what_is_not_due_yet_and_found_no_room_is_taken_at_its_time(limited: str) -> None:
    """Whoever is limited: `acme`, or another."""
    scene = Scene(limited, limits=MANY)
    scene.start()
    soon = [
        a_message("acme", number)._replace(due_at=NOON + timedelta(seconds=number % 3))
        for number in range(3 * KEPT)
    ]
    scene.heads.put(soon)
    scene.ready.send(soon)
    assert len(scene.start()) == KEPT
    scene.clock.advance(timedelta(seconds=2))
    assert len(scene.start()) == 2 * KEPT


def test_an_urgent_run_goes_first_also_where_more_of_the_others_are_queued_than_are_kept() -> None:
    scene = Scene()
    scene.start()
    scene.queue("acme", KEPT, priority=Priority.LOW)
    scene.queue("acme", 1, priority=Priority.HIGH)
    (first,) = scene.begin(1)
    assert first.priority is Priority.HIGH


def test_who_is_left_out_of_memory_starts_before_whoever_comes_later() -> None:
    """As many come as start: there would never be room for those that wait in the heads."""
    scene = Scene("acme")
    scene.queue("acme", 100)
    begun: list[Message] = []
    for minute in range(25):
        begun += scene.all_begin(100)
        later = [
            a_message("acme", 1_000 + 5 * minute + number)._replace(due_at=scene.clock())
            for number in range(5)
        ]
        scene.heads.put(later)
        scene.ready.send(later)
        scene.clock.advance(timedelta(minutes=1))
    assert [one.due_at for one in begun] == sorted(one.due_at for one in begun)
    assert len(begun) == 125


def all_quick(scene: Scene, most: int = 20) -> list[Message]:
    """What starts while every slot for long work is taken."""
    return scene.all_begin(most)


@pytest.mark.parametrize("send", [True, False], ids=["sent", "after a start"])
def test_long_runs_that_wait_for_a_slot_hold_up_no_quick_one(send: bool) -> None:
    """At a limit that is far: the slots for long work are taken for hours."""
    scene = Scene("acme", limits=MANY)
    scene.queue("acme", KEPT, send, lane=Lane.LONG)
    scene.queue("acme", 500, send)
    assert len(all_quick(scene)) == 500
    assert len(scene.ready) < KEPT // 10
    assert scene.heads.read <= 3 * KEPT


@pytest.mark.parametrize("send", [True, False], ids=["sent", "after a start"])
def test_nor_do_more_long_runs_than_are_kept_where_nothing_is_limited(send: bool) -> None:
    scene = Scene()
    scene.queue("acme", 3 * KEPT, send, lane=Lane.LONG)
    scene.queue("acme", 500, send)
    scene.queue("acme", 2 * KEPT, send, priority=Priority.LOW)
    assert len(all_quick(scene, 100)) == 500 + 2 * KEPT
    assert len(scene.ready) <= KEPT


@pytest.mark.parametrize("send", [True, False], ids=["sent", "after a start"])
def test_urgent_runs_beyond_those_kept_go_before_what_is_kept_of_others(send: bool) -> None:
    scene = Scene("acme", limits=MANY)
    scene.queue("acme", 300, send)
    scene.queue("acme", 300, send, priority=Priority.HIGH)
    scene.queue("acme", 300, send, priority=Priority.LOW)
    begun = [one.priority for one in all_quick(scene, 5)]
    assert begun == sorted(begun)
    assert len(begun) == 900
    assert scene.heads.read <= 20 * 900


def test_a_tenant_whose_limits_are_lifted_goes_on_with_all_that_waited() -> None:
    limited = {"acme"}
    scene = Scene("acme")
    scene.admission._limits_of = lambda tenant: FIVE if tenant in limited else Limits()
    scene.queue("acme", 2 * KEPT)
    assert len(scene.begin(1_000)) == 5
    limited.clear()
    assert len(all_quick(scene, 1_000)) == 2 * KEPT - 5
    assert scene.heads.asked <= 20


def test_where_very_many_have_more_than_is_kept_a_step_reads_a_few_lines_and_another_goes_on() -> (
    None
):
    tenants = [f"tenant{number:03}" for number in range(100)]
    scene = Scene(*tenants)
    for tenant in tenants:
        scene.queue(tenant, 30, send=False)
    started: Counter[str] = Counter()
    steps = 0
    while steps == 0 or scene.ready.waiting(Lane.QUICK, NOON):
        asked, steps = scene.heads.asked, steps + 1
        started.update(scene.start(KEPT))
        assert scene.heads.asked - asked <= 30
    assert started == dict.fromkeys(tenants, 5)
    assert steps <= 30


def test_who_is_given_a_limit_while_many_wait_is_read_no_more_often_than_they_start() -> None:
    limited = set[str]()
    scene = Scene("acme")
    scene.admission._limits_of = lambda tenant: FIVE if tenant in limited else Limits()
    scene.queue("acme", 100)
    limited.add("acme")
    scene.queue("acme", 40, priority=Priority.HIGH)
    begun: list[Message] = []
    for _ in range(28):
        for _ in range(5):
            begun += scene.begin(20)
        assert not scene.ready.waiting(Lane.QUICK, scene.clock())
        scene.clock.advance(timedelta(minutes=1))
    assert [one.priority for one in begun] == [Priority.HIGH] * 40 + [Priority.NORMAL] * 100
    assert scene.heads.asked <= 60


def test_starts_are_remembered_for_a_minute_also_where_places_alone_are_limited() -> None:
    clock = ManualClock(NOON)
    starts = Windows(START, Forgets())
    for _ in range(200):
        starts.add("acme", clock(), 1)
        clock.advance(timedelta(seconds=1))
    assert len(starts.of("acme", clock())) == 60
