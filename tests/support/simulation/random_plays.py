"""Random plays of a story by a seed: faults, stalls, clocks and call durations."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from tests.support.simulation.functions import OnFunctions
from tests.support.simulation.port_faults import Call, Fault, FaultKind, fault_kinds
from tests.support.simulation.scenario import Scenario
from tests.support.simulation.world import ClockStep, World

NAMES = ("api", "api2", "planner", "poller", "poller2", "e1", "e2", "reconciler")
SLOWEST = (0.003, 0.05, 0.5, 3.0)  # seconds
STALLS = (-1, 2)  # powers of ten: from 0.1 s to 100 s
NO_FAULT = Fault(10**9, FaultKind.BEFORE)  # marks a play as disturbed for the checks of its story


class RandomPlay(NamedTuple):
    story: Scenario
    seed: int
    faults: Sequence[Fault]
    setup: dict[str, Any]

    def play(self) -> World:
        return self.story.play(self.faults or [NO_FAULT], **self.setup)

    def __str__(self) -> str:
        kind = " on functions" if isinstance(self.story, OnFunctions) else ""
        faults = ", ".join(map(str, self.faults)) or "no fault"
        return f"{self.story.name!r}{kind}, seed {self.seed}, {faults}"


def on_functions(scenario: Scenario) -> OnFunctions:
    return OnFunctions(
        **{
            dataclass_field.name: getattr(scenario, dataclass_field.name)
            for dataclass_field in fields(scenario)
        }
    )


def random_play(scenario: Scenario, seed: int, max_faults: int) -> RandomPlay:
    """Return the play of a story under this seed, with at most `max_faults` faults."""
    chance = random.Random(f"{scenario.name} {seed}")
    setup: dict[str, Any] = {
        "seed": seed,
        "ahead": chance.choice((60.0, 2.0, 0.0)),
        "skews": {name: chance.choice((0.0, 5.0, chance.uniform(0, 5))) for name in NAMES},
        "wake_ups_lost": chance.random() < 0.3,
        "stop_requests_lost": chance.random() < 0.5,
        "twin_ticks": chance.random() < 0.3,
        "repeats": chance.choice((0.0, 0.3)),
        "slowest": chance.choice(SLOWEST),
        "clock_steps": _clock_steps(chance) if chance.random() < 0.3 else (),
    }
    story = on_functions(scenario) if chance.random() < 0.4 else scenario
    calls = story.play([NO_FAULT], **setup).plan.calls if max_faults else []
    return RandomPlay(story, seed, _faults(chance, calls, max_faults), setup)


def _faults(chance: random.Random, calls: Sequence[Call], max_faults: int) -> list[Fault]:
    faults: dict[int, Fault] = {}
    for _ in range(max_faults):
        number = chance.randint(1, len(calls) + 20)
        if chance.random() < 0.4:
            kind = chance.choice((FaultKind.STALL_BEFORE, FaultKind.STALL_AFTER))
            faults[number] = Fault(number, kind, seconds=10 ** chance.uniform(*STALLS))
        else:
            call = calls[min(number, len(calls)) - 1]
            kind, crash = chance.choice(
                [kind for kind in fault_kinds(call) if kind[0] != FaultKind.PREFIX]
            )
            faults[number] = Fault(number, kind, crash)
    return list(faults.values())


def _clock_steps(chance: random.Random) -> list[ClockStep]:
    """Return steps of the clocks, forward or back. Clocks differ by at most five seconds."""
    return [
        ClockStep(chance.uniform(0, 250), name, chance.uniform(0, 5))
        for name in NAMES
        for _ in range(chance.randint(0, 3))
    ]


def failures_of(plays: Iterable[Callable[[], RandomPlay]]) -> list[str]:
    """Return the failure of each play that broke a rule."""
    failures = []
    for draw in plays:
        play: RandomPlay | None = None
        try:
            play = draw()
            play.play()
        except AssertionError as error:
            failures.append(f"{play or 'without faults'}: {error}")
    return failures
