"""The commands punctual claims renew, finish and upload, for external executors."""

import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from punctual_cli.errors import CommandError, ExitCode
from punctual_cli.input.choices import FinishStatus
from punctual_cli.input.log_pieces import LogPiece, read_log_pieces
from punctual_cli.output import answers, progress
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client.endpoints.claims import ClaimResult

CLAIM_VARIABLE = "PUNCTUAL_CLAIM"
JSON_SUFFIX = ".json"
MAX_FINISH_FILE_BYTES = 256 * 1024
NOT_OK = {
    "CANCEL": (
        ExitCode.CANCEL_REQUESTED,
        "The run is to be cancelled. Stop the work, and finish with --status CANCELLED.",
    ),
    "LOST": (
        ExitCode.CLAIM_LOST,
        "The claim does not hold its run. Stop the work, because nothing of it counts.",
    ),
}

Claim = Annotated[
    str | None,
    typer.Option(
        "--claim",
        metavar="CLAIM",
        help=f"Claim, or - to read it from standard input. Overrides {CLAIM_VARIABLE}.",
        show_default=False,
    ),
]
RunnerId = Annotated[
    str | None,
    typer.Option(
        "--runner-id",
        metavar="ID",
        help="Id of this runner. The first renewal with an id binds the claim to it.",
        show_default=False,
    ),
]
LogFile = Annotated[
    Path | None,
    typer.Option("--log-file", metavar="FILE", help="Log to send.", show_default=False),
]
LogOffset = Annotated[
    int,
    typer.Option(
        "--log-offset", min=0, metavar="BYTES", help="Bytes of the log that were sent before."
    ),
]


OutputFile = Annotated[
    Path | None,
    typer.Option(
        "--output-file",
        metavar="FILE",
        help="Output to 256 KiB. A file named *.json is sent as JSON, any other as text.",
        show_default=False,
    ),
]
UploadToken = Annotated[
    str | None,
    typer.Option(
        "--upload",
        metavar="TOKEN",
        help="Output that `punctual claims upload` sent: the token that it printed.",
        show_default=False,
    ),
]


def renew(
    session: Session,
    claim: Claim = None,
    runner_id: RunnerId = None,
    started: Annotated[
        bool, typer.Option("--started", help="The work has begun. The run is then RUNNING.")
    ] = False,
    percent: Annotated[
        float | None,
        typer.Option(
            min=0, max=100, metavar="PERCENT", help="Progress to show.", show_default=False
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Progress to show, as text.", show_default=False),
    ] = None,
    log_file: LogFile = None,
    log_offset: LogOffset = 0,
) -> None:
    """Keep the claim of a run, and report progress and log.

    Exit code 8 if the claim is lost, 9 if the run is to be cancelled.
    """
    fields = claim_fields = _claim_fields(claim, runner_id)
    if started:
        fields = {**fields, "started_at": session.clock().isoformat()}
    if shown := _given(percent=percent, text=text):
        fields = {**fields, "progress": shown}
    pieces = _log_pieces(log_file, log_offset, is_complete=False)
    result = _renew(session, {**fields, **_log_fields(pieces[:1])})
    log_end = log_offset
    for piece, next_piece in pairwise([*pieces, None]):
        if result.status == "LOST" or piece is None:
            break
        log_end = piece.end
        if next_piece is not None:
            result = _renew(session, {**claim_fields, **_log_fields([next_piece])})
    value = dict(result.raw)
    if log_file is not None:
        value["log_offset"] = log_end
    _show(session, result, value)


def finish(
    session: Session,
    status: Annotated[
        FinishStatus,
        typer.Option(
            metavar="STATUS",
            help="SUCCESS, FAILED, TIMED_OUT, CANCELLED, or RELEASED for work that was not begun.",
            case_sensitive=False,
        ),
    ],
    claim: Claim = None,
    runner_id: RunnerId = None,
    output_file: OutputFile = None,
    upload_token: UploadToken = None,
    error: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Error message.", show_default=False)
    ] = None,
    exit_code: Annotated[
        int | None,
        typer.Option(metavar="N", help="Exit code of the work.", show_default=False),
    ] = None,
    no_retry: Annotated[
        bool, typer.Option("--no-retry", help="Do not retry the run, whatever its job allows.")
    ] = False,
    log_file: LogFile = None,
    log_offset: LogOffset = 0,
) -> None:
    """Report how the work of a claim ended. The same report again gets the same answer.

    Exit code 8 if the claim is lost.
    """
    if output_file is not None and upload_token is not None:
        raise CommandError("--output-file and --upload must not be given together.")
    claim_fields = _claim_fields(claim, runner_id)
    fields = {**claim_fields, "status": str(status)}
    fields |= _given(output_upload=upload_token, error_message=error, exit_code=exit_code)
    if output_file is not None:
        fields |= _output_fields(output_file)
    if no_retry:
        fields["retryable"] = False
    pieces = _log_pieces(log_file, log_offset, is_complete=True)
    for piece in pieces[:-1]:
        if (result := _renew(session, {**claim_fields, **_log_fields([piece])})).status == "LOST":
            break
    else:
        (result,) = session.client.claims.finish([{**fields, **_log_fields(pieces[-1:])}])
    _show(session, result, result.raw)


def upload(
    session: Session,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="File to upload as the output.")],
    content_type: Annotated[
        str, typer.Option(metavar="TYPE", help="Media type of the output.")
    ] = "application/octet-stream",
    claim: Claim = None,
) -> None:
    """Upload a file of up to 5 GB as the output of a run, and print its token.

    `punctual claims finish --upload TOKEN` then names it. Exit code 8 if the claim is lost.
    """
    if not path.is_file():
        raise CommandError(f"{path} is not a file.")
    size = path.stat().st_size
    if not size:
        raise CommandError(f"{path} is empty.", advice="Finish the run without an output.")
    with progress.bar(session, f"Uploading {path.name}", size) as advance:
        ticket = session.client.claims.upload_file(
            _read_claim(claim),
            path,
            content_type=content_type,
            on_progress=progress.advance_to(advance),
        )
    if session.as_json:
        answers.write_json({"output_upload": ticket.output_upload})
    else:
        session.screen.print_line(ticket.output_upload)


def _read_claim(option: str | None) -> str:
    claim = option or os.environ.get(CLAIM_VARIABLE, "")
    if claim == "-":
        claim = sys.stdin.readline()
    if not claim.strip():
        raise CommandError(
            "No claim is given.", advice=f"Set {CLAIM_VARIABLE}, or pipe the claim to `--claim -`."
        )
    return claim.strip()


def _claim_fields(claim: str | None, runner_id: str | None) -> dict[str, Any]:
    return {"claim": _read_claim(claim), **_given(runner_id=runner_id)}


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _log_pieces(path: Path | None, offset: int, is_complete: bool) -> list[LogPiece]:
    return [] if path is None else list(read_log_pieces(path, offset, is_complete))


def _log_fields(pieces: Sequence[LogPiece]) -> dict[str, Any]:
    """Return the fields of the piece, if there is one."""
    return {
        name: value
        for piece in pieces
        for name, value in (("log", piece.text), ("log_offset", piece.offset))
    }


def _output_fields(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        data = file.read(MAX_FINISH_FILE_BYTES + 1)
    if len(data) > MAX_FINISH_FILE_BYTES:
        raise CommandError(
            f"{path} is longer than {MAX_FINISH_FILE_BYTES:,} bytes.",
            advice="Send it with `punctual claims upload`, and finish with --upload TOKEN.",
        )
    try:
        if path.suffix == JSON_SUFFIX:
            return {"output": msgspec.json.decode(data)}
        return {"output_text": data.decode()}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        form = "JSON" if path.suffix == JSON_SUFFIX else "UTF-8 text"
        raise CommandError(
            f"{path} is not {form}.",
            advice="Send it with `punctual claims upload`, which takes any bytes.",
        ) from error


def _renew(session: Session, fields: dict[str, Any]) -> "ClaimResult":
    (result,) = session.client.claims.renew([fields])
    return result


def _show(session: Session, result: "ClaimResult", value: dict[str, Any]) -> None:
    """Print the result. End with its exit code if it is not OK."""
    if session.as_json:
        answers.write_json(value)
    else:
        lease_end = session.screen.long_time(result.lease_until)
        _print_result(session, result.status, lease_end, value.get("log_offset"))
    if result.status in NOT_OK:
        exit_code, text = NOT_OK[result.status]
        if not session.as_json:
            session.screen.print_note(text, "red")
        raise typer.Exit(exit_code)


def _print_result(
    session: Session, status: str, lease_end: str | None, log_end: int | None
) -> None:
    pairs = [("Status", status), ("Lease until", lease_end)]
    if log_end is not None:
        pairs.append(("Log sent", f"{log_end} bytes"))
    session.screen.print_pairs(pairs)
