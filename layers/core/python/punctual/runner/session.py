"""Carries out one run: from its event to its finish, or to the answer that an executor waits for.

In mode `wait` the executor finishes the run with the answer. In mode `detached` the runner:

1. binds the claim to itself with a first renewal, and ends here if the claim is lost;
2. runs the script, while a heartbeat renews the claim and sends the new log;
3. stores a large output by one PUT;
4. finishes the run by its claim.
"""

from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from punctual.domain.leases import RUN_LEASE
from punctual.runner.artifact_download import ArtifactDownload, Interrupted
from punctual.runner.claim_client import (
    AlreadyStored,
    ClaimClient,
    ClaimLost,
    Refused,
    Repeater,
)
from punctual.runner.container_command import ContainerCommand
from punctual.runner.environment import RunnerEnvironment
from punctual.runner.event import EVENT_FORMAT, RunEvent
from punctual.runner.heartbeat import Heartbeat
from punctual.runner.http_client import CallFailed, HttpRequest
from punctual.runner.live_log import MAX_LOG_PART_BYTES, LiveLog
from punctual.tasks.attempt_errors import run_filled
from punctual.tasks.contract import Attempt, Outcome, Recorder, Runner, StopRequest, stop_text
from punctual.tasks.limits import DEFAULT_MEMORY_MB
from punctual.tasks.script.task import ScriptTask
from punctual.tasks.text import time_text

MAX_FINISH_OUTPUT_BYTES = 256 * 1024  # in the finish itself; a larger output is uploaded
MAX_ANSWER_OUTPUT_BYTES = 2 * 1024 * 1024  # an answer has up to 5 MiB, in base64
MAX_FINISH_ERROR_CHARACTERS = 8_000
FINISH_SECONDS = 120.0
# In a container ECS also tells the exit code. Without a finish it must not look like a success.
UNREPORTED_EXIT_CODE = 75
UPLOAD_BASE_SECONDS = 30.0
MIN_UPLOAD_BYTES_PER_SECOND = 2 * 1024 * 1024
DETACHED_ANSWER = {"format": EVENT_FORMAT, "status": "DETACHED"}


class SessionEnd(NamedTuple):
    """The answer of a session, and the exit code of a process that carries out one run.

    `is_clean` is false if something of the run is left in the environment.
    """

    answer: dict[str, Any]
    is_clean: bool
    exit_code: int


class _StoredOutput(NamedTuple):
    """An output in memory, or in a file that may be large."""

    data: bytes
    file: Path | None
    size: int

    def upload(self, put: Callable[[Any], str]) -> str:
        if self.file is None:
            return put(self.data)
        with self.file.open("rb") as content:
            return put(content)


class Session:
    """One run. The heartbeat's stop signal reaches the script's whole group."""

    def __init__(self, event: RunEvent, environment: RunnerEnvironment) -> None:
        clock = environment.clock
        self._event = event
        self._environment = environment
        self._monotonic = clock.monotonic
        self._began_at = clock.monotonic()
        self._client = ClaimClient(environment.http, event.api, event.claim, clock.new_id())
        self._log = LiveLog(is_kept=event.keeps_output)
        self._heartbeat = Heartbeat(
            self._client, self._log, clock.monotonic, started_at=time_text(clock.now())
        )
        self._repeater = Repeater(clock.monotonic, clock.wait)
        self._step_began_at = self._began_at
        self._has_met_output = False

    def request_shutdown(self) -> None:
        """Stop the run, because this process must end."""
        self._heartbeat.stop.request_stop("SHUTDOWN")

    @property
    def is_lost(self) -> bool:
        """Return whether another executor may have the run, so that its end is not ours to tell."""
        return self._heartbeat.is_lost

    def run(self) -> SessionEnd:
        if self._event.mode == "wait":
            return self._run_waited()
        return self._run_detached()

    def decline(self) -> SessionEnd:
        """Return the run to its queue, because this environment must serve no more runs."""
        outcome = Outcome("FAILED", "The environment of the runner is retired", begun=False)
        if self._event.mode == "wait":
            return SessionEnd(self._answer(outcome, "", is_clean=False), False, 1)
        deadline = self._began_at + self._event.lease_seconds_left
        fields = self._finish_fields(outcome, "", "")
        with suppress(CallFailed, Refused):
            self._repeater.until(lambda: deadline, lambda: self._heartbeat.finish(fields))
        return SessionEnd(DETACHED_ANSWER, False, 1)

    def _run_waited(self) -> SessionEnd:
        self._heartbeat.start()
        try:
            outcome, output, is_clean = self._perform()
            outcome, upload = self._upload_output(outcome, output, MAX_ANSWER_OUTPUT_BYTES)
            self._send_log_but_last_part()
        except ClaimLost:
            outcome, upload = Outcome.stopped("LOST"), ""
        finally:
            self._heartbeat.end()
        return SessionEnd(self._answer(outcome, upload, is_clean), is_clean, _exit_code(outcome))

    def _run_detached(self) -> SessionEnd:
        deadline = self._began_at + self._event.lease_seconds_left
        try:
            self._repeater.until(lambda: deadline, self._heartbeat.renew)
        except (CallFailed, Refused):
            return SessionEnd(DETACHED_ANSWER, True, 1)
        if self._heartbeat.is_lost:
            return SessionEnd(DETACHED_ANSWER, True, 1)
        self._heartbeat.start()
        exit_code = UNREPORTED_EXIT_CODE
        try:
            outcome, output, is_clean = self._perform()
            # Without a finish the lease ends, and the run is repeated.
            with suppress(CallFailed, Refused):
                if self._may_finish(outcome):
                    self._finish(_as_cancelled(outcome), output)
                    exit_code = _exit_code(outcome)
        except ClaimLost:
            self._heartbeat.stop.request_stop("LOST")
        finally:
            self._heartbeat.end()
        return SessionEnd(DETACHED_ANSWER, is_clean, exit_code)

    def _perform(self) -> tuple[Outcome, _StoredOutput, bool]:
        """Return the outcome, the output, and whether the environment is clean again."""
        stop = self._heartbeat.stop
        task = self._event.attempt.task
        try:
            if stop.reason():
                return Outcome.stopped(stop.reason()), _StoredOutput(b"", None, 0), True
            if task.get("type") == "container":
                return self._perform_command()
            attempt = self._with_allowed_memory(self._event.attempt)
            outcome = run_filled(_Interruptible(self._script_task()), attempt, stop, self._log)
            output = _StoredOutput(outcome.output, None, len(outcome.output))
            return outcome, output, self._environment.clean_up()
        finally:
            self._begin_step()
            self._log.end()

    def _perform_command(self) -> tuple[Outcome, _StoredOutput, bool]:
        environment = self._environment
        command = ContainerCommand(
            environment.runs_folder,
            environment.children,
            self._monotonic,
            environment.command_line,
            environment.variables,
        )
        outcome = run_filled(command, self._event.attempt, self._heartbeat.stop, self._log)
        size = command.output_file.stat().st_size if command.output_file.exists() else 0
        return outcome, _StoredOutput(b"", command.output_file, size), True

    def _script_task(self) -> ScriptTask:
        environment = self._environment
        return ScriptTask(
            environment.runs_folder,
            environment.sandbox,
            monotonic=self._monotonic,
            path=environment.program_path,
            limits=environment.limits(),
            children=environment.children,
            artifacts=ArtifactDownload(
                environment.http, self._heartbeat.stop, self._monotonic, self._repeater
            ),
            library_path=environment.library_path,
        )

    def _with_allowed_memory(self, attempt: Attempt) -> Attempt:
        resources = attempt.task.get("resources") or {}
        requested_mb = resources.get("memory_mb") or DEFAULT_MEMORY_MB
        allowed_mb = self._environment.allowed_memory_mb(requested_mb)
        resources = {**resources, "memory_mb": allowed_mb}
        task = {**attempt.task, "type": "script", "resources": resources}
        return replace(attempt, task=task)

    def _may_finish(self, outcome: Outcome) -> bool:
        """Return False if the run belongs to another executor, or must go to one.

        A shutdown is no cancel. Without a finish the lease expires, and the run is repeated.
        """
        if self._heartbeat.is_lost:
            return False
        if outcome.status != "CANCELLED" or self._heartbeat.is_cancelled:
            return True
        try:
            self._heartbeat.renew()
        except (CallFailed, Refused):
            return False
        return self._heartbeat.is_cancelled

    def _begin_step(self) -> None:
        """Give the calls that follow their time. An upload may have taken most of an hour."""
        self._step_began_at = self._monotonic()

    def _lease_end(self) -> float:
        """Return when to give up repeating a call: at the end of the lease, or of a long time."""
        lease_end = self._heartbeat.renewed_at + RUN_LEASE.total_seconds()
        return min(lease_end, self._step_began_at + FINISH_SECONDS)

    def _upload_output(
        self, outcome: Outcome, output: _StoredOutput, max_inline_bytes: int
    ) -> tuple[Outcome, str]:
        """Store a large output. Return the outcome, and the name of the output or ""."""
        is_inline = output.size <= max_inline_bytes and output.file is None
        if is_inline or not output.size or not self._event.keeps_output:
            return outcome, ""
        try:
            name = self._repeater.until(
                self._lease_end,
                lambda: output.upload(lambda body: self._put(body, output, outcome)),
            )
        except (CallFailed, Refused) as error:
            failed = Outcome.failed(f"The output could not be stored: {error}")
            return replace(failed, exit_code=outcome.exit_code), ""
        finally:
            self._begin_step()
        return replace(outcome, output=b""), name

    def _put(self, body: Any, output: _StoredOutput, outcome: Outcome) -> str:
        target = self._client.ask_upload(output.size, outcome.output_type)
        seconds = UPLOAD_BASE_SECONDS + output.size / MIN_UPLOAD_BYTES_PER_SECOND
        request = HttpRequest("PUT", target.url, target.headers, body, output.size)
        try:
            self._client.put(request, seconds)
        except AlreadyStored:
            # A second address replaces the output of an earlier claim, but never our own.
            if not self._has_met_output:
                self._has_met_output = True
                raise
        return target.output_upload

    def _send_log_but_last_part(self) -> None:
        try:
            while self._log.pending_bytes > MAX_LOG_PART_BYTES and not self._heartbeat.is_lost:
                self._repeater.until(self._lease_end, self._heartbeat.renew)
        except (CallFailed, Refused):
            self._log.drop_rest()

    def _finish(self, outcome: Outcome, output: _StoredOutput) -> None:
        inline = _inline_text(outcome, output)
        upload = ""
        if inline is None:
            outcome, upload = self._upload_output(outcome, output, 0)
        self._send_log_but_last_part()
        fields = self._finish_fields(outcome, inline or "", upload)
        try:
            self._repeater.until(self._lease_end, lambda: self._heartbeat.finish(fields))
        except Refused as error:
            # The API refuses this result for ever. A run without any result would be repeated.
            failed = Outcome.failed(f"The result could not be stored: {error}")
            short = self._finish_fields(failed, "", "")
            self._repeater.until(self._lease_end, lambda: self._heartbeat.finish(short))

    def _finish_fields(self, outcome: Outcome, text: str, upload: str) -> dict[str, Any]:
        if not outcome.begun:
            return {"status": "RELEASED"}
        fields: dict[str, Any] = {
            "status": outcome.status,
            "error_message": outcome.error[:MAX_FINISH_ERROR_CHARACTERS],
            "retryable": outcome.retryable,
            "exit_code": outcome.exit_code,
            "output_truncated": outcome.output_truncated,
            "logs_truncated": outcome.logs_truncated or self._log.is_truncated,
        }
        if not self._event.keeps_output:
            return fields | {"output_truncated": False, "logs_truncated": False}
        if text:
            fields["output_text"] = text
        if upload:
            fields["output_upload"] = upload
        return fields

    def _answer(self, outcome: Outcome, upload: str, is_clean: bool) -> dict[str, Any]:
        part = self._log.next_part()
        keeps_output = self._event.keeps_output
        return {
            "format": EVENT_FORMAT,
            "status": outcome.status,
            "error": outcome.error,
            "retryable": outcome.retryable,
            "exit_code": outcome.exit_code,
            "output": b64encode(outcome.output if keeps_output else b"").decode(),
            "output_type": outcome.output_type,
            "output_truncated": outcome.output_truncated and keeps_output,
            "output_upload": upload,
            "log": b64encode(part.text.encode()).decode(),
            "log_offset": part.offset,
            "logs_truncated": (outcome.logs_truncated or self._log.is_truncated) and keeps_output,
            "begun": outcome.begun,
            "must_retire": not is_clean,
        }


class _Interruptible:
    """Turns an interrupted download into a stopped run."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder, /) -> Outcome:
        try:
            return self._runner.run(attempt, stop, recorder)
        except Interrupted:
            return Outcome.stopped(stop.reason())


def _as_cancelled(outcome: Outcome) -> Outcome:
    """Return the outcome of a cancel, also if the signal to end came before the answer CANCEL."""
    shutdown, cancel = stop_text("SHUTDOWN"), stop_text("CANCEL")
    if outcome.status != "CANCELLED" or not outcome.error.startswith(shutdown):
        return outcome
    return replace(outcome, error=cancel + outcome.error.removeprefix(shutdown))


def _exit_code(outcome: Outcome) -> int:
    if outcome.exit_code is not None:
        return outcome.exit_code
    return 0 if outcome.status == "SUCCESS" else 1


def _inline_text(outcome: Outcome, output: _StoredOutput) -> str | None:
    """Return the output as text if it may stand in the finish, else None."""
    if output.size > MAX_FINISH_OUTPUT_BYTES:
        return None
    data = output.data if output.file is None or not output.size else output.file.read_bytes()
    try:
        return data.decode() if outcome.output_type.startswith("text/plain") or not data else None
    except UnicodeDecodeError:
        return None
