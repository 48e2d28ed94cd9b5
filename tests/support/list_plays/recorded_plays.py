"""The writes of several random plays of one tenant, merged by time.

A play changes one job. Lists need several, so some plays are merged. Their jobs know nothing of
each other, as in an installation.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from heapq import merge
from typing import NamedTuple

from punctual.domain.run import Run
from punctual.engine.ports.job_states import StoredState
from punctual.engine.ports.rows import DefinitionRow, Detail, JobKey, RunKey, RunRow
from tests.support.simulation.invariants import Recorded, Swapped
from tests.support.simulation.memory import Memory
from tests.support.simulation.random_plays import random_play
from tests.support.simulation.random_stories import random_story

MAX_FAULTS = (0, 1, 2, 5)
_IDS_OF_A_PLAY = 100_000
Write = Swapped | Recorded


class RecordedPlays(NamedTuple):
    memories: Sequence[Memory]
    writes: Sequence[Write]

    @property
    def definitions(self) -> list[DefinitionRow]:
        return [
            definition
            for memory in self.memories
            for definition in memory.job_states._definitions.values()
        ]


def recorded_plays(story_seeds: Sequence[int]) -> RecordedPlays:
    """Play these random stories with faults, and return all their writes.

    They are plays that `test_random_plays.py` also makes. So a broken law shows there.
    """
    memories, writes = [], []
    for number, seed in enumerate(story_seeds, start=1):
        play = random_play(random_story(seed), seed, MAX_FAULTS[seed % len(MAX_FAULTS)])
        world = play._replace(setup={**play.setup, "first_id": number * _IDS_OF_A_PLAY}).play()
        memories.append(world.memory)
        writes.append(world.invariants.writes)
    return RecordedPlays(memories, list(merge(*writes, key=lambda write: write.at)))


class Truth:
    """The job states and the history at a point of the plays."""

    def __init__(self) -> None:
        self.states: dict[JobKey, StoredState] = {}
        self.rows: dict[RunKey, RunRow] = {}
        self.ended: dict[JobKey, dict[str, Run]] = {}  # by id, in the order of their ends
        self.final_rows: dict[RunKey, RunRow] = {}

    @classmethod
    def of(cls, plays: RecordedPlays) -> "Truth":
        """Return the truth before the first write of these plays."""
        truth = cls()
        for memory in plays.memories:
            truth.final_rows |= memory.history.rows
        return truth

    def clear(self) -> None:
        """Forget all jobs and runs, because they have expired."""
        self.states.clear()
        self.rows.clear()
        self.ended.clear()

    def row(self, key: JobKey, run_id: str) -> RunRow:
        """Return the history row of a run, also of one that is not written yet."""
        return self.final_rows[RunKey(*key, run_id)]

    def apply(self, write: Write) -> None:
        if isinstance(write, Recorded):
            row = write.row
            self.rows[RunKey(row.tenant, row.job_id, row.run.run_id)] = row
            return
        state = write.new.state
        key = JobKey(state.tenant, state.job_id)
        self.states[key] = write.new
        ended = self.ended.setdefault(key, {})
        for run in state.unrecorded:
            ended[run.run_id] = run  # a growing entry keeps its place


class HistoryThen:
    """The history as it was at a time. The results of attempts are those of the end."""

    def __init__(self, plays: RecordedPlays, truth: Truth) -> None:
        self._memories = plays.memories
        self._truth = truth

    def get(self, keys: Sequence[RunKey], now: datetime) -> Mapping[RunKey, RunRow]:
        return {key: self._truth.rows[key] for key in keys if key in self._truth.rows}

    def find_result(self, key: RunKey, run: Run, now: datetime) -> Detail | None:
        for memory in self._memories:
            detail = memory.history.find_result(key, run, now)
            if detail is not None:
                return detail
        return None
