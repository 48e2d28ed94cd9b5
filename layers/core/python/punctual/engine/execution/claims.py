"""The calls of external executors: renew, finish and upload by a signed claim.

The claim is the only right of such an executor. A claim that is forged, or that no longer holds
its run, gets the answer LOST and changes nothing. The executor that hands out a claim first puts a
timer for the end of its lease. This timer also completes the effects of an end after a crash.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from punctual.domain.claims import ClaimIdentity, OutputUpload
from punctual.domain.decide import Verdict
from punctual.domain.errors import Conflict, Unavailable
from punctual.domain.job_state import JobState
from punctual.domain.run import LOST_LETTER, Progress, Reason, Run, RunStatus
from punctual.engine.changes.change import Result
from punctual.engine.changes.plan import load_states
from punctual.engine.changes.run_results import MISSING_UPLOAD_ERROR, output_key
from punctual.engine.execution.executor import (
    Executor,
    FinishedAttempt,
    RenewalResult,
    StartedAttempt,
)
from punctual.engine.execution.log_parts import (
    LogOfClaim,
    LogText,
    append_to_logs,
    leftover_parts,
    merge_log,
)
from punctual.engine.ports.blobs import Blob, Blobs
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.log import Log
from punctual.engine.ports.rows import DefinitionRow, Detail, JobKey, RunKey

MAX_LOGS_MERGED_AT_ONCE = 4
RELEASED = "RELEASED"  # the status of a run that its executor has not begun
FINISH_STATUSES = (
    *(
        status.value
        for status in (
            RunStatus.SUCCESS,
            RunStatus.FAILED,
            RunStatus.TIMED_OUT,
            RunStatus.CANCELLED,
        )
    ),
    RELEASED,
)
_CLAIM_LOST_MESSAGE = "The claim does not hold its run: stop the work, nothing of it counts."


class ClaimStatus(StrEnum):
    OK = "OK"
    CANCEL = "CANCEL"  # stop the work, and finish as CANCELLED
    LOST = "LOST"  # stop the work: nothing that this claim sends counts


class ClaimLost(Conflict):
    code = "CLAIM_LOST"


class ClaimReader(Protocol):
    """Reads signed texts. None means that this installation did not sign the text."""

    def read(self, text: str) -> ClaimIdentity | None: ...

    def sign_upload(self, claim: ClaimIdentity, upload: OutputUpload) -> str: ...

    def read_upload(self, claim: ClaimIdentity, text: str) -> OutputUpload | None: ...


class ClaimRenewal(NamedTuple):
    """A renewal with the text that was logged since the last one, as UTF-8."""

    claim: str
    runner_id: str = ""
    has_started: bool = False
    log: bytes = b""
    log_offset: int = 0
    progress: Progress | None = None


class RenewalAnswer(NamedTuple):
    status: ClaimStatus
    lease_until: datetime | None = None


class ClaimFinish(NamedTuple):
    """The end of an attempt. Its status is one of `FINISH_STATUSES`."""

    claim: str
    status: str
    runner_id: str = ""
    output: bytes = b""
    output_type: str = ""
    output_upload: str = ""  # as the upload call returned it
    output_truncated: bool = False
    error: str = ""
    retryable: bool = True
    exit_code: int | None = None
    log: bytes = b""
    log_offset: int = 0
    logs_truncated: bool = False


class UploadAnswer(NamedTuple):
    url: str
    headers: Mapping[str, str]
    output_upload: str


class _Ending(NamedTuple):
    """A held attempt to finish, and its place in the batch."""

    place: int
    finish: ClaimFinish
    claim: ClaimIdentity
    state: JobState
    run: Run


class _EndedAttempt(NamedTuple):
    """The end of an attempt, the blobs to store before the swap, and those to delete after it."""

    finished: FinishedAttempt
    blobs: Sequence[Blob]
    obsolete_names: Sequence[str]


class Claims:
    def __init__(
        self,
        *,
        executor: Executor,
        job_states: JobStates,
        history: History,
        blobs: Blobs,
        reader: ClaimReader,
        clock: Clock,
        log: Log,
    ) -> None:
        self._executor = executor
        self._job_states = job_states
        self._history = history
        self._blobs = blobs
        self._reader = reader
        self._clock = clock
        self._log = log

    # Renewals

    def renew(self, renewals: Sequence[ClaimRenewal]) -> list[RenewalAnswer]:
        """Renew leases, bind claims to their runners, and store what was logged."""
        answers = [RenewalAnswer(ClaimStatus.LOST)] * len(renewals)
        claims = [
            (place, renewal, claim)
            for place, renewal in enumerate(renewals)
            if (claim := self._reader.read(renewal.claim)) is not None
        ]
        results = self._renew_leases(
            [claim for _, _, claim in claims], [renewal.progress for _, renewal, _ in claims]
        )
        starting: list[tuple[int, StartedAttempt]] = []
        for (place, renewal, claim), result in zip(claims, results, strict=True):
            run = result.run
            if run is None or not result.is_held or not run.is_bound_to(renewal.runner_id):
                continue
            answers[place] = _renewal_answer(result)
            if _has_to_start(run, renewal):
                started = StartedAttempt(
                    key_of(claim), claim.run_id, claim.token, renewal.runner_id
                )
                starting.append((place, started))
        started_results = self._executor.start([started for _, started in starting])
        for (place, _), started_result in zip(starting, started_results, strict=True):
            if not _is_accepted(started_result):
                answers[place] = RenewalAnswer(ClaimStatus.LOST)
        texts = [
            LogText(_log_of(claim), renewal.log_offset, renewal.log)
            for place, renewal, claim in claims
            if renewal.log and answers[place].status is not ClaimStatus.LOST
        ]
        append_to_logs(self._blobs, texts)
        return answers

    def _renew_leases(
        self, claims: Sequence[ClaimIdentity], progress: Sequence[Progress | None]
    ) -> list[RenewalResult]:
        """Renew each lease for the time that its claim names. Most claims name the same."""
        results: dict[int, RenewalResult] = {}
        for seconds in {claim.lease_seconds for claim in claims}:
            places = [place for place, claim in enumerate(claims) if claim.lease_seconds == seconds]
            leases = [
                (key_of(claims[place]), claims[place].run_id, claims[place].token)
                for place in places
            ]
            renewed = self._executor.renew(
                leases,
                lease=timedelta(seconds=seconds),
                progress=[progress[place] for place in places],
            )
            results.update(zip(places, renewed, strict=True))
        return [results[place] for place in range(len(claims))]

    # Ends

    def finish(self, finishes: Sequence[ClaimFinish]) -> list[ClaimStatus]:
        """Record how attempts ended. The same end again gets the same answer."""
        claims = [self._reader.read(finish.claim) for finish in finishes]
        states = self._load_states([key_of(claim) for claim in claims if claim is not None])
        answers = [ClaimStatus.LOST] * len(finishes)
        ending: list[_Ending] = []
        refused: list[int] = []
        for place, (finish, claim) in enumerate(zip(finishes, claims, strict=True)):
            state = None if claim is None else states.get(key_of(claim))
            if claim is None:
                continue
            run = None if state is None else _held_run(state, claim, finish.runner_id)
            if state is None or run is None:
                answers[place] = self._repeated_answer(claim, finish, state)
            elif finish.status != RELEASED:
                ending.append(_Ending(place, finish, claim, state, run))
            elif self._release(claim, finish):
                answers[place] = ClaimStatus.OK
            else:
                refused.append(place)
        for group in _groups(ending):
            for place, is_accepted in self._end(group):
                if is_accepted:
                    answers[place] = ClaimStatus.OK
                else:
                    refused.append(place)
        for place in refused:  # the same end may have won since the states were read
            claim = claims[place]
            assert claim is not None
            state = self._load_states([key_of(claim)]).get(key_of(claim))
            answers[place] = self._repeated_answer(claim, finishes[place], state)
        return answers

    def _release(self, claim: ClaimIdentity, finish: ClaimFinish) -> bool:
        return _is_accepted(
            self._executor.release_claim(key_of(claim), claim.run_id, claim.token, finish.runner_id)
        )

    def _end(self, ending: Sequence[_Ending]) -> list[tuple[int, bool]]:
        """Store outputs and logs, then swap. Return which attempts this call has ended.

        A claim that is lost in between leaves only blobs of its own attempt.
        """
        refs = [
            (key_of(end.claim), end.state.rules[end.run.definition].definition_ref)
            for end in ending
        ]
        definitions = self._job_states.load_definitions(refs)
        ended = [
            self._ended_attempt(end, definitions.get(ref))
            for end, ref in zip(ending, refs, strict=True)
        ]
        self._put_blobs([blob for attempt in ended for blob in attempt.blobs])
        results = self._executor.finish([attempt.finished for attempt in ended], True)
        accepted = [_is_accepted(result) for result in results]
        self._delete_blobs(
            [
                name
                for attempt, is_accepted in zip(ended, accepted, strict=True)
                if is_accepted
                for name in attempt.obsolete_names
            ]
        )
        return [(end.place, is_accepted) for end, is_accepted in zip(ending, accepted, strict=True)]

    def _ended_attempt(self, end: _Ending, definition: DefinitionRow | None) -> _EndedAttempt:
        finish, claim, status = end.finish, end.claim, RunStatus(end.finish.status)
        detail = Detail(error=finish.error, exit_code=finish.exit_code)
        blobs: list[Blob] = []
        if definition is not None and definition.document.get("output") == "discard":
            detail = replace(detail, discarded=True)
            names = self._discarded_names(claim, finish)
        else:
            detail, names = self._with_log(detail, finish, claim, blobs)
            status, detail = self._with_output(status, detail, finish, claim, blobs)
        names = [*names, *leftover_parts(self._blobs, key_of(claim), end.run)]
        finished = FinishedAttempt(
            key_of(claim),
            claim.run_id,
            claim.token,
            status,
            finish.retryable,
            detail,
            finish.runner_id,
        )
        return _EndedAttempt(finished, blobs, names)

    def _with_log(
        self, detail: Detail, finish: ClaimFinish, claim: ClaimIdentity, blobs: list[Blob]
    ) -> tuple[Detail, Sequence[str]]:
        """Return the detail with the log, and the parts that its blob in `blobs` replaces."""
        detail = replace(detail, log_truncated=finish.logs_truncated)
        merged = merge_log(self._blobs, LogText(_log_of(claim), finish.log_offset, finish.log))
        if merged is None:
            return detail, ()
        blobs.append(merged.blob)
        detail = replace(
            detail,
            log_blob=merged.blob.name,
            log_size=len(merged.blob.data),
            log_truncated=detail.log_truncated or merged.is_truncated,
        )
        return detail, merged.part_names

    def _with_output(
        self,
        status: RunStatus,
        detail: Detail,
        finish: ClaimFinish,
        claim: ClaimIdentity,
        blobs: list[Blob],
    ) -> tuple[RunStatus, Detail]:
        """Return status and detail with the output, and add its blob to `blobs`.

        An attempt that announced an upload and did not make it has failed.
        """
        name = output_key(key_of(claim), claim.run_id, claim.attempt_number)
        size, content_type = len(finish.output), finish.output_type
        if finish.output_upload:
            upload = self._reader.read_upload(claim, finish.output_upload)
            if upload is None or not self._blobs.accept_upload(name, claim.token):
                is_success = status is RunStatus.SUCCESS
                return (
                    RunStatus.FAILED if is_success else status,
                    replace(detail, error=MISSING_UPLOAD_ERROR if is_success else detail.error),
                )
            size, content_type = upload
        elif finish.output:
            blobs.append(Blob(name, finish.output, content_type, claim.token))
        if not size:
            return status, detail
        return status, replace(
            detail,
            output_blob=name,
            output_size=size,
            output_type=content_type,
            output_truncated=finish.output_truncated,
        )

    def _discarded_names(self, claim: ClaimIdentity, finish: ClaimFinish) -> Sequence[str]:
        """Return what the attempt stored before, although its job discards it."""
        log = _log_of(claim)
        listed = self._blobs.list_names(log.folder) if finish.log_offset else ()
        names = [name for name in listed if log.has_part(name)]
        output = output_key(log.key, log.run_id, log.attempt)
        return [*names, output] if finish.output_upload else names

    def _repeated_answer(
        self, claim: ClaimIdentity, finish: ClaimFinish, state: JobState | None
    ) -> ClaimStatus:
        """Return OK if this claim has ended or released its attempt before, otherwise LOST."""
        run = None if state is None else _run_of(state, claim)
        if run is not None:
            if run.is_held or not run.is_bound_to(finish.runner_id):
                return ClaimStatus.LOST
            if run.attempt == claim.attempt_number:
                return ClaimStatus.OK if finish.status == RELEASED else ClaimStatus.LOST
            is_lost = run.past_attempts[-1:] == LOST_LETTER
            return ClaimStatus.LOST if is_lost else ClaimStatus.OK
        return ClaimStatus.OK if self._was_finished(claim, finish, state) else ClaimStatus.LOST

    def _was_finished(
        self, claim: ClaimIdentity, finish: ClaimFinish, state: JobState | None
    ) -> bool:
        key, now = RunKey(claim.tenant, claim.job_id, claim.run_id), self._clock()
        ended_runs = [] if state is None else list(state.unrecorded)
        row = self._history.get([key], now).get(key)
        if row is not None:
            ended_runs.append(row.run)
        for run in ended_runs:
            if run.run_id == claim.run_id and run.token == claim.token:
                return not run.was_lost and run.is_bound_to(finish.runner_id)
        attempts = [
            attempt
            for attempt in self._history.attempts(key, now)
            if attempt.number == claim.attempt_number and attempt.token == claim.token
        ]
        return bool(attempts) and not any(attempt.lost for attempt in attempts)

    # Uploads

    def upload(self, claim_text: str, size: int, content_type: str) -> UploadAnswer:
        """Return one PUT for the output of the attempt that the claim holds."""
        claim = self._reader.read(claim_text)
        state = None if claim is None else self._load_states([key_of(claim)]).get(key_of(claim))
        run = None if claim is None or state is None else _run_of(state, claim)
        if claim is None or run is None or not run.is_held:
            raise ClaimLost(_CLAIM_LOST_MESSAGE)
        name = output_key(key_of(claim), claim.run_id, claim.attempt_number)
        link = self._blobs.upload_link(name, size, content_type, token=claim.token)
        output_upload = self._reader.sign_upload(claim, OutputUpload(size, content_type))
        return UploadAnswer(link.url, link.headers, output_upload)

    # The store

    def _load_states(self, keys: Sequence[JobKey]) -> Mapping[JobKey, JobState]:
        """Load job states. A claim on an unreadable one counts as lost."""
        unique_keys = list(dict.fromkeys(keys))
        stored, errors = load_states(self._job_states, unique_keys) if unique_keys else ({}, {})
        for key, error in errors.items():
            self._log("claim_unreadable", job_id=key.job_id, error=type(error).__name__)
        return {key: stored_state.state for key, stored_state in stored.items()}

    def _put_blobs(self, blobs: Sequence[Blob]) -> None:
        for error in self._blobs.put_many(blobs) if blobs else ():
            if error is not None:
                raise error

    def _delete_blobs(self, names: Sequence[str]) -> None:
        """Delete the parts of merged logs. Those that stay are never read again."""
        try:
            if names:
                self._blobs.delete(names)
        except Unavailable as error:
            self._log("log_parts_kept", parts=len(names), error=error.message)


def key_of(claim: ClaimIdentity) -> JobKey:
    return JobKey(claim.tenant, claim.job_id)


def _log_of(claim: ClaimIdentity) -> LogOfClaim:
    return LogOfClaim(key_of(claim), claim.run_id, claim.attempt_number, claim.token)


def _run_of(state: JobState, claim: ClaimIdentity) -> Run | None:
    """Return the live run with the token of this claim, held or not."""
    return next(
        (run for run in state.runs if run.run_id == claim.run_id and run.token == claim.token),
        None,
    )


def _held_run(state: JobState, claim: ClaimIdentity, runner_id: str) -> Run | None:
    run = _run_of(state, claim)
    return run if run is not None and run.is_held and run.is_bound_to(runner_id) else None


def _has_to_start(run: Run, renewal: ClaimRenewal) -> bool:
    """Return whether the renewal binds the claim, or is the first one of begun work."""
    begins = renewal.has_started and run.status is RunStatus.CLAIMED
    return begins or run.runner_id != renewal.runner_id


def _renewal_answer(result: RenewalResult) -> RenewalAnswer:
    is_cancelled = result.cancel_reason is not Reason.NONE
    status = ClaimStatus.CANCEL if is_cancelled else ClaimStatus.OK
    return RenewalAnswer(status, result.lease_until)


def _is_accepted(result: Result) -> bool:
    """Return whether the claim still held.

    Raise `Unavailable` if that is not known, because the job lost all swaps or a store failed. LOST
    would end work that still has its claim.
    """
    if result.is_contended:
        raise Unavailable("The job changes too often at the moment: try again.")
    if result.has_failed:
        raise Unavailable("The job cannot be changed at the moment: try again.")
    return result.verdict is Verdict.OK


def _groups(ending: Sequence[_Ending]) -> Iterator[Sequence[_Ending]]:
    """Yield the endings in groups. Few logs are merged at a time, because each may have 10 MiB."""
    without_parts = [end for end in ending if not end.finish.log_offset]
    if without_parts:
        yield without_parts
    with_parts = [end for end in ending if end.finish.log_offset]
    for start in range(0, len(with_parts), MAX_LOGS_MERGED_AT_ONCE):
        yield with_parts[start : start + MAX_LOGS_MERGED_AT_ONCE]
