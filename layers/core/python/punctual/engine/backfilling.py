"""Which occurrences of a past range did not run."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice

from punctual.domain.errors import FieldError, Invalid
from punctual.domain.head import Head
from punctual.domain.placement import occurrence_id
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
    ) -> Sequence[datetime]:
        """The nominal times in [start, end) whose occurrence neither ran nor is alive."""
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
        alive = {run.run_id for run in head.runs} | {waiting.run_id for waiting in head.line}
        alive |= {run.run_id for run in head.ended if run.status not in NOT_RUN}
        ids = {at: occurrence_id(key.job_id, at) for at in times}
        rows = self._ports.history.get([RunKey(*key, run_id) for run_id in ids.values()], now)
        ran = {row.run.run_id for row in rows.values() if row.run.status not in NOT_RUN}
        missing = [at for at in times if ids[at] not in alive and ids[at] not in ran]
        if len(missing) > MOST:
            raise _too_many(len(missing))
        return missing


def _too_many(count: int) -> Invalid:
    number = f"more than {COUNTED}" if count > COUNTED else str(count)
    return Invalid.of(
        FieldError("to", f"the range holds {number} occurrences, {MOST} can be run at once")
    )
