"""Run each test of the contract once for each adapter."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.aws.adapters import ADAPTERS, World
from tests.support.builders import NOON, ManualClock
from tests.support.ports import Ports


@pytest.fixture(params=sorted(ADAPTERS))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with ADAPTERS[request.param](tmp_path, ManualClock(NOON)) as world:
        yield world


@pytest.fixture
def ports(world: World) -> Ports:
    return world.ports
