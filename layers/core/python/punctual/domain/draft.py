"""The mutable copy of a job state that one decision works on."""

from datetime import datetime, timedelta

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.job_state import JobState, JobStatus, Rules
from punctual.domain.operations.memory import without_old
from punctual.domain.run import TIMED_WAIT_REASONS, Lease, Reason, Run, WaitingRun

MAX_WRITE_IDS = 4
# Reasons of entries that stand for many occurrences.
CATCH_UP_REASONS = frozenset({Reason.COALESCED, Reason.OUTAGE, Reason.PAUSED})


class Draft:
    """The changes of one decision. Code outside `domain` never sees a draft."""

    __slots__ = (
        "catch_up",
        "definition",
        "edition",
        "ended_attempts",
        "kind",
        "latest_not_run_id",
        "latest_run_id",
        "leases",
        "limits",
        "next_at",
        "notify",
        "now",
        "operation_memory",
        "original",
        "pause",
        "planned_until",
        "required_leases",
        "rules",
        "run_ids_to_stop",
        "runs",
        "runs_to_send",
        "schedule",
        "settled_ahead",
        "started_runs",
        "status",
        "unrecorded",
        "updated_at",
        "wait_queue",
    )

    def __init__(self, state: JobState, now: datetime) -> None:
        self.original = state
        self.now = now
        self.status = state.status
        self.kind = state.kind
        self.edition = state.edition
        self.definition = state.definition
        self.updated_at = state.updated_at
        self.schedule = state.schedule
        self.rules = state.rules
        self.limits = state.limits
        self.notify = state.notify
        self.planned_until = state.planned_until
        self.settled_ahead = state.settled_ahead
        self.next_at = state.next_at
        self.started_runs = state.started_runs
        self.catch_up = state.catch_up
        self.pause = state.pause
        self.operation_memory = state.operation_memory
        self.latest_run_id = state.latest_run_id
        self.latest_not_run_id = state.latest_not_run_id
        self.runs = list(state.runs)
        self.wait_queue = list(state.wait_queue)
        self.unrecorded = list(state.unrecorded)
        self.runs_to_send: list[Run] = []
        self.run_ids_to_stop: list[str] = []
        self.ended_attempts: list[tuple[Run, str]] = []
        self.leases: dict[str, Lease | None] = {}
        self.required_leases: dict[str, Lease] = {}

    @property
    def jitter(self) -> timedelta:
        return self.limits.jitter

    def find_run(self, run_id: str) -> Run | None:
        for run in self.runs:
            if run.run_id == run_id:
                return run
        return None

    def rules_of(self, definition: int) -> Rules:
        return self.rules[definition]

    def put_run(self, run: Run) -> None:
        """Replace the run with the same id, or append the run."""
        for index, other in enumerate(self.runs):
            if other.run_id == run.run_id:
                self.runs[index] = run
                return
        self.runs.append(run)

    def remove_run(self, run_id: str) -> None:
        self.runs = [run for run in self.runs if run.run_id != run_id]

    def unset_latest(self, run_id: str) -> None:
        """Make the newest live run `latest_run_id` if `run_id` was it and did not run."""
        live_runs: list[Run | WaitingRun] = [*self.runs, *self.wait_queue]
        if self.latest_run_id == run_id and live_runs:
            self.latest_run_id = max(live_runs, key=lambda run: run.created_at).run_id

    def settle_ahead(self, scheduled_at: datetime) -> None:
        """Remember an occurrence of the future that needs no run any more, and forget past ones."""
        times = {*self.settled_ahead, scheduled_at}
        self.settled_ahead = tuple(sorted(at for at in times if at > self.now))

    def mark_client_change(self) -> None:
        self.edition += 1
        self.updated_at = self.now

    def freeze(
        self, write_id: str, unrecorded: tuple[Run, ...], trigger_times: tuple[datetime, ...]
    ) -> tuple[JobState, datetime | None]:
        """Return the new job state and the time of the timer to put.

        The state is the old object if nothing changed. The time is None if no timer is needed.
        """
        original = self.original
        timer_at = self._next_evaluation_at(trigger_times)
        previous_timer_at = self.original.timer_at
        if (
            previous_timer_at is not None
            and previous_timer_at in trigger_times
            and previous_timer_at != timer_at
        ):
            previous_timer_at = None
        put_timer_at = (
            None
            if timer_at is None or timer_at == previous_timer_at or timer_at in trigger_times
            else timer_at
        )
        is_obviously_changed = (
            self.status is not original.status
            or len(self.runs) != len(original.runs)
            or len(self.unrecorded) != len(original.unrecorded)
        )
        all_unrecorded = tuple(self.unrecorded)
        if not is_obviously_changed and original == self._build(
            timer_at, original.version, all_unrecorded, original.write_ids
        ):
            return original, put_timer_at
        self.operation_memory = without_old(self.operation_memory, self.now)
        write_ids = (*original.write_ids[1 - MAX_WRITE_IDS :], write_id)
        return self._build(timer_at, original.version + 1, unrecorded, write_ids), put_timer_at

    def _build(
        self,
        timer_at: datetime | None,
        version: int,
        unrecorded: tuple[Run, ...],
        write_ids: tuple[str, ...],
    ) -> JobState:
        original = self.original
        is_over = (
            not self.runs
            and not self.wait_queue
            and self.status in (JobStatus.COMPLETED, JobStatus.CANCELLED)
        )
        return JobState(
            tenant=original.tenant,
            job_id=original.job_id,
            version=version,
            edition=self.edition,
            definition=self.definition,
            status=self.status,
            kind=self.kind,
            created_at=original.created_at,
            updated_at=self.updated_at,
            schedule=self.schedule,
            rules=self._rules_in_use(),
            limits=self.limits,
            planned_until=self.planned_until,
            settled_ahead=self.settled_ahead,
            next_at=self.next_at,
            started_runs=self.started_runs,
            runs=tuple(self.runs),
            wait_queue=tuple(self.wait_queue),
            unrecorded=unrecorded,
            latest_run_id=self.latest_run_id,
            latest_not_run_id=self.latest_not_run_id,
            catch_up=self.catch_up,
            pause=self.pause,
            timer_at=timer_at,
            write_ids=write_ids,
            ended_at=(original.ended_at or self.now) if is_over else None,
            notify=self.notify,
            operation_memory=self.operation_memory,
        )

    def _rules_in_use(self) -> dict[int, Rules]:
        if len(self.rules) == 1:
            return self.rules
        definitions = {run.definition for run in self.runs} | {
            waiting.definition for waiting in self.wait_queue
        }
        definitions.add(self.definition)
        return {key: value for key, value in self.rules.items() if key in definitions}

    def without_recorded(self, recorded_run_ids: frozenset[str]) -> tuple[Run, ...]:
        """Return the ended runs without a history row."""
        if not recorded_run_ids:
            return tuple(self.unrecorded)
        return tuple([run for run in self.unrecorded if run.run_id not in recorded_run_ids])

    def runs_ready_to_record(self, unrecorded: tuple[Run, ...]) -> tuple[Run, ...]:
        """Return the runs to write to the history now.

        A growing entry is written once, after the catch-up.
        """
        if self.catch_up is None:
            return unrecorded
        return tuple([run for run in unrecorded if not self.is_growing(run)])

    def growing_entries(self, unrecorded: tuple[Run, ...]) -> tuple[Run, ...]:
        """Return the entries that a later decision of the catch-up may extend."""
        if self.catch_up is None:
            return ()
        return tuple([run for run in unrecorded if self.is_growing(run)])

    def is_growing(self, run: Run) -> bool:
        """Return whether the run may be an entry of an unfinished catch-up."""
        catch_up = self.original.catch_up or self.catch_up
        return catch_up is not None and run.last_at is not None and run.reason in CATCH_UP_REASONS

    def _immediate_timer_at(self, trigger_times: tuple[datetime, ...]) -> datetime:
        """Return now, or the past time of an outstanding timer, which saves a new timer."""
        previous_timer_at = self.original.timer_at
        if (
            previous_timer_at is None
            or previous_timer_at > self.now
            or previous_timer_at in trigger_times
        ):
            return self.now
        return previous_timer_at

    def _next_evaluation_at(self, trigger_times: tuple[datetime, ...]) -> datetime | None:
        """Return the time of the next evaluation, or None if the job needs none."""
        if not (self.runs or self.wait_queue or self.next_at or self.catch_up or self.pause):
            return None
        times: list[datetime] = []
        if self.pause is not None and self.pause.until is not None:
            times.append(self.pause.until)
        if self.status is JobStatus.SCHEDULED:
            if self.catch_up is not None:
                times.append(self._immediate_timer_at(trigger_times))
            elif self.next_at is not None:
                times.append(self.next_at + self.limits.jitter)
        for run in self.runs:
            if run.next_at is not None and run.reason in TIMED_WAIT_REASONS:
                times.append(run.next_at)
            if run.can_miss_deadline and (deadline_at := self.deadline_of(run)) is not None:
                times.append(deadline_at)
        for waiting in self.wait_queue:
            if (deadline_at := self.deadline_of(waiting)) is not None:
                times.append(deadline_at)
        return min(times, default=None)

    def deadline_of(self, run: Run | WaitingRun) -> datetime | None:
        """Return the last moment at which the run may start."""
        seconds = self.rules[run.definition].deadline_seconds
        return None if seconds is None else run.due_at + timedelta(seconds=seconds)


def job_expires_at(state: JobState) -> datetime | None:
    """Return when an ended job may be deleted, or None for a job that has not ended."""
    return None if state.ended_at is None else state.ended_at + HISTORY_RETENTION
