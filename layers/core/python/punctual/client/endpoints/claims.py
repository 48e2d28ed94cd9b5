"""The calls by claim, for external executors. The claim is the right, so no token is sent."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from punctual.client.call_steps import ClientSettings, Steps, send_request
from punctual.client.model import (
    AwareDatetime,
    Model,
    convert_model,
    decode_json,
    decode_model,
    required_field,
)
from punctual.client.wire import Repeat, Request, encode_body


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


def _results(
    settings: ClientSettings, path: str, claims: Sequence[Mapping[str, Any]]
) -> Steps[tuple[ClaimResult, ...]]:
    answer = yield from send_request(settings, _request(path, {"claims": list(claims)}))
    results = required_field(decode_json(answer), "results")
    return tuple(convert_model(ClaimResult, result) for result in results)


def _request(path: str, fields: dict[str, Any]) -> Request:
    return Request("POST", path, body=encode_body(fields), repeat=Repeat.SAFE, with_token=False)
