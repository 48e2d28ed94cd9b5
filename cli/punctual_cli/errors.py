"""Turn errors into a line that says what to do, and an exit code."""

import json
import sys
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import typer

from punctual_cli.output.terminal_text import escape_controls


class ExitCode(IntEnum):
    """Exit codes of the program."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    NOT_ALLOWED = 5
    UNAVAILABLE = 6
    TIMED_OUT = 7
    CLAIM_LOST = 8
    CANCEL_REQUESTED = 9
    INTERRUPTED = 130
    PIPE_CLOSED = 141


EXIT_CODE_MEANINGS = {
    ExitCode.OK: "The command succeeded. A run that it waited for succeeded.",
    ExitCode.FAILED: "The run did not succeed, a check found differences, or the health is not ok.",
    ExitCode.USAGE: "The command line, a file or the configuration is invalid.",
    ExitCode.NOT_FOUND: "The job, run, token or secret does not exist.",
    ExitCode.REFUSED: "The fields are invalid, the state forbids it, or the job was changed.",
    ExitCode.NOT_ALLOWED: "The token is missing or invalid, or its role does not allow the action.",
    ExitCode.UNAVAILABLE: "The server does not answer, or is overloaded. Try again later.",
    ExitCode.TIMED_OUT: "The wait timed out. The run continues.",
    ExitCode.CLAIM_LOST: "The claim does not hold its run. Stop the work: nothing of it counts.",
    ExitCode.CANCEL_REQUESTED: "The run is to be cancelled. Stop the work, and finish the claim.",
    ExitCode.INTERRUPTED: "Ctrl-C interrupted the command.",
    ExitCode.PIPE_CLOSED: "The reader of the output closed the pipe.",
}


@dataclass(frozen=True)
class Failure:
    """One failure, ready to show."""

    exit_code: ExitCode
    message: str
    advice: str = ""
    code: str = ""
    errors: tuple[tuple[str, str], ...] = ()
    request_id: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


class CommandError(Exception):
    """A command cannot continue."""

    def __init__(
        self, message: str, exit_code: ExitCode = ExitCode.USAGE, advice: str = ""
    ) -> None:
        super().__init__(message)
        self.failure = Failure(exit_code, message, advice)


def failure_of(error: Exception, url: str, profile: str = "") -> Failure | None:
    """Return the failure to show, or None for a bug in this program.

    `profile` is the stored login that gave the address, if one did.
    """
    if isinstance(error, CommandError):
        return error.failure
    if isinstance(error, OSError):
        if error.filename is None:
            return Failure(ExitCode.FAILED, f"Cannot write the output: {error.strerror}.")
        return Failure(ExitCode.USAGE, f"{error.filename}: {error.strerror}.")
    if isinstance(error, UnicodeError):
        return Failure(ExitCode.USAGE, "The command line is not valid UTF-8.")
    from punctual.client import errors

    if not isinstance(error, errors.PunctualError):
        return None
    if error.problem is None:
        return _failure_without_answer(error, url, profile)
    problem = error.problem
    return Failure(
        _exit_code(error),
        problem.detail or problem.title,
        _advice(error),
        problem.code,
        tuple((field_error.field, field_error.message) for field_error in problem.errors),
        problem.request_id or "",
    )


def _failure_without_answer(error: Any, url: str, profile: str) -> Failure:
    from punctual.client import errors

    if isinstance(error, errors.WaitTimeout):
        return Failure(ExitCode.TIMED_OUT, error.message)
    if isinstance(error, errors.Misuse):
        return Failure(ExitCode.USAGE, error.message)
    if isinstance(error, errors.Unavailable):
        advice = (
            "Start a local node with `punctual dev`, or set the address with `punctual login`, "
            "PUNCTUAL_URL or --url."
        )
        if profile:
            advice = (
                f"The address is from the stored login {profile!r}. Delete it with "
                f"`punctual logout --profile {profile}`, or use another address with "
                "PUNCTUAL_URL or --url."
            )
        if error.uncertain:
            advice = "The request may have taken effect. Check before you repeat it."
        return Failure(ExitCode.UNAVAILABLE, error.message, advice)
    return Failure(
        ExitCode.UNAVAILABLE, error.message, f"Check the address: {url} may not be a Punctual API."
    )


def _exit_code(error: Any) -> ExitCode:
    status = error.problem.status
    if error.problem.code == ExitCode.CLAIM_LOST.name:
        return ExitCode.CLAIM_LOST
    if status in (401, 403):
        return ExitCode.NOT_ALLOWED
    if status == 404:
        return ExitCode.NOT_FOUND
    if status in (429,) or status >= 500:
        return ExitCode.UNAVAILABLE
    return ExitCode.REFUSED


def _advice(error: Any) -> str:
    match error.problem.status:
        case 401:
            return "Log in with `punctual login`, or set PUNCTUAL_TOKEN to a valid token."
        case 403:
            return "Use a token with a higher role. `punctual whoami` shows the role of this token."
        case 404:
            return "List the jobs with `punctual jobs list`."
        case 412:
            return "Another client changed the job. Read it again and retry."
        case 429 | 503 if error.retry_after:
            return f"Try again in {error.retry_after:g} s."
    return ""


def print_failure(failure: Failure, as_json: bool) -> None:
    """Print a failure on standard error."""
    if as_json:
        value = {
            "exit_code": int(failure.exit_code),
            "code": failure.code or failure.exit_code.name,
            "message": failure.message,
            "advice": failure.advice or None,
            "errors": [{"field": name, "message": text} for name, text in failure.errors],
            "request_id": failure.request_id or None,
            **failure.extra,
        }
        print(json.dumps({"error": value}, ensure_ascii=False), file=sys.stderr, flush=True)
        return
    label = typer.style("Error:", fg="red", bold=True)
    errors = [f"{name}: {text}" if name else text for name, text in failure.errors]
    message = failure.message
    # Drop a detail that only joins the messages of the fields.
    if message.rstrip(".") == "; ".join(errors).rstrip("."):
        errors = errors if len(errors) > 1 else []
        message = f"{len(errors)} fields are invalid:" if errors else message
    typer.echo(f"{label} {escape_controls(message)}", err=True)
    for text in errors:
        typer.echo(f"  {escape_controls(text)}", err=True)
    if failure.advice:
        typer.echo(failure.advice, err=True)
