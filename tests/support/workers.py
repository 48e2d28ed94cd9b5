"""Distribute tests among the workers of `make test`."""

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

ALONE = "tests/e2e/"
"""These tests mostly wait for their nodes, so one worker runs them beside the others."""


class ByFile(LoadFileScheduling):  # type: ignore[misc]
    """Keep the tests of a file on one worker, because they share fixtures.

    `ALONE` counts as one file. Files start in the order of `start_order`.
    """

    def _split_scope(self, nodeid: str) -> str:
        return ALONE if nodeid.startswith(ALONE) else nodeid.partition("::")[0]


def start_order(item: pytest.Item) -> bool:
    """Return a sort key that puts `ALONE` first, so that no long wait is left for the end."""
    return not item.nodeid.startswith(ALONE)
