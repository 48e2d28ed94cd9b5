"""Lists agree with job states and history whenever they are settled, under every seed."""

from collections import Counter
from collections.abc import Sequence

import pytest

from punctual.aws.dynamodb.lists.job_counts import JobCounts
from punctual.aws.dynamodb.lists.job_index import DynamoJobIndex
from punctual.aws.dynamodb.lists.job_row_reader import JobRowReader
from punctual.aws.dynamodb.lists.job_rows import is_expired_item, is_failing_item
from punctual.engine.ports.rows import JobKey
from tests.support.list_plays.feed_clients import Client, Clients, Shown
from tests.support.list_plays.list_checks import (
    check_failures,
    check_job_index,
    check_runs,
    expected_failures,
    expected_outcomes,
    jobs_of,
    shown_lists,
)
from tests.support.list_plays.recorded_plays import recorded_plays
from tests.support.list_plays.status_play import TABLE, Outage, StatusPlay
from tests.support.simulation.scenario import TENANT
from tests.support.simulation.seeds import DAY, replay_hint, seeds

PLAYS = 3  # that are merged
SEEDS = seeds(fixed=120, fresh=120, day=DAY)
BLOCK = 30
STEP_PROBABILITY = 0.5  # of a batch after each write
CLIENT_PROBABILITY = 0.3
OUTAGE_STORIES = 15
OUTAGE_CALLS = 100
EXPIRY_STORIES = 18
BLOCKS = [SEEDS[first : first + BLOCK] for first in range(0, len(SEEDS), BLOCK)]


def job_index_of(play: StatusPlay) -> DynamoJobIndex:
    return DynamoJobIndex(JobRowReader(play.dynamo, TABLE, play.list_slots, play.clock))


def check_on_aws(play: StatusPlay) -> None:
    """Check all lists after all records, through the adapters that requests use."""
    truth, now, chance = play.truth, play.clock(), play.chance
    check_job_index(job_index_of(play), truth, now, chance)
    check_runs(play.run_list, truth, now, chance)
    check_failures(play.failures, truth, chance)
    check_job_rows(play)
    check_job_counts(play)


def check_job_rows(play: StatusPlay) -> None:
    truth = play.truth
    jobs = jobs_of(truth)
    stored = play.job_rows.load(list(jobs))
    assert stored.keys() == jobs.keys(), "jobs without a row, or rows without a job"
    failing = {JobKey(key.tenant, key.job_id) for key in jobs} & {
        JobKey(key.tenant, job_id) for key in jobs for job_id, _ in expected_failures(truth)
    }
    for key, state in jobs.items():
        row = stored[key].row
        assert (row.status, row.kind, row.edition) == (state.status, state.kind, state.edition)
        assert row.live_runs == len(state.runs) + len(state.wait_queue)
        assert row.held_runs == sum(run.is_held for run in state.runs)
        assert row.name == play.definition_of(state).name
        ahead = [run.scheduled_at for run in state.runs if row.next_at == run.scheduled_at]
        assert row.next_at == (min(ahead) if ahead else state.next_at) or state.pause is not None
        assert stored[key].outcomes == expected_outcomes(truth, key)
    marked = {
        JobKey("acme", item["sk"]["S"])
        for item in play.database.rows(TABLE)
        if is_failing_item(item) and not is_expired_item(item, play.clock())
    }
    assert marked == failing, f"marks of open failures: {marked}, failing: {failing}"


def check_job_counts(play: StatusPlay) -> None:
    """Check that the counts of jobs say what the job states say."""
    counts = JobCounts(play.dynamo, TABLE, play.list_slots).read(TENANT)
    statuses = Counter(state.status.value for state in jobs_of(play.truth).values())
    assert counts.by_status(play.clock.now) == statuses


def play_on_aws(story_seeds: list[int], outages: Sequence[Outage] = ()) -> tuple[StatusPlay, int]:
    """Return the play, and how many clients have followed its feed to the end."""
    plays = recorded_plays(story_seeds)
    play = StatusPlay(plays, story_seeds[0], outages)
    clients = Clients(TENANT, play.chance)
    settle_at = {play.chance.randrange(len(plays.writes)) for _ in range(2)}

    def read_lists() -> Shown:
        return shown_lists(job_index_of(play), play.run_list, play.truth, play.clock())

    def let_clients_read() -> None:
        clients.step(play.change_queries, play.clock(), read_lists)

    play.during_stall = let_clients_read
    for number, write in enumerate(plays.writes):
        play.write(write)
        if play.chance.random() < STEP_PROBABILITY:
            play.step()
        if play.chance.random() < CLIENT_PROBABILITY:
            let_clients_read()
        if number in settle_at:
            play.settle()
            check_on_aws(play)
    play.settle()
    check_on_aws(play)
    return play, clients.finish(play.change_queries, play.clock(), read_lists())


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_lists_and_feed_on_aws_say_what_states_and_history_say(block: list[int]) -> None:
    faults = followers = 0
    for start in range(0, len(block), PLAYS):
        story_seeds = block[start : start + PLAYS]
        try:
            play, follower_count = play_on_aws(story_seeds)
        except AssertionError as error:
            raise AssertionError(f"seeds {story_seeds}; {replay_hint(DAY)}: {error}") from error
        faults += play.faults
        followers += follower_count
    assert faults > len(block) / PLAYS
    assert followers > len(block) / PLAYS / 2


@pytest.mark.parametrize("answers_lost", [False, True])
@pytest.mark.parametrize("first_call", [1, 40, 150])
def test_lists_and_feed_on_aws_are_right_after_an_outage(
    first_call: int, answers_lost: bool
) -> None:
    faults = 0
    for start in range(0, OUTAGE_STORIES, PLAYS):
        story_seeds = list(range(start, start + PLAYS))
        play, _ = play_on_aws(story_seeds, [Outage(first_call, OUTAGE_CALLS, answers_lost)])
        faults += play.faults
    assert faults >= OUTAGE_CALLS


@pytest.mark.parametrize("first_story", range(0, EXPIRY_STORIES, PLAYS))
def test_lists_on_aws_are_empty_after_all_has_expired(first_story: int) -> None:
    play, _ = play_on_aws(list(range(first_story, first_story + PLAYS)))
    play.during_stall = lambda: None  # the cursors of these clients are too old by now
    play.expire()
    check_on_aws(play)
    client = Client(play.change_queries, TENANT, play.clock())
    client.read_lists({})
    play.settle()
    check_on_aws(play)
    client.poll(play.clock())
    assert client.shown == {}
    assert not play.failures.counts(TENANT).unacknowledged
