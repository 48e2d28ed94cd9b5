"""The rows of runs and attempts that ended."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from punctual.domain.run import Run
from punctual.engine.ports.rows import (
    AttemptRow,
    Detail,
    Key,
    RunKey,
    RunRow,
)


class History(Protocol):
    """Rows whose `expires_at` has passed are never returned, whenever they are removed.

    Reads are strongly consistent. Only `page_all` may miss what was written in the last seconds.
    """

    def put(self, rows: Sequence[RunRow]) -> None:
        """Idempotent, by (tenant, job, run id)."""

    def put_attempts(self, rows: Sequence[AttemptRow]) -> None:
        """Idempotent, by (tenant, job, run id, number, token, lost)."""

    def put_ends(self, rows: Sequence[AttemptRow]) -> None:
        """What the ends of runs leave, for as long as their own rows may be missing. Idempotent."""

    def end(self, key: RunKey, run: Run, now: datetime) -> Detail | None:
        """What the holder of the run's last token left with `put_ends`, read consistently."""

    def present(self, keys: Sequence[RunKey]) -> frozenset[RunKey]:
        """Which of these have a row."""

    def get(self, keys: Sequence[RunKey], now: datetime) -> Mapping[RunKey, RunRow]: ...

    def attempts(self, key: RunKey, now: datetime) -> Sequence[AttemptRow]:
        """Of one run, by number and token."""

    def page(
        self, key: Key, before: str | None, after: str | None, limit: int, now: datetime
    ) -> Sequence[RunRow]:
        """Of one job, newest first, `after < run_id < before` (each may be None)."""

    def page_all(
        self, tenant: str, before: tuple[str, str] | None, limit: int, now: datetime
    ) -> Sequence[RunRow]:
        """Over all jobs of a tenant, newest (run_id, job_id) first, behind `before`."""
