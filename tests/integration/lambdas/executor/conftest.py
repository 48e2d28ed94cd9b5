"""A deployment with executor functions that the tests invoke."""

from collections.abc import Iterator

import pytest

from tests.support.deployed.drivers.executors import Executors, executors
from tests.support.deployed.drivers.script_functions import Functions, script_functions


@pytest.fixture
def world() -> Iterator[Executors]:
    with executors() as world:
        yield world


@pytest.fixture
def functions(world: Executors) -> Functions:
    return script_functions(world)
