"""Clients that reach the rows of names or the job states only in part, for a while.

Two jobs never have one name, and no name stays blocked by a job that is gone.
"""

import random
from collections.abc import Sequence

import pytest

from punctual.engine.queries.views import JobView
from tests.support.names.scene import Call, Scene, cancel, change, create, walk_names
from tests.support.simulation.port_faults import Partition
from tests.support.simulation.seeds import DAY, replay_hint, seeds

SEEDS = seeds(fixed=150, fresh=50, day=DAY)
BLOCK = 50
BLOCKS = [SEEDS[first : first + BLOCK] for first in range(0, len(SEEDS), BLOCK)]
NAMES = ("a", "b", "n")
PORTS = ("job_names", "job_names", "job_states", "")
ROUNDS = 4
MOST_CLIENTS = 4


def _partitions(chance: random.Random, client_count: int) -> list[Partition]:
    return [
        Partition(
            f"client {chance.randrange(client_count)}",
            chance.choice(PORTS),
            chance.randint(1, 6),
            chance.choice((1, 2, 5, 100)),
            chance.random() < 0.6,
        )
        for _ in range(chance.randint(1, 2))
    ]


def _calls(chance: random.Random, job_ids: Sequence[str], round_number: int) -> list[Call]:
    def any_name() -> str:
        return chance.choice(NAMES)

    return [
        chance.choice(
            [
                create(any_name(), chance.choice(("CRON", "INTERVAL"))),
                create(any_name(), key=f"k{chance.randrange(2)}{round_number}"),
                change(chance.choice(job_ids), any_name()),
                change(chance.choice(job_ids), any_name(), "FUTURE"),
                cancel(chance.choice(job_ids)),
                walk_names,
            ]
        )
        for _ in range(chance.randint(2, MOST_CLIENTS))
    ]


def _play(seed: int) -> int:
    """Return how many calls were cut off."""
    chance = random.Random(f"name partitions {seed}")

    def choose(_number: int, last: int, ready: Sequence[int]) -> int:
        return chance.choice(ready) if chance.random() < 0.4 else last

    scene = Scene(choose)
    job_ids = [scene.job("a"), scene.job("b"), scene.job("n", "FUTURE")]
    cut_calls = 0
    for round_number in range(ROUNDS):
        calls = _calls(chance, job_ids, round_number)
        answers = scene.play.together(calls, partitions=_partitions(chance, len(calls)))
        cut_calls += scene.play.plan.cut_calls
        job_ids += [answer.state.job_id for answer in answers if isinstance(answer, JobView)]
    scene.check_end()
    return cut_calls


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_name_has_one_job_over_partitions(block: list[int]) -> None:
    cut_calls = 0
    for seed in block:
        try:
            cut_calls += _play(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}; {replay_hint(DAY)}: {error}") from error
    assert cut_calls > len(block)
