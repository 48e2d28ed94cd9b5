"""Clients that read the lists, and then follow the change feed."""

import random
from collections.abc import Callable
from datetime import datetime, timedelta

from punctual.domain.run import Run
from punctual.engine.ports.lists.change_feed import ChangeFilters, ChangeKind
from punctual.engine.queries.changes import ChangeQueries, ChangesSince
from punctual.engine.queries.slices import finish

MAX_FOLLOWERS = 3
Shown = dict[tuple[str, str], tuple[str, ...]]
"""What a client shows: the kind and the id of a job or run, and its values."""


def shown_run(run: Run) -> tuple[str, ...]:
    return run.status.value, run.reason.value, str(run.occurrence_count)


class Client:
    """Takes a cursor, reads the lists some time later, and then follows the feed."""

    def __init__(self, queries: ChangeQueries, tenant: str, now: datetime) -> None:
        self.queries = queries
        self._tenant = tenant
        self._cursor = self._since(None, now).cursor
        self.shown: Shown | None = None
        self._versions: dict[tuple[str, str], int] = {}

    def _since(self, cursor: tuple[str, ...] | None, now: datetime) -> ChangesSince:
        return finish(self.queries.since(self._tenant, cursor, ChangeFilters(), now))

    def read_lists(self, shown: Shown) -> None:
        self.shown = dict(shown)

    def poll(self, now: datetime) -> bool:
        """Apply what has changed, and return whether there is more."""
        assert self.shown is not None
        since = self._since(self._cursor, now)
        assert not since.gap
        assert sum(map(len, since.cursor)) < 1_000
        self._cursor = since.cursor
        for change in since.changes:
            key = (change.kind.value, change.run_id or change.job_id)
            if change.version < self._versions.get(key, -1):
                continue
            self._versions[key] = change.version
            if change.kind is ChangeKind.RUN and change.run is not None:
                self.shown[key] = shown_run(change.run.run)
            elif change.job is not None:
                self.shown[key] = (change.job.status.value, str(change.job.edition))
            else:
                self.shown.pop(key, None)
        return since.has_more


class Clients:
    def __init__(self, tenant: str, chance: random.Random) -> None:
        self._tenant = tenant
        self._chance = chance
        self._new: list[Client] = []
        self._following: list[Client] = []

    def step(
        self, queries: ChangeQueries, now: datetime, lists: Shown | Callable[[], Shown]
    ) -> None:
        """Let some clients begin, read the lists, or ask for changes."""
        skew = timedelta(seconds=self._chance.uniform(-2, 2))
        for client in self._new:
            client.read_lists(lists() if callable(lists) else lists)
        self._following += self._new
        self._new = []
        if self._chance.random() < 0.5 and len(self._following) < MAX_FOLLOWERS:
            self._new.append(Client(queries, self._tenant, now + skew))
        for client in self._following:
            client.queries = queries
            if self._chance.random() < 0.4:
                client.poll(now + skew)

    def finish(self, queries: ChangeQueries, now: datetime, truth: Shown) -> int:
        for client in self._following:
            client.queries = queries
            for _ in range(1_000):
                if not client.poll(now):
                    break
            assert client.shown == truth, "a client of the feed shows something else than the lists"
        return len(self._following)
