"""The calls by claim, for external executors. The claim is the right, so no token is sent."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from punctual.client.call_steps import ClientSettings, Steps, send_request
from punctual.client.errors import Misuse, Refused, Unexpected
from punctual.client.model import (
    AwareDatetime,
    Model,
    convert_model,
    decode_json,
    decode_model,
    required_field,
)
from punctual.client.wire import Repeat, Request, RequestFile, encode_body

_PRECONDITION_FAILED = 412


class ClaimResult(Model, frozen=True, kw_only=True):
    """OK, CANCEL or LOST. `lease_until` is set by a renewal that was not LOST."""

    status: str
    lease_until: AwareDatetime | None = None


class ClaimUpload(Model, frozen=True, kw_only=True):
    """One PUT for an output. Name `output_upload` in the finish of the same claim."""

    upload_url: str
    output_upload: str
    upload_headers: dict[str, str] = msgspec.field(default_factory=dict)


def renew(
    settings: ClientSettings, claims: Sequence[Mapping[str, Any]]
) -> Steps[tuple[ClaimResult, ...]]:
    """Renew 1 to 500 claims. Return a result for each, in order."""
    return (yield from _results(settings, "/claims/renew", claims))


def finish(
    settings: ClientSettings, claims: Sequence[Mapping[str, Any]]
) -> Steps[tuple[ClaimResult, ...]]:
    """Report how 1 to 500 attempts ended. The same item again gets the same answer."""
    return (yield from _results(settings, "/claims/finish", claims))


def upload(
    settings: ClientSettings, claim: str, size: int, content_type: str
) -> Steps[ClaimUpload]:
    """Return where to send the output of an attempt. `Conflict` means that the claim is lost."""
    fields = {"claim": claim, "size": size, "content_type": content_type}
    request = _request("/claims/upload", fields)
    return decode_model(ClaimUpload, (yield from send_request(settings, request)))


def upload_file(
    settings: ClientSettings,
    claim: str,
    file: str | os.PathLike[str],
    *,
    content_type: str = "application/octet-stream",
    on_progress: Callable[[int], None] | None = None,
) -> Steps[ClaimUpload]:
    """Upload a file as the output of an attempt. Name its `output_upload` in the finish.

    `on_progress` gets the number of bytes that were sent so far. The file is never held in memory
    as a whole.
    """
    path = Path(file)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise Misuse(f"{path} cannot be read: {error.strerror}.") from error
    ticket = yield from upload(settings, claim, size, content_type)
    put = Request(
        "PUT",
        ticket.upload_url,
        headers=tuple(ticket.upload_headers.items()),
        repeat=Repeat.SAFE,
        with_token=False,
        file=RequestFile(path, on_progress),
    )
    try:
        yield from send_request(settings, put)
    except Refused as error:
        if error.status != _PRECONDITION_FAILED:
            raise Unexpected(
                f"The store answered {error.status} to the upload. Repeat the call.",
                problem=error.problem,
            ) from error
        # An earlier, unanswered attempt of this call may have stored the file.
        if not error.uncertain:
            text = "An output of this attempt is stored already. Name it in the finish."
            raise Unexpected(text, problem=error.problem) from error
    return ticket


def _results(
    settings: ClientSettings, path: str, claims: Sequence[Mapping[str, Any]]
) -> Steps[tuple[ClaimResult, ...]]:
    answer = yield from send_request(settings, _request(path, {"claims": list(claims)}))
    results = required_field(decode_json(answer), "results")
    return tuple(convert_model(ClaimResult, result) for result in results)


def _request(path: str, fields: dict[str, Any]) -> Request:
    return Request("POST", path, body=encode_body(fields), repeat=Repeat.SAFE, with_token=False)
