"""Random plays from seeds, some fixed and some new each day. A failure names its seed.

To repeat a play: `random_play(story, seed, max_faults).play()`. For a random story, `story` is
`random_story(seed)`.
"""

from functools import partial

import pytest

from tests.support.simulation.random_plays import failures_of, random_play
from tests.support.simulation.random_stories import random_story
from tests.support.simulation.scenario import Scenario
from tests.support.simulation.scenarios import SCENARIOS
from tests.support.simulation.seeds import DAY, replay_hint, seeds

SEEDS = seeds(fixed=20, fresh=20, day=DAY)  # of each story
INVENTED = seeds(fixed=1_000, fresh=1_000, day=DAY)
BLOCK = 250 if len(INVENTED) > 250 else 1
BLOCKS = [INVENTED[first : first + BLOCK] for first in range(0, len(INVENTED), BLOCK)]
NAMES = [scenario.name for scenario in SCENARIOS]
SEEDS_WITH_ERRORS = [  # plays that found an error. The fix of each describes it
    ("outage, run all", 100_128, 6),
    ("story 417", 417, 2),
    ("story 254", 254, 0),
    ("story 1576", 1_576, 0),
    ("story 3572", 3_572, 4),
    ("story 12394", 12_394, 2),
]


def failure_text(failures: list[str], plays: int) -> str:
    return "\n".join([f"{len(failures)} of {plays} plays; {replay_hint(DAY)}", *failures[:3]])


@pytest.mark.parametrize("max_faults", [0, 2, 6])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=NAMES)
def test_written_story_with_random_faults_keeps_all_rules(
    scenario: Scenario, max_faults: int
) -> None:
    failures = failures_of(partial(random_play, scenario, seed, max_faults) for seed in SEEDS)
    assert not failures, failure_text(failures, len(SEEDS))


@pytest.mark.parametrize("block", range(len(BLOCKS)))
def test_random_story_with_random_faults_keeps_all_rules(block: int) -> None:
    failures = failures_of(
        partial(random_play, random_story(seed), seed, max_faults=(0, 1, 2, 5)[seed % 4])
        for seed in BLOCKS[block]
    )
    assert not failures, failure_text(failures, BLOCK)


@pytest.mark.parametrize(("name", "seed", "max_faults"), SEEDS_WITH_ERRORS)
def test_seed_that_found_an_error_keeps_all_rules(name: str, seed: int, max_faults: int) -> None:
    written = {scenario.name: scenario for scenario in SCENARIOS}
    failures = failures_of(
        [partial(random_play, written.get(name) or random_story(seed), seed, max_faults)]
    )
    assert not failures, failure_text(failures, 1)
