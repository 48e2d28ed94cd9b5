"""Plays drawn from seeds: the same each time, and others each day. A failure names its seed.

To play one again: `drawn(story, seed, most).play()`, with `invented(seed)` as the story where
nobody wrote one.
"""

from functools import partial

import pytest

from tests.support.simulation.drawn import broken, drawn
from tests.support.simulation.invented import invented
from tests.support.simulation.scenario import Scenario
from tests.support.simulation.scenarios import SCENARIOS
from tests.support.simulation.seeds import DAY, announced, seeds

SEEDS = seeds(fixed=20, fresh=20, day=DAY)  # of each story
INVENTED = seeds(fixed=1_000, fresh=1_000, day=DAY)
BLOCK = 250 if len(INVENTED) > 250 else 1
BLOCKS = [INVENTED[first : first + BLOCK] for first in range(0, len(INVENTED), BLOCK)]
NAMES = [scenario.name for scenario in SCENARIOS]
FOUND = [  # what each found is told where it is mended
    ("outage, run all", 100_128, 6),
    ("story 417", 417, 2),
    ("story 254", 254, 0),
    ("story 1576", 1_576, 0),
    ("story 3572", 3_572, 4),
]


def told(found: list[str], plays: int) -> str:
    return "\n".join([f"{len(found)} of {plays} plays; {announced(DAY)}", *found[:3]])


@pytest.mark.parametrize("most", [0, 2, 6])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=NAMES)
def test_a_story_keeps_every_law_whatever_is_drawn(scenario: Scenario, most: int) -> None:
    found = broken(partial(drawn, scenario, seed, most) for seed in SEEDS)
    assert not found, told(found, len(SEEDS))


@pytest.mark.parametrize("block", range(len(BLOCKS)))
def test_a_story_that_nobody_wrote_keeps_every_law(block: int) -> None:
    found = broken(
        partial(drawn, invented(seed), seed, most=(0, 1, 2, 5)[seed % 4]) for seed in BLOCKS[block]
    )
    assert not found, told(found, BLOCK)


@pytest.mark.parametrize(("name", "seed", "most"), FOUND)
def test_a_seed_that_found_something_keeps_every_law(name: str, seed: int, most: int) -> None:
    written = {scenario.name: scenario for scenario in SCENARIOS}
    found = broken([partial(drawn, written.get(name) or invented(seed), seed, most)])
    assert not found, told(found, 1)
