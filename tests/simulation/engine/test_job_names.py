"""No order of calls, and no crash, lets two recurring jobs of a tenant have one name."""

import random
from collections.abc import Callable, Sequence

import pytest

from punctual.domain.errors import Conflict, NameTaken
from punctual.engine.queries.views import JobView
from tests.support.names.interleavings import (
    all_switches,
    switching_at,
)
from tests.support.names.scene import Call, Scene, cancel, change, create, walk_names
from tests.support.simulation.port_faults import Crash, Fault, FaultKind

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
