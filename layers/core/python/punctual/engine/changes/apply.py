"""The four steps of every change, repeated in rounds until each swap is won.

Each round reads the clock once. A lost swap is a value: the next round reads and decides again.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from punctual.domain.job_state import JobState
from punctual.domain.run import Run
from punctual.engine.changes.change import Change, Result
from punctual.engine.changes.effects import Effects
from punctual.engine.changes.plan import one_a_job
from punctual.engine.changes.round import Round
from punctual.engine.changes.timer_placement import TimerPlacement, TimerPuts
from punctual.engine.clock import Clocks
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.log import Log
from punctual.engine.ports.notifications import Notifications
from punctual.engine.ports.partitions import Buckets
from punctual.engine.ports.run_queue import Messages
from punctual.engine.ports.timers import Timers
from punctual.engine.ports.wakeups import WakeUps

# One writer wins each round, but the same writer can lose many rounds. In a test, eight processes
# requested a hundred runs of one job. One process lost 24 swaps in a row; the chance is 1 in 25.
TRIES = 64


class ChangeApplier:
    """Applies changes to job states, a batch at a time.

    `unit` is a transaction around the port calls of a round, if the adapter has transactions.
    `alive` returns True for a run that this process holds, even if its lease looks expired.
    """

    def __init__(
        self,
        *,
        heads: JobStates,
        timers: Timers,
        buckets: Buckets,
        history: History,
        messages: Messages,
        notices: Notifications,
        wake: WakeUps,
        clock: Clock,
        monotonic: Callable[[], float],
        log: Log,
        unit: AbstractContextManager[None] | None = None,
        alive: Callable[[Run], bool] | None = None,
    ) -> None:
        self.clocks = Clocks(clock, monotonic)
        self.placing = TimerPlacement(buckets)
        self.timers = TimerPuts(timers, self.placing, self.clocks)
        self._round = Round(
            heads=heads,
            timers=timers,
            history=history,
            wake=wake,
            placing=self.placing,
            timer_puts=self.timers,
            effects=Effects(
                history=history,
                messages=messages,
                notices=notices,
                wake=wake,
                log=log,
                together=unit is not None,
            ),
            log=log,
            unit=unit,
            alive=alive,
        )
        self._log = log

    def tell(self, event: str, **facts: object) -> None:
        self._log(event, **facts)

    def apply(self, changes: Sequence[Change]) -> list[Result]:
        """Decide and write each change. Changes of one job are applied one after another."""
        results: list[Result | None] = [None] * len(changes)
        tries = [0] * len(changes)
        pending = list(range(len(changes)))
        while pending:
            first, later = one_a_job(pending, changes)
            begun = self.clocks.read()
            lost = self._round.apply(begun, first, changes, results)
            for index in lost:
                tries[index] += 1
                if tries[index] >= TRIES:
                    results[index] = Result(None, effects_done=False, contended=True)
            pending = [index for index in lost if results[index] is None] + later
        return [result for result in results if result is not None]

    def create(self, new: Sequence[tuple[Change, JobState]]) -> list[Result]:
        """Write the states of new jobs, and fire those that are due at once.

        A result without a decision means a lost swap. The caller then reads the state again.
        """
        return self._round.create(self.clocks.read(), new)
