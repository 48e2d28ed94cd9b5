"""The results of ended runs, before their history rows are written.

An executor stores the result of an attempt before the swap that ends it. The history row follows
the swap and repeats the result. A reader that needs a run in between finds its result here.
"""

from collections.abc import Sequence
from datetime import datetime

from punctual.domain.run import Reason, Run
from punctual.engine.ports.blobs import TEXT_CONTENT_TYPE
from punctual.engine.ports.history import History
from punctual.engine.ports.rows import NO_DETAIL, Detail, JobKey, RunKey
from punctual.engine.queries import run_views
from punctual.engine.queries.views import RunView

LOST_RUN_DETAIL = Detail(
    error="The executor stopped answering; whether it had finished is not known."
)
MISSING_UPLOAD_ERROR = "The output that the executor announced was not uploaded."
UNREADABLE_RUN_DETAIL = Detail(error="The result of the run cannot be read.")


def output_key(key: JobKey, run_id: str, attempt: int) -> str:
    """Return the key of the object that holds the output of an attempt.

    >>> output_key(JobKey("acme", "0190-job"), "0190-run", 1)
    'outputs/acme/0190-job/0190-run/1'
    """
    return f"{run_outputs_folder(key, run_id)}{attempt}"


def run_outputs_folder(key: JobKey, run_id: str) -> str:
    """Return the folder of the outputs of a run.

    >>> run_outputs_folder(JobKey("acme", "0190-job"), "0190-run")
    'outputs/acme/0190-job/0190-run/'
    """
    return f"outputs/{key.tenant}/{key.job_id}/{run_id}/"


def log_key(key: JobKey, run_id: str, attempt: int) -> str:
    """Return the key of the object that holds the log of an attempt.

    >>> log_key(JobKey("acme", "0190-job"), "0190-run", 2)
    'logs/acme/0190-job/0190-run/2'
    """
    return f"logs/{key.tenant}/{key.job_id}/{run_id}/{attempt}"


def log_parts_folder(key: JobKey, run_id: str, attempt: int) -> str:
    """Return the folder of the parts of a log that grows.

    >>> log_parts_folder(JobKey("acme", "0190-job"), "0190-run", 2)
    'logs/acme/0190-job/0190-run/2.parts/'
    """
    return f"{log_key(key, run_id, attempt)}.parts/"


def log_part_key(folder: str, token: int, number: int) -> str:
    """Return the key of a part of the log of one claim.

    >>> log_part_key("logs/acme/0190-job/0190-run/2.parts/", 7, 0)
    'logs/acme/0190-job/0190-run/2.parts/7-00'
    """
    return f"{folder}{token}-{number:02}"


class RunResults:
    """Reads the results of ended runs."""

    def __init__(self, history: History) -> None:
        self._history = history

    def stored_result(self, key: RunKey, run: Run, now: datetime) -> Detail:
        """Return the result of an ended run's last attempt, as stored before the swap."""
        detail = result_in_run(run)
        if detail is not None:
            return detail
        return self._history.find_result(key, run, now) or NO_DETAIL

    def with_results(self, views: Sequence[RunView], now: datetime) -> list[RunView]:
        """Return these runs of job states. Each ended run carries its result."""
        ended_keys = [_run_key(view) for view in views if view.run.ended_at is not None]
        rows = self._history.get(ended_keys, now) if ended_keys else {}
        completed = []
        for view in views:
            key = _run_key(view)
            if key in rows:
                view = run_views.view_of_row(rows[key])
            elif view.run.ended_at is not None:
                view = view._replace(detail=self.stored_result(key, view.run, now))
            completed.append(view)
        return completed


def result_in_run(run: Run) -> Detail | None:
    """Return the result that the ended run itself holds, or None if it is stored apart."""
    if not run.token or not run.executor_id:
        return NO_DETAIL
    if run.reason is Reason.LOST:
        return LOST_RUN_DETAIL
    if run.inline_output:
        return Detail(output=run.inline_output.encode(), output_type=TEXT_CONTENT_TYPE)
    return None


def _run_key(view: RunView) -> RunKey:
    return RunKey(view.tenant, view.job_id, view.run.run_id)
