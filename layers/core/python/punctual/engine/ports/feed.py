"""Events that tasks publish."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Feed(Protocol):
    """Events that tasks publish."""

    def publish(self, events: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        """The id of each."""
