"""The operation of the change feed, its answers and their descriptions."""

from typing import Annotated, Literal

from pydantic import Field

from punctual.domain.job_state import JobStatus, ScheduleKind
from punctual.engine.ports.lists.change_feed import MAX_SHOWN_RUN_IDS, ChangeKind
from punctual.web.openapi.answers import Count, Id, JobPause, ListedRun, ResponseModel, Time
from punctual.web.openapi.bulk.answers import OperationAnswer
from punctual.web.openapi.operation import UUID_SCHEMA, Operation, Parameter, Response, enum_schema
from punctual.web.routes.changes_read import MAX_WAIT_SECONDS


class ChangedJob(ResponseModel):
    job_id: Id
    name: str
    status: JobStatus
    schedule_type: ScheduleKind
    pause: JobPause | None
    next_run_time: Time | None
    live_run_ids: list[Id]
    waiting_runs: Count
    updated_at: Time
    version: Annotated[int, Field(ge=1)]


class Change(ResponseModel):
    kind: Literal["job", "run", "operation"]
    state_version: Count
    at: Time
    job_id: Id | None = None
    run_id: Id | None = None
    job: ChangedJob | None = None
    run: ListedRun | None = None
    operation: OperationAnswer | None = None


class ChangePage(ResponseModel):
    changes: list[Change]
    next_cursor: Annotated[str, Field(pattern="^[A-Za-z0-9_-]+$")]
    gap: bool
    poll_seconds: Count


CHANGE_MODELS = (ChangePage,)

CHANGE_DESCRIPTIONS = {
    "ChangedJob": {
        "job_id": "The id of the job.",
        "name": "The name of the job.",
        "status": "The status of the job.",
        "schedule_type": "The kind of schedule.",
        "pause": "The pause of a PAUSED job, else null.",
        "next_run_time": "The next occurrence.",
        "live_run_ids": f"The runs that are queued or running, at most {MAX_SHOWN_RUN_IDS}.",
        "waiting_runs": "The number of runs in the wait queue.",
        "updated_at": "The time of the last change by a client.",
        "version": "The version of the definition; the ETag of the job.",
    },
    "Change": {
        "kind": "What has changed: the field of this name holds its state after the change.",
        "state_version": (
            "Grows with each change of a job and its runs. Of two entries of one run or one job, "
            "the one with the higher version is newer. An equal version is a repeat."
        ),
        "at": "The time of the change.",
        "job_id": "The changed job, or the job of the changed run.",
        "run_id": "The changed run.",
        "job": "The job in a short form. It is null once the job is forgotten.",
        "run": (
            "The run, as in lists. It is null if the run was taken back before it was due. A run "
            "may come here up to a minute before its `due_time`; lists show it from then on."
        ),
        "operation": "The operation on many jobs or runs. Its `errors` are left out here.",
    },
    "ChangePage": {
        "changes": "The changes, those of one run in order. An answer holds a job only once.",
        "next_cursor": "The `after` of the next call.",
        "gap": (
            "True if changes are missing, because the cursor is older than 24 h or unknown. Read "
            "the lists again, and go on from `next_cursor`."
        ),
        "poll_seconds": "After so many seconds, ask again. 0 means at once.",
    },
}

CHANGE_OPERATIONS = (
    Operation(
        "GET /changes",
        "listChanges",
        "Changes",
        "Read what has changed since a cursor",
        {200: Response("The changes of jobs, runs and operations since the cursor.", "ChangePage")},
        "Ask without `after` first, then read the lists, then ask again and again. A client that "
        "applies all changes, and drops versions that it has, shows what the lists show. On AWS a "
        "change may come twice.",
        (
            Parameter(
                "after",
                {"type": "string", "pattern": "^[A-Za-z0-9_-]*$"},
                "The `next_cursor` of the answer before. Without it, the answer is the cursor of "
                "now, without changes.",
            ),
            Parameter("job_id", UUID_SCHEMA, "Only the changes of this job and its runs."),
            Parameter("run_id", UUID_SCHEMA, "Only the changes of this run."),
            Parameter(
                "kind", enum_schema(*ChangeKind), "Only changes of these kinds.", is_repeatable=True
            ),
            Parameter(
                "wait_seconds",
                {"type": "integer", "minimum": 0, "maximum": MAX_WAIT_SECONDS, "default": 0},
                "Wait for the next change, for at most so long. On AWS the answer comes at once.",
            ),
        ),
    ),
)
