"""The evaluator: it evaluates the jobs that timers name."""

from collections.abc import Sequence
from datetime import timedelta

from punctual.domain.events import Evaluate
from punctual.domain.identifiers import new_write_ids
from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.changes.change import Change, Result
from punctual.engine.ports.clock import NewId
from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.timers import Timer


class Evaluator:
    """Evaluates jobs: loads their states, decides, and applies what follows."""

    def __init__(self, applier: ChangeApplier, new_id: NewId) -> None:
        self._applier = applier
        self._new_id = new_id

    def evaluate_timers(
        self, timers: Sequence[Timer], fire_ahead: timedelta = timedelta(0)
    ) -> list[tuple[Sequence[Timer], Result]]:
        """Evaluate each job once, however many of its timers are due."""
        by_key: dict[JobKey, list[Timer]] = {}
        for timer in timers:
            by_key.setdefault(timer.key, []).append(timer)
        changes = [
            Change(
                key, Evaluate(), write_id, trigger_timers=tuple(job_timers), fire_ahead=fire_ahead
            )
            for (key, job_timers), write_id in zip(
                by_key.items(), new_write_ids(self._new_id, len(by_key)), strict=True
            )
        ]
        results = self._applier.apply(changes)
        return [
            (change.trigger_timers, result) for change, result in zip(changes, results, strict=True)
        ]

    def log(self, event: str, **fields: object) -> None:
        self._applier.log(event, **fields)

    def evaluate_jobs(self, keys: Sequence[JobKey]) -> list[Result]:
        """Evaluate jobs without a timer. An unreadable state fails only its own evaluation."""
        write_ids = new_write_ids(self._new_id, len(keys))
        return self._applier.apply(
            [
                Change(key, Evaluate(), write_id, isolates_failure=True)
                for key, write_id in zip(keys, write_ids, strict=True)
            ]
        )
