"""The port for events that tasks publish."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Feed(Protocol):
    def publish(self, events: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        """Publish the events. Return the id of each."""
