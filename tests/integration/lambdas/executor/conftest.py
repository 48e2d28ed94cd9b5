"""A deployment with executor functions that the tests invoke."""

from collections.abc import Iterator

import pytest

from tests.support.deployed.drivers.executors import Executors, executors


@pytest.fixture
def world() -> Iterator[Executors]:
    with executors() as world:
        yield world
