"""Processes that cannot reach a port for a while, or get no answers from it. All rules hold."""

import random

import pytest

from tests.support.simulation.port_faults import Partition
from tests.support.simulation.random_plays import random_play
from tests.support.simulation.random_stories import random_story
from tests.support.simulation.seeds import DAY, replay_hint, seeds

SEEDS = seeds(fixed=200, fresh=50, day=DAY)
BLOCK = 50
BLOCKS = [SEEDS[first : first + BLOCK] for first in range(0, len(SEEDS), BLOCK)]
PROCESSES = ("api", "api2", "planner", "poller", "e1", "e2")
PORTS = ("", "", "job_states", "timers", "history", "partitions", "run_queue", "job_names")
MAX_PARTITIONS = 2
LONGEST = 40  # calls


def partitions_of(seed: int) -> list[Partition]:
    chance = random.Random(f"partitions {seed}")
    return [
        Partition(
            chance.choice(PROCESSES),
            chance.choice(PORTS),
            chance.randint(1, 40),
            chance.randint(2, LONGEST),
            chance.random() < 0.5,
        )
        for _ in range(chance.randint(1, MAX_PARTITIONS))
    ]


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_random_story_keeps_all_rules_over_partitions(block: list[int]) -> None:
    cut_calls = 0
    for seed in block:
        partitions = partitions_of(seed)
        play = random_play(random_story(seed), seed, max_faults=0)
        try:
            world = play.story.play(play.faults, partitions, **play.setup)
        except AssertionError as error:
            text = ", ".join(map(str, partitions))
            raise AssertionError(f"seed {seed}, {text}; {replay_hint(DAY)}: {error}") from error
        cut_calls += world.plan.cut_calls
    assert cut_calls > len(block)
