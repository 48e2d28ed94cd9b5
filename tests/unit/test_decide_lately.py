"""What ended and left its head is named there until lists over all jobs have it."""

from msgspec.structs import replace

from punctual.domain.decide import decide
from punctual.domain.durations import LISTED
from punctual.domain.events import Evaluate, StartRun
from tests.builders import NOON
from tests.builders_jobs import Story, a_job, every

SECONDS = int(LISTED.total_seconds())


def ended_at(story: Story, n: float) -> str:
    """Fires, runs and ends at that second, at once."""
    run = story.fires(n).claim()
    story.finish(run)
    return run.run_id


def seconds_of(story: Story) -> list[int]:
    return [at - int(NOON.timestamp()) for at in story.head.lately.values()]


def test_who_ends_each_second_is_named_for_some_seconds() -> None:
    story = Story(a_job(every(1)))
    ran = [ended_at(story, n) for n in range(1, 20)]
    assert list(story.head.lately) == ran[-SECONDS:-1], "the last is in the head itself"
    assert seconds_of(story) == list(range(20 - SECONDS, 19))


def test_who_ends_seldom_is_never_named() -> None:
    story = Story(a_job(every(SECONDS)))
    for n in range(SECONDS, 20 * SECONDS, SECONDS):
        ended_at(story, n)
        assert story.head.lately == {}


def test_nobody_is_named_whose_row_is_not_known_to_stand() -> None:
    story = Story(a_job(every(1)))
    first = ended_at(story, 1)
    story.at(2).do_look(recorded=False)
    assert [run.run_id for run in story.head.ended] == [first]
    assert story.head.lately == {}


def test_a_look_that_changes_nothing_else_writes_nothing_to_forget_a_name() -> None:
    story = Story(a_job(every(60)))
    story.at(1).order("a")
    story.finish(story.claim())
    story.at(2).order("b")
    story.finish(story.claim())
    story.at(3).order("c")
    story.finish(story.claim())
    assert list(story.head.lately) == ["a", "b"]
    named = replace(story.head, ended=())
    assert decide(named, Evaluate(), story.at(30).now, "w").head is named
    story.order("d")
    assert story.head.lately == {}


def test_where_rows_stand_with_the_swap_nobody_is_named() -> None:
    story = Story(a_job(every(60)))
    story.at(1).order("a")
    story.finish(story.claim())
    known = frozenset({"a"})
    assert decide(story.head, StartRun("b"), story.now, "w", known, together=True).head.lately == {}
    assert list(decide(story.head, StartRun("b"), story.now, "w", known).head.lately) == ["a"]


def test_a_hundred_that_end_together_are_all_named_and_then_forgotten() -> None:
    story = Story(a_job(every(3_600), max_concurrency=100)).at(1)
    for n in range(100):
        story.order(f"now-{n}")
    for run in [story.claim(run) for run in story.queued]:
        story.finish(run)
    story.at(2).order("next")
    assert len(story.head.lately) == 100
    story.at(2 + SECONDS).finish(story.claim())
    assert story.head.lately == {}
