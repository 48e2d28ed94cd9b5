"""No order of calls, and no crash, lets two recurring jobs of a tenant have one name."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from punctual.domain.errors import Conflict, NameTaken, PunctualError
from punctual.domain.job_state import JobState
from punctual.engine.commands.idempotency import Submission
from punctual.engine.commands.job_names import held_name
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.lists.job_names import NameKey
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.views import JobView
from tests.support.names.interleavings import (
    Choose,
    Client,
    Play,
    all_switches,
    switching_at,
)
from tests.support.simulation.port_faults import Crash, Fault, FaultKind

TENANT = "acme"
Call = Callable[[Client], Any]


class Scene:
    """A play in which each swap of a job state is checked for a second job of a name."""

    def __init__(self, choose: Choose | None = None) -> None:
        self.play = Play() if choose is None else Play(choose)
        self._states = self.play.memory.job_states
        self._swap = self._states._swap
        self._states._swap = self._checked_swap  # type: ignore[method-assign]

    def _checked_swap(self, swap: Swap) -> bool:
        has_won = self._swap(swap)
        holders = self.holders()
        for name, job_ids in holders.items():
            assert len(job_ids) == 1, f"{name} belongs to {job_ids}"
            row = self.play.memory.job_names.rows.get(NameKey(TENANT, name))
            assert row is not None, f"{name} has no row"
            assert [row.job_id] == job_ids, f"the row of {name} is {row}"
        return has_won

    def holders(self) -> dict[str, list[str]]:
        """Return the jobs that have each name, by the definitions in force."""
        holders: dict[str, list[str]] = {}
        for stored in self._states.rows.values():
            name = self._name(stored.state)
            if name is not None:
                holders.setdefault(name, []).append(stored.state.job_id)
        return holders

    def _name(self, state: JobState) -> str | None:
        if state.is_blank:
            return None
        ref = (JobKey(TENANT, state.job_id), state.current_rules.definition_ref)
        definition = self._states.load_definitions([ref])[ref]
        return held_name(state.kind, state.status, definition.name)

    def walk(self) -> None:
        """Run the whole walk of the reconciler."""

        def call(client: Client) -> None:
            cursor: str | None = None
            for _ in range(100):
                page = client.reconciler.step(cursor)
                assert not page.restored_names
                assert not page.shared_names
                cursor = page.cursor
                if cursor is None:
                    return
            raise AssertionError("the walk does not end")

        assert self.play.alone(call) is None

    def check_end(self) -> None:
        """Check that each free name can be taken, and that the walk leaves no row of another."""
        for name in ("a", "b", "n"):
            if name not in self.holders():
                created = self.play.alone(create(name))
                assert isinstance(created, JobView), created
                self.play.alone(cancel(created.state.job_id))
        self.walk()
        rows = {row.name: row.job_id for row in self.play.memory.job_names.rows.values()}
        assert {name: [job_id] for name, job_id in rows.items()} == self.holders()

    def job(self, name: str, kind: str = "CRON") -> str:
        created = self.play.alone(create(name, kind))
        assert isinstance(created, JobView), created
        return created.state.job_id


def document(name: str, kind: str = "CRON") -> dict[str, Any]:
    schedules: dict[str, dict[str, Any]] = {
        "CRON": {"cron_expression": "0 9 * * *"},
        "INTERVAL": {"interval_seconds": 60},
        "FUTURE": {"schedule_time": "2026-03-03T12:00:00Z"},
    }
    return {"name": name, "schedule_type": kind, "task": {"type": "event"}, **schedules[kind]}


def create(name: str, kind: str = "CRON", key: str | None = None) -> Call:
    def call(client: Client) -> JobView:
        submission = Submission(document(name, kind), key, name)
        (answer,) = client.jobs.submit(TENANT, "tests", [submission])
        if isinstance(answer, PunctualError):
            raise answer
        return answer

    return call


def change(job_id: str, name: str, kind: str = "CRON") -> Call:
    return lambda client: client.jobs.change(TENANT, job_id, lambda _: document(name, kind))


def cancel(job_id: str) -> Call:
    return lambda client: client.jobs.cancel(TENANT, job_id)


def walk_names(client: Client) -> None:
    """Walk as the reconciler does while others create, rename and cancel."""
    cursor: str | None = None
    for _ in range(100):
        cursor = client.reconciler.step(cursor).cursor
        if cursor is None:
            return


Story = Callable[[Scene], Sequence[Call]]


def two_creators(_: Scene) -> Sequence[Call]:
    return [create("n"), create("n")]


def creators_of_one_request(_: Scene) -> Sequence[Call]:
    return [create("n", key="k"), create("n", key="k"), create("n")]


def creator_and_rename(scene: Scene) -> Sequence[Call]:
    return [create("n"), change(scene.job("a"), "n")]


def rename_away_and_back(scene: Scene) -> Sequence[Call]:
    job_id = scene.job("n")
    return [change(job_id, "a"), change(job_id, "n"), create("n")]


def two_renames(scene: Scene) -> Sequence[Call]:
    return [change(scene.job("a"), "n"), change(scene.job("b"), "n")]


def swapped_names(scene: Scene) -> Sequence[Call]:
    return [change(scene.job("a"), "b"), change(scene.job("b"), "a")]


def cancel_and_creator(scene: Scene) -> Sequence[Call]:
    return [cancel(scene.job("n")), create("n")]


def cancel_and_rename(scene: Scene) -> Sequence[Call]:
    job_id = scene.job("a")
    return [cancel(job_id), change(job_id, "n"), create("n")]


def becoming_recurring(scene: Scene) -> Sequence[Call]:
    return [change(scene.job("n", "FUTURE"), "n", "INTERVAL"), create("n")]


def becoming_one_time_and_back(scene: Scene) -> Sequence[Call]:
    job_id = scene.job("n")
    return [change(job_id, "n", "FUTURE"), change(job_id, "n"), create("n")]


def walk_and_creators(_: Scene) -> Sequence[Call]:
    return [walk_names, create("n"), create("n", "INTERVAL")]


def walk_and_rename(scene: Scene) -> Sequence[Call]:
    job_id = scene.job("a")
    return [walk_names, change(job_id, "n"), create("a")]


STORIES: Sequence[Story] = (
    two_creators,
    creators_of_one_request,
    creator_and_rename,
    rename_away_and_back,
    two_renames,
    swapped_names,
    cancel_and_creator,
    cancel_and_rename,
    becoming_recurring,
    becoming_one_time_and_back,
    walk_and_creators,
    walk_and_rename,
)
by_story = pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)


def call_count_of(story: Story) -> int:
    scene = Scene()
    scene.play.together(story(scene))
    return scene.play.call_count


@by_story
def test_name_has_one_job_in_every_order_with_two_switches(story: Story) -> None:
    for switches in all_switches(call_count_of(story), most=2):
        scene = Scene(switching_at(switches))
        answers = scene.play.together(story(scene))
        for answer in answers:
            assert answer is None or isinstance(answer, JobView | Conflict), (switches, answer)
        scene.check_end()


@by_story
def test_name_has_one_job_after_a_crash_at_each_call(story: Story) -> None:
    for call_number in range(1, call_count_of(story) + 1):
        for kind in (FaultKind.BEFORE, FaultKind.AFTER):
            for switch in range(call_number + 1):
                scene = Scene(switching_at([switch]))
                fault = Fault(call_number, kind, crash=True)
                answers = scene.play.together(story(scene), [fault])
                assert sum(isinstance(answer, Crash) for answer in answers) <= 1
                scene.check_end()


@pytest.mark.parametrize("seed", range(120))
def test_name_has_one_job_in_random_orders_with_crashes(seed: int) -> None:
    rng = random.Random(seed)

    def choose(_number: int, last: int, ready: Sequence[int]) -> int:
        return rng.choice(ready) if rng.random() < 0.4 else last

    scene = Scene(choose)
    names = ("a", "b", "n")
    job_ids = [scene.job("a"), scene.job("b"), scene.job("n", "FUTURE")]
    for round_number in range(4):
        calls: list[Call] = [
            rng.choice(
                [
                    create(rng.choice(names), rng.choice(("CRON", "INTERVAL"))),
                    create(rng.choice(names), key=f"k{rng.randrange(2)}{round_number}"),
                    change(rng.choice(job_ids), rng.choice(names)),
                    change(rng.choice(job_ids), rng.choice(names), "FUTURE"),
                    cancel(rng.choice(job_ids)),
                    walk_names,
                ]
            )
            for _ in range(rng.randint(2, 4))
        ]
        faults = [
            Fault(rng.randint(1, 40), rng.choice((FaultKind.BEFORE, FaultKind.AFTER)), crash=True)
            for _ in range(rng.randint(0, 2))
        ]
        for answer in scene.play.together(calls, faults):
            if isinstance(answer, JobView):
                job_ids.append(answer.state.job_id)
    scene.check_end()


def test_creator_that_was_kept_out_takes_another_try() -> None:
    scene = Scene()
    (first,) = scene.play.together([create("n", key="k")], [Fault(3, FaultKind.BEFORE, crash=True)])
    assert isinstance(first, Crash)
    assert scene.holders() == {}
    other = scene.job("n")
    with_key = scene.play.alone(create("n", key="k"))
    assert isinstance(with_key, NameTaken)
    assert with_key.job_id == other
    scene.play.alone(cancel(other))
    retried = scene.play.alone(create("n", key="k"))
    assert isinstance(retried, JobView)
    scene.check_end()
