"""Worlds that a test leaves are closed, so that no process of theirs stands in a call for ever."""

from collections.abc import Iterator

import pytest

from tests.support.simulation.world import World


@pytest.fixture(autouse=True)
def closed_worlds() -> Iterator[None]:
    yield
    for world in list(World.open):
        world.close()
