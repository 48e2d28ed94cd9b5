"""Run each test of a list that follows job states once for each world."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.builders import NOON, ManualClock
from tests.support.list_plays.list_worlds import LIST_WORLDS, ListWorld


@pytest.fixture(params=sorted(LIST_WORLDS))
def lists(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ListWorld]:
    with LIST_WORLDS[request.param](tmp_path, ManualClock(NOON)) as world:
        yield world
