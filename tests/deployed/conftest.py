"""A deployment with its admin token."""

from collections.abc import Iterator

import pytest

from tests.support.deployed.gateway import Gateway
from tests.support.deployed.scenes import open_api
from tests.support.deployed.world import World, a_world


@pytest.fixture
def stage() -> str:
    """The stage of a test. A module may override it."""
    return "dev"


@pytest.fixture
def world(stage: str) -> Iterator[World]:
    with a_world(stage) as world:
        yield world


@pytest.fixture
def api(world: World) -> Gateway:
    return open_api(world)
