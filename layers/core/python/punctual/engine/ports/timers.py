"""The port for timers, by partition."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from punctual.engine.ports.rows import JobKey


class Timer(NamedTuple):
    """A request to evaluate a job at `at`, filed under the minute `bucket`."""

    bucket: datetime
    shard: int
    at: datetime
    tenant: str
    job_id: str
    version: int

    @property
    def key(self) -> JobKey:
        return JobKey(self.tenant, self.job_id)

    @property
    def sort_key(self) -> tuple[datetime, str, str, int]:
        return (self.at, self.tenant, self.job_id, self.version)


class TimerPage(NamedTuple):
    """A page of timers. It is empty only if no timer is left.

    `cursor` is None on the last page. `newer_format_count` counts rows that only a later version of
    Punctual can read.
    """

    timers: Sequence[Timer]
    cursor: str | None
    newer_format_count: int = 0


class Timers(Protocol):
    def put(self, timers: Sequence[Timer]) -> None:
        """Store the timers. Idempotent.

        Timers of one call and one time may share a row, to save writes.
        """

    def delete(self, timers: Sequence[Timer]) -> None:
        """Delete exactly these timers. A missing timer is not an error.

        A timer that was put again after it was read may stay.
        """

    def due(
        self, bucket: datetime, shard: int, until: datetime, cursor: str | None, limit: int
    ) -> TimerPage:
        """Return the timers of one partition with `at <= until`, soonest first.

        The read is consistent. A page holds `limit` timers or a few more, and none is earlier than
        the page before. Timers of the same time have no order. A timer may occur on two pages, and
        none is missing.
        """

    def find_existing(self, timers: Sequence[Timer]) -> frozenset[Timer]:
        """Return the timers for which one of the same job, bucket, shard and time exists.

        Its version may differ.
        """
