"""Timers, by minute and shard."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from punctual.engine.ports.rows import Key


class Timer(NamedTuple):
    """Look at this job at that moment. `bucket` is the minute it is filed under."""

    bucket: datetime
    shard: int
    at: datetime
    tenant: str
    job_id: str
    version: int

    @property
    def key(self) -> Key:
        return Key(self.tenant, self.job_id)

    @property
    def order(self) -> tuple[datetime, str, str, int]:
        return (self.at, self.tenant, self.job_id, self.version)


class TimerPage(NamedTuple):
    """Empty only where nothing is left to come; `cursor` is None where this is the last.

    `later`: rows among them that wait for a later version, for this one cannot read them.
    """

    timers: Sequence[Timer]
    cursor: str | None
    later: int = 0


class Timers(Protocol):
    def put(self, timers: Sequence[Timer]) -> None:
        """Idempotent. Those put together for one moment may share a row, and what it costs."""

    def delete(self, timers: Sequence[Timer]) -> None:
        """Exactly these, as far as they were put when they were read; none there is no error."""

    def due(
        self, bucket: datetime, shard: int, until: datetime, cursor: str | None, limit: int
    ) -> TimerPage:
        """Those of one bucket and shard with `at <= until`, read consistently, soonest first.

        A page holds `limit` or a few more, and no earlier moment than the page before it. Within a
        moment there is no order; a timer may come on two pages, and none is left out.
        """

    def standing(self, wanted: Sequence[Timer]) -> frozenset[Timer]:
        """At whose moment, in whose bucket and shard, a timer of their job stands: any version."""
