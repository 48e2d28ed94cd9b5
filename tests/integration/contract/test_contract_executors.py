"""One suite for executors of every kind: all of them keep the protocol of claims.

A story plays the attempts of one run. The kinds differ in how work begins and ends, and in how an
executor dies. What becomes of the run is the same.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType

import pytest

from punctual.domain.run import Reason, RunStatus
from tests.support.executors.containers import (
    ContainerStory,
    RunnerContainerStory,
    container_story,
)
from tests.support.executors.functions import (
    FunctionStory,
    HandedOverScriptStory,
    WaitedScriptStory,
    function_story,
)
from tests.support.executors.nodes import node_story, outside_story
from tests.support.executors.story import ExecutorStory, Fate

Kind = Callable[[Path], AbstractContextManager[ExecutorStory]]
KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "thread of a node": node_story,
        "executor function": lambda _folder: function_story(FunctionStory),
        "waited script": lambda _folder: function_story(WaitedScriptStory),
        "handed over script": lambda _folder: function_story(HandedOverScriptStory),
        "container": lambda _folder: container_story(ContainerStory),
        "container with the runner": lambda _folder: container_story(RunnerContainerStory),
        "external process": outside_story,
    }
)


@pytest.fixture(params=KINDS)
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ExecutorStory]:
    with KINDS[request.param](tmp_path / "node") as story:
        yield story


def test_success_is_the_end_of_the_run(story: ExecutorStory) -> None:
    view = story.play(Fate.SUCCEEDS)
    assert (view.run.status, view.run.attempt) == (RunStatus.SUCCESS, 1)
    assert list(view.attempts) == []
    assert view.run.started_at is not None
    assert view.detail.error == ""


def test_failure_without_retries_is_the_end_of_the_run(story: ExecutorStory) -> None:
    view = story.play(Fate.FAILS)
    assert (view.run.status, view.run.attempt) == (RunStatus.FAILED, 1)
    assert view.detail.error in ("no luck", "Exit code 1")


def test_failure_is_retried_under_a_higher_token(story: ExecutorStory) -> None:
    view = story.play(Fate.FAILS, Fate.SUCCEEDS, max_retries=1)
    assert (view.run.status, view.run.past_attempts) == (RunStatus.SUCCESS, "F")
    first, second = story.claims
    assert second.token > first.token
    assert [(attempt.number, attempt.lost) for attempt in view.attempts] == [(1, False)]


def test_cancel_ends_the_run_and_is_not_retried(story: ExecutorStory) -> None:
    view = story.play(Fate.IS_CANCELLED, max_retries=3)
    assert (view.run.status, view.run.attempt) == (RunStatus.CANCELLED, 1)
    assert view.run.reason is Reason.CANCELLED


def test_dead_executor_loses_its_attempt_and_another_one_takes_the_run(
    story: ExecutorStory,
) -> None:
    view = story.play(Fate.DIES, Fate.SUCCEEDS)
    assert (view.run.status, view.run.past_attempts) == (RunStatus.SUCCESS, "L")
    assert [(attempt.number, attempt.lost) for attempt in view.attempts] == [(1, True)]


def test_late_success_of_a_dead_executor_changes_nothing(story: ExecutorStory) -> None:
    before = story.play(Fate.DIES, Fate.FAILS)
    assert before.run.status is RunStatus.FAILED
    assert not story.succeed_late(story.claims[0])
    assert story.view == before


def test_dead_executor_fails_a_run_that_may_start_only_once(story: ExecutorStory) -> None:
    view = story.play(Fate.DIES, delivery="AT_MOST_ONCE")
    assert (view.run.status, view.run.reason) == (RunStatus.FAILED, Reason.LOST)
    assert view.run.attempt == 1


def test_executor_that_dies_each_time_fails_the_run(story: ExecutorStory) -> None:
    view = story.play(*[Fate.DIES] * 5)
    assert (view.run.status, view.run.reason) == (RunStatus.FAILED, Reason.LOST)
    assert len({claim.token for claim in story.claims}) == 5


@pytest.mark.parametrize("delivery", ["AT_LEAST_ONCE", "AT_MOST_ONCE"])
def test_attempt_that_cannot_begin_does_not_count(story: ExecutorStory, delivery: str) -> None:
    view = story.play(Fate.IS_REFUSED, Fate.SUCCEEDS, delivery=delivery)
    assert (view.run.status, view.run.attempt) == (RunStatus.SUCCESS, 1)
    assert list(view.attempts) == []
    first, second = story.claims
    assert second.token > first.token, "so the claim that was returned holds nothing"
