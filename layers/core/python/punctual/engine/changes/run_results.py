"""What ended runs left: read from what their executors stored, until their history rows stand.

An executor stores what an attempt left before the swap that ends it. The history row, which
repeats it, follows the swap. A reader that meets a run in between finds it here.
"""

from collections.abc import Sequence
from datetime import datetime

from punctual.domain.run import Reason, Run
from punctual.engine.execution import output_packs
from punctual.engine.ports.blobs import Blobs
from punctual.engine.ports.history import History
from punctual.engine.ports.rows import TEXT, Detail, Key, RunKey
from punctual.engine.queries import run_views as views
from punctual.engine.queries.views import RunView

GONE = Detail(error="The executor stopped answering; whether it had finished is not known.")
_NOTHING = Detail()


class Results:
    def __init__(self, history: History, blobs: Blobs) -> None:
        self._history = history
        self._blobs = blobs

    def left_by(self, key: RunKey, run: Run, now: datetime) -> Detail:
        """Return what the last attempt of an ended run left, from what came before the swap."""
        told = told_by(run)
        if told is not None:
            return told
        left = self._history.end(key, run, now)
        if left is not None:
            return left
        return output_packs.find(self._blobs, Key(key.tenant, key.job_id), run) or _NOTHING

    def shown(self, found: Sequence[RunView], now: datetime) -> list[RunView]:
        """Return these runs of heads, each that has ended with what it left."""
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
    """Return what the ended run itself tells of what it left; None where it was stored."""
    if not run.token or not run.claimer:
        return _NOTHING
    if run.reason is Reason.LOST:
        return GONE
    if run.note:
        return Detail(output=run.note.encode(), output_type=TEXT)
    return None


def _key_of(view: RunView) -> RunKey:
    return RunKey(view.tenant, view.job_id, view.run.run_id)
