"""The world of the tests of the status function."""

from collections.abc import Iterator

import pytest

from tests.support.aws.status_world import World
from tests.support.builders import (
    after,
)
from tests.support.deployed.drivers.api import an_api


@pytest.fixture
def world() -> Iterator[World]:
    with an_api(now=after(30)) as api:
        yield World(api)
