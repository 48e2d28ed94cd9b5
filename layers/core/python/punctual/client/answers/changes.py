"""Answers of the change feed."""

from punctual.client.answers.operations import Operation
from punctual.client.job import Pause
from punctual.client.model import AwareDatetime, Model
from punctual.client.run import Run


class ChangedJob(Model, frozen=True, kw_only=True):
    """A job in the short form of the feed."""

    job_id: str
    name: str
    status: str
    schedule_type: str = ""
    pause: Pause | None = None
    next_run_time: AwareDatetime | None = None
    live_run_ids: tuple[str, ...] = ()
    waiting_runs: int = 0
    updated_at: AwareDatetime | None = None
    version: int = 1


class Change(Model, frozen=True, kw_only=True):
    """A job, a run or an operation after a change. The field named by `kind` holds it.

    The kind `gap` comes from this client: changes are missing, so read the lists again.
    """

    kind: str
    state_version: int = 0
    at: AwareDatetime | None = None
    job_id: str | None = None
    run_id: str | None = None
    job: ChangedJob | None = None  # None if the job is forgotten
    run: Run | None = None  # None if the run was taken back before it was due
    operation: Operation | None = None  # without its errors


class ChangePage(Model, frozen=True, kw_only=True):
    """Changes, and the cursor to go on from."""

    changes: tuple[Change, ...] = ()
    next_cursor: str
    gap: bool = False
    poll_seconds: float = 0
