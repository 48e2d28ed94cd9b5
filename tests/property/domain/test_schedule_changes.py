"""Changes of schedule close to runs fired ahead: no occurrence gets two outcomes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.domain.run import Run, WaitingRun
from punctual.domain.schedules.schedule import Once, Schedule
from tests.support.builders_jobs import Story, a_job, after, every, seconds
from tests.support.examples import examples

STEP_SECONDS = [0, 0, 0.3, 0.7]
FIRE_AHEAD_SECONDS = 3
Step = tuple[str, float]  # what happens, and the wait before it


class OnceStory(Story):
    """A story that can check that each live run has no outcome yet."""

    def check(self) -> None:
        live: list[Run | WaitingRun] = [*self.state.runs, *self.state.wait_queue]
        live_run_ids = {run.run_id for run in live}
        assert not live_run_ids & self.ledger.keys(), "an occurrence with an outcome is live again"
        assert len(live_run_ids) == len(live), "an occurrence has two live runs"


ACTIONS = ("fire ahead", "fire ahead", "cancel run", "cancel run", "run", "early", "late", "once")
STEPS = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.sampled_from(STEP_SECONDS)), min_size=4, max_size=16
)


def _play(story: OnceStory, step: Step) -> None:
    action, wait_seconds = step
    story.wait(wait_seconds)
    if action == "fire ahead":
        story.evaluate(horizon=FIRE_AHEAD_SECONDS)
    elif action == "cancel run":
        for run in story.queued[-1:]:
            story.cancel_run(run)
    elif action == "run":
        ready = [run for run in story.queued if run.due_at <= story.now]
        for run in ready:
            story.finish(story.claim(run))
    else:
        story.change(_schedule(action, story))


def _schedule(action: str, story: Story) -> Schedule:
    """Return a schedule that fires every 4 s, the same a second later, or one time soon."""
    if action == "once":
        return Once(story.now.replace(microsecond=0) + seconds(1))
    return every(4, anchor_at=after(0 if action == "early" else 1))


@given(steps=STEPS)
@settings(max_examples=examples(600), deadline=None)
def test_no_occurrence_has_two_outcomes(steps: list[Step]) -> None:
    story = OnceStory(a_job(every(4)), after(2))
    for step in steps:
        _play(story, step)
        story.check()
    story.drain_at(60)
    story.check()
