"""Close the worlds that a test leaves, so that none of their processes hangs in a call."""

from collections.abc import Iterator

import pytest

from tests.support.simulation.world import World


@pytest.fixture(autouse=True)
def closed_worlds() -> Iterator[None]:
    yield
    for world in list(World.open):
        world.close()
