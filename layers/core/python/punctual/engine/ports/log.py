"""The port for log lines."""

from collections.abc import Callable

Log = Callable[..., None]


def untold(_event: str, /, **_facts: object) -> None:
    """Log nothing."""
