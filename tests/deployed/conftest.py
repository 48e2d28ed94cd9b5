"""A deployment with its token in place; nobody may look away from what failed in it."""

from collections.abc import Iterator

import pytest

from tests.support.deployed.gateway import Gateway
from tests.support.deployed.scenes import opened
from tests.support.deployed.world import World, a_world


@pytest.fixture
def stage() -> str:
    """Tests that are to hold on more of them say so."""
    return "dev"


@pytest.fixture
def world(stage: str) -> Iterator[World]:
    with a_world(stage) as made:
        yield made


@pytest.fixture
def api(world: World) -> Gateway:
    return opened(world)
