"""A separate node process for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.running import RunningNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    node = RunningNode(tmp_path / "data").start()
    try:
        yield node
    finally:
        node.stop()
