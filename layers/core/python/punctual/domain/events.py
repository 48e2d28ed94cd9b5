"""The events that `decide` accepts. It answers each event in every job state."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from punctual.domain.job_state import JobLimits, MisfirePolicy, Rules, ScheduleKind
from punctual.domain.run import Lease, RunStatus, Trigger
from punctual.domain.schedules.schedule import Schedule


class Evaluate(Struct, frozen=True, gc=False):
    """Process what is due. `trigger_times` holds the times of the timers that caused it."""

    leases: Mapping[str, Lease] = {}
    trigger_times: tuple[datetime, ...] = ()
    fire_ahead_until: datetime | None = None  # fire ahead up to this time


class Claim(Struct, frozen=True, gc=False):
    run_id: str
    executor_id: str
    nonce: str
    starts_later: bool = False  # a container: CLAIMED now, RUNNING after its start
    hands_over_scripts: bool = False  # the same for a script that a detached runner takes
    function_memory_mb: int | None = None  # scripts that ask for more run in containers


class Started(Struct, frozen=True, gc=False):
    """The work of a claimed run has started. A `runner_id` binds the claim to this runner."""

    run_id: str
    token: int
    runner_id: str = ""


class Finish(Struct, frozen=True, gc=False):
    """The attempt ended. None as `runner_id` stands for the executor that made the claim."""

    run_id: str
    token: int
    status: RunStatus
    retryable: bool = True
    inline_output: str = ""  # a few bytes of output, stored in the run itself
    runner_id: str | None = None


class ReturnClaim(Struct, frozen=True, gc=False):
    """The holder returns a run. With `work_begun`, the work may have had effects.

    With `with_delay`, no executor can start the run for now. With `never_started`, the machine
    lacked a resource, and the holder proves that nothing started. The run then waits after every
    return, also with AT_MOST_ONCE. With `at_once` it is queued without this wait. With
    `lacks_resources` it waits for room: no place, memory or processor was free. With
    `start_failed` the platform was asked and started nothing. After 30 of these the run fails.
    """

    run_id: str
    token: int
    work_begun: bool = True
    with_delay: bool = False
    never_started: bool = False
    at_once: bool = False
    runner_id: str | None = None
    lacks_resources: bool = False
    start_failed: bool = False


class DeadLetter(Struct, frozen=True, gc=False):
    """The message of the run was received too often.

    `version` is the version of the swap that sent it. A message from before the last claim is
    stale.
    """

    run_id: str
    version: int | None = None


class Pause(Struct, frozen=True, gc=False):
    """Pause the job, or change `until` and `note` of its pause.

    An operation acts on a job once. A repeat of its event changes nothing.
    """

    until: datetime | None = None
    note: str = ""
    operation_id: str = ""
    by: str = ""


class Resume(Struct, frozen=True, gc=False):
    misfire: MisfirePolicy | None = None
    operation_id: str = ""


class Cancel(Struct, frozen=True, gc=False):
    pass


class CancelRun(Struct, frozen=True, gc=False):
    run_id: str


class Update(Struct, frozen=True, gc=False):
    """Put a new definition in force. `schedule` is None if the schedule does not change."""

    kind: ScheduleKind
    rules: Rules
    limits: JobLimits
    schedule: Schedule | None = None
    requested_at: datetime | None = None  # when the request arrived; processing may take long
    notify: str = ""


class StartRun(Struct, frozen=True, gc=False):
    """A person requests one run: run-now, or a retry of an ended run."""

    run_id: str
    trigger: Trigger = Trigger.RUN_NOW
    has_own_payload: bool = False
    retried_from: str = ""
    scheduled_at: datetime | None = None  # a retry keeps the nominal time
    has_idempotency_key: bool = False  # another request with the same key may have used the id


class Backfill(Struct, frozen=True, gc=False):
    """A person requests occurrences that did not run, as pairs (run id, nominal time)."""

    runs: tuple[tuple[str, datetime], ...]


Event = (
    Evaluate
    | Claim
    | Started
    | Finish
    | ReturnClaim
    | DeadLetter
    | Pause
    | Resume
    | Cancel
    | CancelRun
    | Update
    | StartRun
    | Backfill
)
