"""The node's lists agree with job states and history after each commit, under every seed."""

from pathlib import Path

import pytest

from tests.support.list_plays.feed_clients import Clients, Shown
from tests.support.list_plays.list_checks import (
    check_failures,
    check_job_index,
    check_runs,
    expected_outcomes,
    jobs_of,
    shown_lists,
)
from tests.support.list_plays.node_play import NodePlay
from tests.support.list_plays.recorded_plays import recorded_plays
from tests.support.simulation.invariants import Swapped
from tests.support.simulation.scenario import TENANT
from tests.support.simulation.seeds import DAY, replay_hint, seeds

PLAYS = 3  # that are merged
SEEDS = seeds(fixed=45, fresh=45, day=DAY)
BLOCK = 15
BLOCKS = [SEEDS[first : first + BLOCK] for first in range(0, len(SEEDS), BLOCK)]
CHECKS = 2  # in the middle of a play
CLIENT_PROBABILITY = 0.3
RECENT_RUNS = 30


def check_on_node(play: NodePlay) -> None:
    truth, now, chance, store = play.truth, play.clock(), play.chance, play.store
    check_job_index(store.job_index, truth, now, chance)
    check_runs(play.run_index, truth, now, chance)
    check_failures(store.failures, truth, chance)
    jobs = jobs_of(truth)
    recent = store.history.recent_runs(list(jobs), RECENT_RUNS, now)
    for key in jobs:
        shown = [(run.run_id, run.status) for run in recent.get(key, ())]
        expected = [(outcome.run_id, outcome.status) for outcome in expected_outcomes(truth, key)]
        assert sorted(shown) == sorted(expected)


def play_on_node(story_seeds: list[int], folder: Path) -> tuple[NodePlay, int]:
    """Return the play, and how many clients have followed its feed to the end."""
    plays = recorded_plays(story_seeds)
    play = NodePlay(plays, story_seeds[0], folder)
    clients = Clients(TENANT, play.chance)
    writes = [write for write in plays.writes if isinstance(write, Swapped)]
    check_at = {play.chance.randrange(len(writes)) for _ in range(CHECKS)}

    def read_lists() -> Shown:
        return shown_lists(play.store.job_index, play.run_index, play.truth, play.clock())

    start = 0
    while start < len(writes):
        group = writes[start : start + play.chance.randint(1, 4)]
        play.write(group)
        if play.chance.random() < CLIENT_PROBABILITY:
            clients.step(play.change_queries, play.clock(), read_lists)
        if check_at & set(range(start, start + len(group))):
            check_on_node(play)
        start += len(group)
    check_on_node(play)
    followers = clients.finish(play.change_queries, play.clock(), read_lists())
    play.store.close()
    return play, followers


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_lists_and_feed_of_the_node_say_what_states_and_history_say(
    block: list[int], tmp_path: Path
) -> None:
    rollbacks = restarts = followers = 0
    for start in range(0, len(block), PLAYS):
        story_seeds = block[start : start + PLAYS]
        try:
            play, follower_count = play_on_node(story_seeds, tmp_path / str(start))
        except AssertionError as error:
            raise AssertionError(f"seeds {story_seeds}; {replay_hint(DAY)}: {error}") from error
        rollbacks, restarts = rollbacks + play.rollbacks, restarts + play.restarts
        followers += follower_count
    assert rollbacks > 0
    assert restarts > 0
    assert followers > 0
