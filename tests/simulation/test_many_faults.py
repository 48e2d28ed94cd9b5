"""Two faults and more, drawn from a seed that a failure names."""

import os
import random
from typing import Any

import pytest

from tests.simulation.scenario import Scenario
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.torn import Fault, Tear, tears

EVERYTHING = os.environ.get("PUNCTUAL_SIMULATION") == "full"
SEEDS = 1_500 if EVERYTHING else 40
NAMES = [scenario.name for scenario in SCENARIOS]
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=NAMES)


def drawn(scenario: Scenario, seed: int, most: int) -> tuple[list[Fault], dict[str, Any]]:
    """Faults, clocks and ways of delivery, all from one seed."""
    chance = random.Random(f"{scenario.name} {seed}")
    names = ("api", "planner", "poller", "e1", "e2", "reconciler")
    setup: dict[str, Any] = {
        "seed": seed,
        "ahead": chance.choice((60.0, 2.0, 0.0)),
        "skews": {name: chance.choice((0.0, 5.0, chance.uniform(0, 5))) for name in names},
        "nudges_lost": chance.random() < 0.3,
        "kills_lost": chance.random() < 0.5,
        "twin_ticks": chance.random() < 0.3,
        "repeats": chance.choice((0.0, 0.3)),
    }
    calls = scenario.play(**setup).plan.calls
    faults: dict[int, Fault] = {}
    for _ in range(most):
        number = chance.randint(1, len(calls) + 20)
        call = calls[min(number, len(calls)) - 1]
        if chance.random() < 0.3:
            seconds = chance.choice((2.0, 12.0, 35.0, 70.0))
            tear = chance.choice((Tear.STALL_BEFORE, Tear.STALL_AFTER))
            faults[number] = Fault(number, tear, seconds=seconds)
        else:
            tear, crash = chance.choice([kind for kind in tears(call) if kind[0] != Tear.PREFIX])
            faults[number] = Fault(number, tear, crash)
    return list(faults.values()), setup


@every_scenario
@pytest.mark.parametrize("most", [2, 6])
def test_faults_together_break_no_rule(scenario: Scenario, most: int) -> None:
    broken = []
    for seed in range(SEEDS if most == 2 else SEEDS // 2):
        faults, setup = drawn(scenario, seed, most)
        try:
            scenario.play(faults, **setup)
        except AssertionError as error:
            broken.append(f"seed {seed}, {', '.join(map(str, faults))}: {error}")
    assert not broken, f"{len(broken)} seeds: {broken[:3]}"
