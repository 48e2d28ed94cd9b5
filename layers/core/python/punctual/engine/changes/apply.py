"""The four steps of every change, repeated in rounds until each swap is won.

Each round reads the clock once. A lost swap is a value: the next round reads and decides again.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from punctual.domain.job_state import JobState
from punctual.domain.run import Run
from punctual.engine.changes.change import Change, Result
from punctual.engine.changes.effects import Effects
from punctual.engine.changes.plan import first_per_job
from punctual.engine.changes.round import Round
from punctual.engine.changes.timer_placement import TimerPlacement, TimerWriter
from punctual.engine.clock import Clocks
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.log import Log
from punctual.engine.ports.notifications import Notifications
from punctual.engine.ports.partitions import Partitions
from punctual.engine.ports.run_queue import RunQueue
from punctual.engine.ports.timers import Timers
from punctual.engine.ports.wakeups import WakeUps

# One writer wins each round, but the same writer can lose many rounds. With eight equal writers,
# 24 losses in a row have a chance of (7/8)^24, about 1 in 25. A low limit would fail real requests.
MAX_SWAP_ATTEMPTS = 64


class ChangeApplier:
    """Applies changes to job states, a batch at a time.

    `transaction` is opened around the writes of each round. It is None if the store has no
    transactions.
    `holds_run` returns True for a run that this process holds, even if its lease looks expired.
    """

    def __init__(
        self,
        *,
        job_states: JobStates,
        timers: Timers,
        partitions: Partitions,
        history: History,
        run_queue: RunQueue,
        notifications: Notifications,
        wakeups: WakeUps,
        clock: Clock,
        steady: Callable[[], float],
        log: Log,
        transaction: AbstractContextManager[None] | None = None,
        holds_run: Callable[[Run], bool] | None = None,
    ) -> None:
        self.clocks = Clocks(clock, steady)
        self.timer_placement = TimerPlacement(partitions)
        self.timer_writer = TimerWriter(timers, self.timer_placement, self.clocks)
        self._round = Round(
            job_states=job_states,
            timers=timers,
            history=history,
            wakeups=wakeups,
            timer_placement=self.timer_placement,
            timer_writer=self.timer_writer,
            effects=Effects(
                history=history,
                run_queue=run_queue,
                notifications=notifications,
                wakeups=wakeups,
                log=log,
                transactional=transaction is not None,
            ),
            log=log,
            transaction=transaction,
            holds_run=holds_run,
        )
        self._log = log

    def log(self, event: str, **fields: object) -> None:
        self._log(event, **fields)

    def apply(self, changes: Sequence[Change]) -> list[Result]:
        """Decide and write each change. Changes of one job are applied one after another."""
        results: list[Result | None] = [None] * len(changes)
        attempts = [0] * len(changes)
        pending = list(range(len(changes)))
        while pending:
            first, later = first_per_job(pending, changes)
            reading = self.clocks.read()
            lost = self._round.apply(reading, first, changes, results)
            for index in lost:
                attempts[index] += 1
                if attempts[index] >= MAX_SWAP_ATTEMPTS:
                    results[index] = Result(None, effects_done=False, is_contended=True)
            pending = [index for index in lost if results[index] is None] + later
        return [result for result in results if result is not None]

    def create(self, new_jobs: Sequence[tuple[Change, JobState]]) -> list[Result]:
        """Write the states of new jobs, and fire those that are due at once.

        A result without a decision means a lost swap. The caller then reads the state again.
        """
        return self._round.create(self.clocks.read(), new_jobs)
