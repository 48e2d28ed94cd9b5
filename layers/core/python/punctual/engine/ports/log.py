"""The port for log lines."""

from collections.abc import Callable

Log = Callable[..., None]


def no_log(_event: str, /, **_fields: object) -> None:
    """Log nothing."""
