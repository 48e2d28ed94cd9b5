"""The evaluator: it evaluates the jobs that timers name."""

from collections.abc import Sequence
from datetime import timedelta

from punctual.domain.events import Evaluate
from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.changes.change import Change, Result
from punctual.engine.changes.write_ids import marks
from punctual.engine.ports.clock import NewId
from punctual.engine.ports.rows import Key
from punctual.engine.ports.timers import Timer


class Evaluator:
    """Evaluates jobs: loads their states, decides, and applies what follows."""

    def __init__(self, steps: ChangeApplier, new_id: NewId) -> None:
        self._steps = steps
        self._new_id = new_id

    def look(
        self, timers: Sequence[Timer], ahead: timedelta = timedelta(0)
    ) -> list[tuple[Sequence[Timer], Result]]:
        """Evaluate each job once, however many of its timers are due."""
        by_key: dict[Key, list[Timer]] = {}
        for timer in timers:
            by_key.setdefault(timer.key, []).append(timer)
        changes = [
            Change(key, Evaluate(), writer, brought=tuple(brought), ahead=ahead)
            for (key, brought), writer in zip(
                by_key.items(), marks(self._new_id, len(by_key)), strict=True
            )
        ]
        results = self._steps.apply(changes)
        return [(change.brought, result) for change, result in zip(changes, results, strict=True)]

    def tell(self, event: str, **facts: object) -> None:
        self._steps.tell(event, **facts)

    def look_at(self, keys: Sequence[Key]) -> list[Result]:
        """Evaluate jobs without a timer. An unreadable state fails only its own evaluation."""
        writers = marks(self._new_id, len(keys))
        return self._steps.apply(
            [
                Change(key, Evaluate(), writer, spared=True)
                for key, writer in zip(keys, writers, strict=True)
            ]
        )
