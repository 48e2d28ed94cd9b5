"""Accept jobs in batches. The jobs of a batch are stored or refused separately."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from punctual.domain.errors import FieldError, Invalid, NameTaken, PunctualError, Unavailable
from punctual.domain.events import Evaluate
from punctual.domain.identifiers import write_id_of
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.schedules.schedule import next_after
from punctual.domain.transitions.commands import first_planned_until
from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.changes.change import Change
from punctual.engine.commands.artifacts import Artifacts, WantedArtifact, wanted_artifact
from punctual.engine.commands.audit import JOB_CREATE
from punctual.engine.commands.definition import compile_definition
from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.commands.idempotency import IdempotencyKeys, Submission
from punctual.engine.commands.job_names import JobNames, NameClaim, held_name
from punctual.engine.ports.audit_log import Actor, Note
from punctual.engine.ports.blobs import Blob
from punctual.engine.ports.clock import Clock, NewId
from punctual.engine.ports.job_states import JobStates, Swap
from punctual.engine.ports.quotas import QuotaGrant, Quotas
from punctual.engine.ports.rows import DefinitionRow, JobKey
from punctual.engine.ports.timers import Timer
from punctual.engine.ports.wakeups import WakeUps
from punctual.engine.queries.views import JobView
from punctual.engine.quotas.limits import starts_run_at_once, too_many_jobs, too_many_runs

MAX_CREATE_TRIES = 6
_NO_LEASES: Mapping[str, Any] = {}


class _NewJob(NamedTuple):
    """A job to create.

    If its time is in the future, `state` is the state that `decide` would make.
    """

    position: int  # of its submission in the batch
    state: JobState
    definition: DefinitionRow
    blob: Blob | None  # the payload, if it is large
    write_id: str
    note: Note | None

    @property
    def key(self) -> JobKey:
        return JobKey(self.state.tenant, self.state.job_id)

    @property
    def name_claim(self) -> NameClaim | None:
        """Return the name that no other recurring job may have, or None for a one-time job."""
        name = held_name(self.state.kind, self.state.status, self.definition.name)
        return None if name is None else NameClaim(self.key, name)

    @property
    def wanted_artifact(self) -> WantedArtifact | None:
        return wanted_artifact(self.state.job_id, self.definition.document)

    @property
    def is_planned(self) -> bool:
        return self.state.timer_at is not None

    def to_view(self, state: JobState) -> JobView:
        """Return the view from the request data, without a read of the stored row."""
        if self.blob is None:
            return JobView(state, self.definition)
        return JobView(state, replace(self.definition, payload=msgspec.json.decode(self.blob.data)))


class JobSubmission:
    """Creates jobs."""

    def __init__(
        self,
        *,
        job_states: JobStates,
        wakeups: WakeUps,
        applier: ChangeApplier,
        definitions: Definitions,
        idempotency_keys: IdempotencyKeys,
        clock: Clock,
        new_id: NewId,
        quotas: Quotas,
        names: JobNames,
        artifacts: Artifacts | None = None,
    ) -> None:
        self._artifacts = artifacts
        self._names = names
        self._job_states = job_states
        self._wakeups = wakeups
        self._applier = applier
        self._definitions = definitions
        self._idempotency_keys = idempotency_keys
        self._clock = clock
        self._new_id = new_id
        self._quotas = quotas

    def submit(
        self, tenant: str, caller: str, submissions: Sequence[Submission], actor: Actor | None
    ) -> list[JobView | PunctualError]:
        now = self._clock()  # the time of the request, however long it takes from here
        note = None if actor is None else Note(actor, JOB_CREATE, now)
        answers: list[JobView | PunctualError | None] = [None] * len(submissions)
        new_ids = [self._new_id() for _ in submissions]
        new_jobs: list[_NewJob] = []
        repeated: list[tuple[int, JobKey]] = []
        for position, id_or_error in enumerate(self._job_ids(tenant, submissions, new_ids, now)):
            if isinstance(id_or_error, PunctualError):
                answers[position] = id_or_error
            elif id_or_error != new_ids[position]:
                repeated.append((position, JobKey(tenant, id_or_error)))
            else:
                submission, write_id = submissions[position], write_id_of(id_or_error)
                new_jobs.append(
                    self._build_job(
                        position, tenant, caller, id_or_error, submission, write_id, note, now
                    )
                )
        stored_by_key = self._job_states.load([key for _, key in repeated]) if repeated else {}
        for position, key in repeated:
            stored = stored_by_key.get(key)
            if stored is None or stored.state.is_blank:  # the first request crashed before its swap
                submission, write_id = submissions[position], write_id_of(new_ids[position])
                new_jobs.append(
                    self._build_job(
                        position, tenant, caller, key.job_id, submission, write_id, note, now
                    )
                )
            else:
                answers[position] = self._load_view(key, stored.state)
        new_jobs = self._with_artifacts(tenant, new_jobs, answers)
        self._create(self._within_quotas(tenant, new_jobs, answers), answers)
        return [answer for answer in answers if answer is not None]

    def find_repeated(self, tenant: str, idempotency_key: str, fingerprint: str) -> JobView | None:
        """Return the job that an earlier request with this key created, or None.

        The same request may be invalid now because its time has passed.
        """
        job_id = self._idempotency_keys.find_id(tenant, idempotency_key, fingerprint, self._clock())
        if job_id is None:
            return None
        key = JobKey(tenant, job_id)
        stored = self._job_states.load([key]).get(key)
        return (
            None if stored is None or stored.state.is_blank else self._load_view(key, stored.state)
        )

    def _with_artifacts(
        self, tenant: str, jobs: list[_NewJob], answers: list[JobView | PunctualError | None]
    ) -> list[_NewJob]:
        """Return the jobs that need no artifact, or may use theirs. The uses are noted."""
        uses = [use for job in jobs if (use := job.wanted_artifact) is not None]
        if self._artifacts is None or not uses:
            return jobs
        problems = self._artifacts.use(tenant, uses)
        for job in jobs:
            problem = problems.get(job.key.job_id)
            if problem is not None:
                answers[job.position] = Invalid.of(FieldError("task.artifact_id", problem))
        return [job for job in jobs if job.key.job_id not in problems]

    def _within_quotas(
        self, tenant: str, jobs: list[_NewJob], answers: list[JobView | PunctualError | None]
    ) -> list[_NewJob]:
        """Return the jobs that the quotas of the tenant allow, the first ones first.

        Jobs of repeated requests do not count.
        """
        if not jobs:
            return jobs
        jobs.sort(key=lambda job: job.position)
        allowed = self._quotas.available_jobs(tenant, len(jobs))
        for job in jobs[allowed:]:
            answers[job.position] = too_many_jobs()
        immediate_jobs = [
            job
            for job in jobs[:allowed]
            if starts_run_at_once(job.state.schedule, job.state.created_at)
        ]
        grant = (
            self._quotas.take_run_requests(tenant, len(immediate_jobs))
            if immediate_jobs
            else QuotaGrant(0)
        )
        refused_positions = {job.position for job in immediate_jobs[grant.number :]}
        for position in refused_positions:
            answers[position] = too_many_runs(grant.retry_after_seconds)
        return [job for job in jobs[:allowed] if job.position not in refused_positions]

    def _job_ids(
        self, tenant: str, submissions: Sequence[Submission], new_ids: Sequence[str], now: datetime
    ) -> Sequence[str | PunctualError]:
        if all(submission.idempotency_key is None for submission in submissions):
            return new_ids
        return self._idempotency_keys.resolve_ids(
            tenant,
            [
                (submission.idempotency_key, submission.fingerprint, new_id)
                for submission, new_id in zip(submissions, new_ids, strict=True)
            ],
            now,
        )

    def _load_view(self, key: JobKey, state: JobState) -> JobView:
        job_and_ref = (key, state.current_rules.definition_ref)
        return JobView(
            state,
            self._definitions.with_payload(
                self._job_states.load_definitions([job_and_ref])[job_and_ref]
            ),
        )

    def _build_job(
        self,
        position: int,
        tenant: str,
        caller: str,
        job_id: str,
        submission: Submission,
        write_id: str,
        note: Note | None,
        now: datetime,
    ) -> _NewJob:
        """Return a job to create. A job due in the future needs no decision before its timer."""
        ref = f"1-{write_id}"
        compiled = compile_definition(submission.document, job_id, ref, now)
        planned_until = first_planned_until(compiled.schedule, now, now)
        next_at = next_after(compiled.schedule, planned_until)
        due_at = next_at
        if next_at is not None and compiled.limits.jitter_ms:
            due_at = next_at + compiled.limits.jitter
        is_planned = due_at is not None and due_at > now
        state = JobState(  # positional, since keyword arguments cost five times as much
            tenant,
            job_id,
            1 if is_planned else 0,  # version
            1,  # edition
            1,  # definition
            JobStatus.SCHEDULED,
            compiled.kind,
            now,
            now,
            compiled.schedule,
            {1: compiled.rules},
            compiled.limits,
            planned_until,
            next_at,
            timer_at=due_at if is_planned else None,
            write_ids=(write_id,) if is_planned else (),
            notify=compiled.notify,
        )
        definition, blob = self._definitions.build_row(
            JobKey(tenant, job_id), submission.document, ref, 1, now, caller
        )
        return _NewJob(position, state, definition, blob, write_id, note)

    def _create(
        self, jobs: Sequence[_NewJob], answers: list[JobView | PunctualError | None]
    ) -> None:
        jobs, later_jobs = _first_of_each_name(jobs)
        self._create_with_names(self._with_names(jobs, answers), answers)
        for job, first_job in later_jobs:
            answers[job.position] = _refusal_after(first_job, answers[first_job.position])

    def _create_with_names(
        self, jobs: Sequence[_NewJob], answers: list[JobView | PunctualError | None]
    ) -> None:
        """Store jobs after their names are taken, each by a swap from the version that was read."""
        self._definitions.put([(job.definition, job.blob) for job in jobs])
        lost = self._create_planned([job for job in jobs if job.is_planned], answers)
        pending = [job for job in jobs if not job.is_planned] + self._rebase(lost, answers)
        for _ in range(MAX_CREATE_TRIES):
            if not pending:
                return
            pending = self._rebase(self._create_due(pending, answers), answers)
        for job in pending:
            answers[job.position] = Unavailable("The job could not be stored: try again.")

    def _with_names(
        self, jobs: Sequence[_NewJob], answers: list[JobView | PunctualError | None]
    ) -> list[_NewJob]:
        """Take the names of recurring jobs. Return the jobs that may have theirs."""
        claims = {job.position: claim for job in jobs if (claim := job.name_claim) is not None}
        if not claims:
            return list(jobs)
        now = jobs[0].state.created_at
        errors = dict(zip(claims, self._names.take(list(claims.values()), now), strict=True))
        for position, error in errors.items():
            if error is not None:
                answers[position] = error
        return [job for job in jobs if errors.get(job.position) is None]

    def _create_planned(
        self, jobs: Sequence[_NewJob], answers: list[JobView | PunctualError | None]
    ) -> list[_NewJob]:
        """Put timers, then swap job states. Return the jobs with a lost swap.

        The job state names its timer, so no further step follows.
        """
        if not jobs:
            return []
        placement, clock_reading = self._applier.timer_placement, self._applier.clocks.read()
        timers: Sequence[Timer] = [
            placement.timer(job.key, job.state.timer_at, 1, clock_reading.wall)
            for job in jobs
            if job.state.timer_at is not None
        ]
        timers = self._applier.timer_writer.put(timers, clock_reading)
        swapped = self._job_states.swap(
            [Swap(job.state, 0, _NO_LEASES, _NO_LEASES, job.note) for job in jobs]
        )
        lost = []
        for job, is_stored in zip(jobs, swapped, strict=True):
            if is_stored:
                answers[job.position] = job.to_view(job.state)
            else:
                lost.append(job)
        self._wakeups.notify_new_timers(timers)
        return lost

    def _create_due(
        self, jobs: Sequence[_NewJob], answers: list[JobView | PunctualError | None]
    ) -> list[_NewJob]:
        """Create jobs that are due now and fire them in the same swap. Return the lost ones."""
        results = self._applier.create(
            [
                (
                    Change(
                        job.key, Evaluate(), job.write_id, needs_fallback_timer=True, note=job.note
                    ),
                    job.state,
                )
                for job in jobs
            ]
        )
        lost = []
        for job, result in zip(jobs, results, strict=True):
            if result.decision is None:
                lost.append(job)
            else:
                answers[job.position] = job.to_view(result.decision.state)
        return lost

    def _rebase(
        self, lost: Sequence[_NewJob], answers: list[JobView | PunctualError | None]
    ) -> list[_NewJob]:
        """Return the lost jobs at the version of their row, with their names taken again.

        A blank row may hold the place, because a timer was evaluated before the creation, or
        because another job takes the name.
        """
        if not lost:
            return []
        keys = [job.key for job in lost]
        stored_by_key = self._job_states.load(keys)
        rebased = []
        for job, key in zip(lost, keys, strict=True):
            stored = stored_by_key.get(key)
            if stored is not None and not stored.state.is_blank:
                answers[job.position] = self._load_view(key, stored.state)
            else:
                version = 0 if stored is None else stored.state.version
                state = replace(job.state, version=version, timer_at=None, write_ids=())
                rebased.append(job._replace(state=state))
        return self._with_names(rebased, answers)


def _first_of_each_name(
    jobs: Sequence[_NewJob],
) -> tuple[list[_NewJob], list[tuple[_NewJob, _NewJob]]]:
    """Split off the later jobs of each name, each with the first job of its name."""
    first_jobs: list[_NewJob] = []
    later_jobs: list[tuple[_NewJob, _NewJob]] = []
    jobs_by_name: dict[str, _NewJob] = {}
    for job in jobs:
        claim = job.name_claim
        first_job = job if claim is None else jobs_by_name.setdefault(claim.name, job)
        if first_job is job:
            first_jobs.append(job)
        else:
            later_jobs.append((job, first_job))
    return first_jobs, later_jobs


def _refusal_after(first_job: _NewJob, answer: JobView | PunctualError | None) -> PunctualError:
    """Return the error of a job after an earlier job of its batch has asked for its name."""
    if isinstance(answer, PunctualError):
        return answer
    return NameTaken(first_job.definition.name, first_job.state.job_id)
