"""Draw a play from a seed: faults, stalls, clocks and call durations."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from tests.support.simulation.functions import OnFunctions
from tests.support.simulation.scenario import Scenario
from tests.support.simulation.torn import Call, Fault, Tear, tears
from tests.support.simulation.world import ClockStep, World

NAMES = ("api", "api2", "planner", "poller", "poller2", "e1", "e2", "reconciler")
SLOWEST = (0.003, 0.05, 0.5, 3.0)  # seconds
STALLS = (-1, 2)  # powers of ten: from 0.1 s to 100 s
NEVER = Fault(10**9, Tear.BEFORE)  # marks a play as disturbed for the checks of its story


class Drawn(NamedTuple):
    story: Scenario
    seed: int
    faults: Sequence[Fault]
    setup: dict[str, Any]

    def play(self) -> World:
        return self.story.play(self.faults or [NEVER], **self.setup)

    def __str__(self) -> str:
        kind = " on functions" if isinstance(self.story, OnFunctions) else ""
        faults = ", ".join(map(str, self.faults)) or "no fault"
        return f"{self.story.name!r}{kind}, seed {self.seed}, {faults}"


def on_functions(scenario: Scenario) -> OnFunctions:
    return OnFunctions(**{one.name: getattr(scenario, one.name) for one in fields(scenario)})


def drawn(scenario: Scenario, seed: int, most: int) -> Drawn:
    """Return the play of a story under this seed, with at most `most` faults."""
    chance = random.Random(f"{scenario.name} {seed}")
    setup: dict[str, Any] = {
        "seed": seed,
        "ahead": chance.choice((60.0, 2.0, 0.0)),
        "skews": {name: chance.choice((0.0, 5.0, chance.uniform(0, 5))) for name in NAMES},
        "nudges_lost": chance.random() < 0.3,
        "kills_lost": chance.random() < 0.5,
        "twin_ticks": chance.random() < 0.3,
        "repeats": chance.choice((0.0, 0.3)),
        "slowest": chance.choice(SLOWEST),
        "clock_steps": _clock_steps(chance) if chance.random() < 0.3 else (),
    }
    story = on_functions(scenario) if chance.random() < 0.4 else scenario
    calls = story.play([NEVER], **setup).plan.calls if most else []
    return Drawn(story, seed, _faults(chance, calls, most), setup)


def _faults(chance: random.Random, calls: Sequence[Call], most: int) -> list[Fault]:
    faults: dict[int, Fault] = {}
    for _ in range(most):
        number = chance.randint(1, len(calls) + 20)
        if chance.random() < 0.4:
            tear = chance.choice((Tear.STALL_BEFORE, Tear.STALL_AFTER))
            faults[number] = Fault(number, tear, seconds=10 ** chance.uniform(*STALLS))
        else:
            call = calls[min(number, len(calls)) - 1]
            tear, crash = chance.choice([kind for kind in tears(call) if kind[0] != Tear.PREFIX])
            faults[number] = Fault(number, tear, crash)
    return list(faults.values())


def _clock_steps(chance: random.Random) -> list[ClockStep]:
    """Return steps of the clocks, forward or back. Clocks differ by at most five seconds."""
    return [
        ClockStep(chance.uniform(0, 250), name, chance.uniform(0, 5))
        for name in NAMES
        for _ in range(chance.randint(0, 3))
    ]


def broken(plays: Iterable[Callable[[], Drawn]]) -> list[str]:
    """Return the failure of each play that broke a rule."""
    found = []
    for draw in plays:
        play: Drawn | None = None
        try:
            play = draw()
            play.play()
        except AssertionError as error:
            found.append(f"{play or 'without faults'}: {error}")
    return found
