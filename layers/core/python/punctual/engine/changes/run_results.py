"""The results of ended runs, before their history rows are written.

An executor stores the result of an attempt before the swap that ends it. The history row follows
the swap and repeats the result. A reader that needs a run in between finds its result here.
"""

from collections.abc import Sequence
from datetime import datetime

from punctual.domain.run import Reason, Run
from punctual.engine.ports.history import History
from punctual.engine.ports.rows import TEXT, Detail, Key, RunKey
from punctual.engine.queries import run_views as views
from punctual.engine.queries.views import RunView

GONE = Detail(error="The executor stopped answering; whether it had finished is not known.")
UNREADABLE = Detail(error="What the run left behind cannot be read.")
_NOTHING = Detail()


def output_key(key: Key, run_id: str, attempt: int) -> str:
    """Return the key of the object that holds the output of an attempt.

    >>> output_key(Key("acme", "0190-job"), "0190-run", 1)
    'outputs/acme/0190-job/0190-run/1'
    """
    return f"outputs/{key.tenant}/{key.job_id}/{run_id}/{attempt}"


def log_key(key: Key, run_id: str, attempt: int) -> str:
    """Return the key of the object that holds the log of an attempt.

    >>> log_key(Key("acme", "0190-job"), "0190-run", 2)
    'logs/acme/0190-job/0190-run/2'
    """
    return f"logs/{key.tenant}/{key.job_id}/{run_id}/{attempt}"


class Results:
    def __init__(self, history: History) -> None:
        self._history = history

    def left_by(self, key: RunKey, run: Run, now: datetime) -> Detail:
        """Return the result of an ended run's last attempt, as stored before the swap."""
        told = told_by(run)
        if told is not None:
            return told
        return self._history.end(key, run, now) or _NOTHING

    def shown(self, found: Sequence[RunView], now: datetime) -> list[RunView]:
        """Return these runs of job states. Each ended run carries its result."""
        ended = [_key_of(view) for view in found if view.run.ended_at is not None]
        rows = self._history.get(ended, now) if ended else {}
        shown = []
        for view in found:
            key = _key_of(view)
            if key in rows:
                view = views.of_row(rows[key])
            elif view.run.ended_at is not None:
                view = view._replace(detail=self.left_by(key, view.run, now))
            shown.append(view)
        return shown


def told_by(run: Run) -> Detail | None:
    """Return the result that the ended run itself holds, or None if it is stored apart."""
    if not run.token or not run.claimer:
        return _NOTHING
    if run.reason is Reason.LOST:
        return GONE
    if run.note:
        return Detail(output=run.note.encode(), output_type=TEXT)
    return None


def _key_of(view: RunView) -> RunKey:
    return RunKey(view.tenant, view.job_id, view.run.run_id)
