"""What may happen to a job. `decide` answers each, whatever the head says."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from punctual.domain.job_state import Kind, Limits, Misfire, Rules
from punctual.domain.run import Lease, RunStatus, Trigger
from punctual.domain.schedules.schedule import Schedule


class Evaluate(Struct, frozen=True, gc=False):
    """See what is due. `brought` are the moments of the timers that ask for it."""

    leases: Mapping[str, Lease] = {}
    brought: tuple[datetime, ...] = ()
    horizon: datetime | None = None  # fire ahead up to here


class Claim(Struct, frozen=True, gc=False):
    run_id: str
    claimer: str
    nonce: str
    staged: bool = False  # a container: claimed now, running when it has started


class Started(Struct, frozen=True, gc=False):
    """A claimed container runs."""

    run_id: str
    token: int


class Finish(Struct, frozen=True, gc=False):
    run_id: str
    token: int
    status: RunStatus
    retryable: bool = True
    note: str = ""  # a few bytes of output, kept with the run itself


class ReturnClaim(Struct, frozen=True, gc=False):
    """The holder gives a run back; `begun` when the work may have had effects.

    `waits`: it could not be begun, nor could it anywhere else for now. `unstarted`: the machine
    lacked what a start needs, and the holder proves that nothing was started. Then the run waits
    however often that happens, with AT_MOST_ONCE as well.
    """

    run_id: str
    token: int
    begun: bool = True
    waits: bool = False
    unstarted: bool = False


class DeadLetter(Struct, frozen=True, gc=False):
    """The run's message came back too often to be tried again.

    `version` is that of the swap which sent it: one from before the last claim says nothing.
    """

    run_id: str
    version: int | None = None


class Pause(Struct, frozen=True, gc=False):
    pass


class Resume(Struct, frozen=True, gc=False):
    missed: Misfire | None = None


class Cancel(Struct, frozen=True, gc=False):
    pass


class CancelRun(Struct, frozen=True, gc=False):
    run_id: str


class Update(Struct, frozen=True, gc=False):
    """A new definition; `schedule` is None where the schedule stays as it is."""

    kind: Kind
    rules: Rules
    limits: Limits
    schedule: Schedule | None = None
    asked_at: datetime | None = None  # when the request came, which may take its time
    notify: str = ""


class StartRun(Struct, frozen=True, gc=False):
    """A person asks for one run: run-now, or a retry of one that ended."""

    run_id: str
    trigger: Trigger = Trigger.RUN_NOW
    own_payload: bool = False
    retried_from: str = ""
    scheduled_at: datetime | None = None  # a retry keeps the nominal time
    keyed: bool = False  # by an id that another request with the same key may have used


class Backfill(Struct, frozen=True, gc=False):
    """A person asks for occurrences that did not run: (run id, nominal time) each."""

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
