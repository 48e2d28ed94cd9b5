"""What a process knows of heads: the last that it wrote, once, and not for long."""

import msgspec

from punctual.domain.job_state import JobState
from punctual.engine.ports.rows import Key
from punctual.lambdas.executor.state_cache import FRESH, Heads
from tests.builders import JOB, a_head

KEY = Key("acme", JOB)


class Watch:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def at(version: int) -> JobState:
    return msgspec.structs.replace(a_head(), version=version)


def test_it_is_known_once() -> None:
    heads = Heads(Watch())
    heads.note(KEY, at(3))
    assert heads.take([KEY, KEY]) == {KEY: at(3)}
    assert heads.take([KEY]) == {}


def test_of_two_claims_of_one_job_the_later_one_stands() -> None:
    heads = Heads(Watch())
    for version in (4, 5, 3):
        heads.note(KEY, at(version))
    assert heads.take([KEY])[KEY].version == 5


def test_what_is_old_is_read() -> None:
    watch = Watch()
    heads = Heads(watch)
    heads.note(KEY, at(3))
    watch.now = FRESH
    assert heads.take([KEY]) == {}
