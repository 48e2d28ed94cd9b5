"""Which occurrences of a past range did not run."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice

from punctual.domain.errors import FieldError, Invalid
from punctual.domain.head import Head
from punctual.domain.placement import derived_id, occurrence_id
from punctual.domain.run import NOT_RUN
from punctual.domain.schedule import Every, occurrences
from punctual.engine.ports import Key, Ports, RunKey

MOST = 1_000
COUNTED = 100_000
_INSTANT = timedelta(microseconds=1)


class Backfilling:
    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def missing(
        self, key: Key, head: Head, start: datetime, end: datetime, now: datetime
    ) -> Sequence[tuple[str, datetime]]:
        """The nominal times in [start, end) that neither ran nor are alive, each with a run id.

        The id derives from the time, so that the same backfill asked twice makes one run of each.
        """
        schedule = head.schedule
        if isinstance(schedule, Every) and schedule.from_completion:
            raise Invalid.of(
                FieldError("from", "an interval that counts from completion has no past times")
            )
        if end > now:
            raise Invalid.of(FieldError("to", "must not be in the future"))
        if schedule is None or end <= start:
            return []
        times = list(islice(occurrences(schedule, start - _INSTANT, end - _INSTANT), COUNTED + 1))
        if len(times) > MOST * 10:
            raise _too_many(len(times))
        ids = {at: occurrence_id(key.job_id, at) for at in times}
        taken, _ = self._ids_of_runs(key, head, ids.values(), now)
        missing = self._unfilled(key, head, [at for at in times if ids[at] not in taken], now)
        if len(missing) > MOST:
            raise _too_many(len(missing))
        return missing

    def _unfilled(
        self, key: Key, head: Head, times: Sequence[datetime], now: datetime
    ) -> Sequence[tuple[str, datetime]]:
        """Those that no earlier backfill ran; one that was MISSED is made again, with a new id."""
        free: list[tuple[str, datetime]] = []
        again = 0
        while times:
            ids = {at: backfill_id(key.job_id, at, again) for at in times}
            taken, missed = self._ids_of_runs(key, head, ids.values(), now)
            free += [(ids[at], at) for at in times if ids[at] not in taken | missed]
            times = [at for at in times if ids[at] in missed]
            again += 1
        return sorted(free, key=lambda found: found[1])

    def _ids_of_runs(
        self, key: Key, head: Head, ids: Iterable[str], now: datetime
    ) -> tuple[set[str], set[str]]:
        """Which of these are runs that ran or will, and which are of those that did not."""
        taken = {run.run_id for run in head.runs} | {waiting.run_id for waiting in head.line}
        taken |= {run.run_id for run in head.ended if run.status not in NOT_RUN}
        missed = {run.run_id for run in head.ended if run.status in NOT_RUN}
        for row in self._ports.history.get([RunKey(*key, run_id) for run_id in ids], now).values():
            (missed if row.run.status in NOT_RUN else taken).add(row.run.run_id)
        return taken, missed


def backfill_id(job_id: str, at: datetime, again: int) -> str:
    """The run that makes up for an occurrence, the first time or a later one."""
    return derived_id(at, job_id, "backfill", at.isoformat(), str(again))


def _too_many(count: int) -> Invalid:
    number = f"more than {COUNTED}" if count > COUNTED else str(count)
    return Invalid.of(
        FieldError("to", f"the range holds {number} occurrences, {MOST} can be run at once")
    )
