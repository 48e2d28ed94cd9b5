"""The node's store under the writes of random plays: transactions fail, and the process restarts.

On the node the end of a run and its history row share one transaction.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from punctual.domain.job_state import JobState
from punctual.domain.run import Run
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.rows import JobKey, RunKey, RunRow
from punctual.engine.queries.changes import ChangeQueries
from punctual.engine.queries.runs.merged_runs import MergedRuns
from punctual.node.sqlite.store import Store
from tests.support.builders import ManualClock
from tests.support.list_plays.recorded_plays import RecordedPlays, Truth
from tests.support.simulation.invariants import Swapped
from tests.support.simulation.world import START

ROLLBACK_PROBABILITY = 0.1
RESTART_PROBABILITY = 0.05


class NodePlay:
    def __init__(self, plays: RecordedPlays, seed: int, folder: Path) -> None:
        self.chance = random.Random(f"node {seed}")
        self.clock = ManualClock(START)
        self.truth = Truth.of(plays)
        self.rollbacks = self.restarts = 0
        self._final_rows = self.truth.final_rows
        self._folder = folder
        self.store = Store.open(folder, self.clock)
        self.store.job_states.put_definitions(plays.definitions)

    @property
    def run_index(self) -> MergedRuns:
        return MergedRuns(self.store.job_states, self.store.history)

    @property
    def change_queries(self) -> ChangeQueries:
        return ChangeQueries(self.store.changes, self.store.job_states, self.store.history)

    def write(self, writes: Sequence[Swapped]) -> None:
        """Commit some writes together. Before that they may fail and leave no trace."""
        self.clock.now = max([self.clock.now, *(write.at for write in writes)])
        if self.chance.random() < ROLLBACK_PROBABILITY:
            self.rollbacks += 1
            with pytest.raises(ZeroDivisionError):
                self._fail(writes)
        with self.store.transaction():
            self._apply(writes)
        for write in writes:
            self.truth.apply(write)
        if self.chance.random() < RESTART_PROBABILITY:
            self.restarts += 1
            self.store.close()
            self.store = Store.open(self._folder, self.clock)

    def _fail(self, writes: Sequence[Swapped]) -> None:
        with self.store.transaction():
            self._apply(writes)
            raise ZeroDivisionError

    def _apply(self, writes: Sequence[Swapped]) -> None:
        for write in writes:
            state = write.new.state
            version = 0 if write.old is None else write.old.state.version
            assert self.store.job_states.swap([Swap(state, version)]) == [True]
            before = () if write.old is None else write.old.state.unrecorded
            rows = [self._row(state, run) for run in state.unrecorded if run not in before]
            self.store.history.put_runs([row for row in rows if row is not None])

    def _row(self, state: JobState, run: Run) -> RunRow | None:
        """Return the history row of a run that ends now, or None for an entry that still grows."""
        row = self._final_rows[RunKey(*JobKey(state.tenant, state.job_id), run.run_id)]
        return row if row.run.occurrence_count == run.occurrence_count else None
