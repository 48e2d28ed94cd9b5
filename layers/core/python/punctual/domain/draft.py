"""The mutable copy of a job state that one decision works on."""

from datetime import datetime, timedelta

from punctual.domain.durations import RETENTION
from punctual.domain.job_state import JobState, JobStatus, Rules
from punctual.domain.run import Lease, Reason, Run, WaitingRun

WRITERS = 4
# Reasons of entries that stand for many occurrences.
CAUGHT_UP = frozenset({Reason.COALESCED, Reason.OUTAGE, Reason.PAUSED})


class Draft:
    """The changes of one decision. Code outside `domain` never sees a draft."""

    __slots__ = (
        "attempts",
        "behind",
        "definition",
        "edition",
        "ended",
        "head",
        "kills",
        "kind",
        "latest",
        "latest_not_run",
        "leases",
        "limits",
        "line",
        "mark",
        "next_at",
        "notify",
        "now",
        "required",
        "rules",
        "runs",
        "schedule",
        "sends",
        "started",
        "state",
        "updated_at",
    )

    def __init__(self, head: JobState, now: datetime) -> None:
        self.head = head
        self.now = now
        self.state = head.state
        self.kind = head.kind
        self.edition = head.edition
        self.definition = head.definition
        self.updated_at = head.updated_at
        self.schedule = head.schedule
        self.rules = head.rules
        self.limits = head.limits
        self.notify = head.notify
        self.mark = head.mark
        self.next_at = head.next_at
        self.started = head.started
        self.behind = head.behind
        self.latest = head.latest
        self.latest_not_run = head.latest_not_run
        self.runs = list(head.runs)
        self.line = list(head.line)
        self.ended = list(head.ended)
        self.sends: list[Run] = []
        self.kills: list[str] = []
        self.attempts: list[tuple[Run, str]] = []
        self.leases: dict[str, Lease | None] = {}
        self.required: dict[str, Lease] = {}

    @property
    def jitter(self) -> timedelta:
        return self.limits.jitter

    def run(self, run_id: str) -> Run | None:
        for run in self.runs:
            if run.run_id == run_id:
                return run
        return None

    def rules_of(self, definition: int) -> Rules:
        return self.rules[definition]

    def put(self, run: Run) -> None:
        """Replace the run with the same id, or append the run."""
        for index, other in enumerate(self.runs):
            if other.run_id == run.run_id:
                self.runs[index] = run
                return
        self.runs.append(run)

    def remove(self, run_id: str) -> None:
        self.runs = [run for run in self.runs if run.run_id != run_id]

    def not_latest(self, run_id: str) -> None:
        """Make the newest live run `latest` if `run_id` was it and did not run."""
        alive: list[Run | WaitingRun] = [*self.runs, *self.line]
        if self.latest == run_id and alive:
            self.latest = max(alive, key=lambda run: run.created_at).run_id

    def client_changed(self) -> None:
        self.edition += 1
        self.updated_at = self.now

    def freeze(
        self, writer: str, ended: tuple[Run, ...], timers_gone: tuple[datetime, ...]
    ) -> tuple[JobState, datetime | None]:
        """Return the new job state and the time of the timer to put.

        The state is the old object if nothing changed. The time is None if no timer is needed.
        """
        old = self.head
        wanted = self._next_look(timers_gone)
        carried = self.head.timer_at
        if carried is not None and carried in timers_gone and carried != wanted:
            carried = None
        timer = None if wanted is None or wanted == carried or wanted in timers_gone else wanted
        moved = (
            self.state is not old.state
            or len(self.runs) != len(old.runs)
            or len(self.ended) != len(old.ended)
        )
        all_ended = tuple(self.ended)
        if not moved and old == self._build(wanted, old.version, all_ended, old.writers):
            return old, timer
        writers = (*old.writers[1 - WRITERS :], writer)
        return self._build(wanted, old.version + 1, ended, writers), timer

    def _build(
        self,
        timer_at: datetime | None,
        version: int,
        ended: tuple[Run, ...],
        writers: tuple[str, ...],
    ) -> JobState:
        old = self.head
        over = (
            not self.runs
            and not self.line
            and self.state in (JobStatus.COMPLETED, JobStatus.CANCELLED)
        )
        return JobState(
            tenant=old.tenant,
            job_id=old.job_id,
            version=version,
            edition=self.edition,
            definition=self.definition,
            state=self.state,
            kind=self.kind,
            created_at=old.created_at,
            updated_at=self.updated_at,
            schedule=self.schedule,
            rules=self._rules_in_use(),
            limits=self.limits,
            mark=self.mark,
            next_at=self.next_at,
            started=self.started,
            runs=tuple(self.runs),
            line=tuple(self.line),
            ended=ended,
            latest=self.latest,
            latest_not_run=self.latest_not_run,
            behind=self.behind,
            timer_at=timer_at,
            writers=writers,
            ended_at=(old.ended_at or self.now) if over else None,
            notify=self.notify,
        )

    def _rules_in_use(self) -> dict[int, Rules]:
        if len(self.rules) == 1:
            return self.rules
        used = {run.definition for run in self.runs} | {waiting.definition for waiting in self.line}
        used.add(self.definition)
        return {key: value for key, value in self.rules.items() if key in used}

    def unrecorded(self, recorded: frozenset[str]) -> tuple[Run, ...]:
        """Return the ended runs without a history row."""
        if not recorded:
            return tuple(self.ended)
        return tuple([run for run in self.ended if run.run_id not in recorded])

    def to_record(self, unrecorded: tuple[Run, ...]) -> tuple[Run, ...]:
        """Return the runs to write to the history now.

        A growing entry is written once, after the catch-up.
        """
        if self.behind is None:
            return unrecorded
        return tuple([run for run in unrecorded if not self.is_growing(run)])

    def growing(self, unrecorded: tuple[Run, ...]) -> tuple[Run, ...]:
        """Return the entries that a later decision of the catch-up may extend."""
        if self.behind is None:
            return ()
        return tuple([run for run in unrecorded if self.is_growing(run)])

    def is_growing(self, run: Run) -> bool:
        """Return whether the run may be an entry of an unfinished catch-up."""
        behind = self.head.behind or self.behind
        return behind is not None and run.last_at is not None and run.reason in CAUGHT_UP

    def _at_once(self, timers_gone: tuple[datetime, ...]) -> datetime:
        """Return now, or the past time of an outstanding timer, which saves a new timer."""
        carried = self.head.timer_at
        if carried is None or carried > self.now or carried in timers_gone:
            return self.now
        return carried

    def _next_look(self, timers_gone: tuple[datetime, ...]) -> datetime | None:
        """Return the time of the next evaluation, or None if the job needs none."""
        if not self.runs and not self.line and self.next_at is None and self.behind is None:
            return None
        moments: list[datetime] = []
        if self.state is JobStatus.SCHEDULED:
            if self.behind is not None:
                moments.append(self._at_once(timers_gone))
            elif self.next_at is not None:
                moments.append(self.next_at + self.limits.jitter)
        for run in self.runs:
            if run.reason is Reason.BACKOFF and run.next_at is not None:
                moments.append(run.next_at)
            elif run.started_at is None and (limit := self.deadline_of(run)) is not None:
                moments.append(limit)
        for waiting in self.line:
            if (limit := self.deadline_of(waiting)) is not None:
                moments.append(limit)
        return min(moments, default=None)

    def deadline_of(self, run: Run | WaitingRun) -> datetime | None:
        """Return the last moment at which the run may start."""
        seconds = self.rules[run.definition].deadline_seconds
        return None if seconds is None else run.due_at + timedelta(seconds=seconds)


def expires_at(head: JobState) -> datetime | None:
    """Return when an ended job may be deleted, or None for a job that has not ended."""
    return None if head.ended_at is None else head.ended_at + RETENTION
