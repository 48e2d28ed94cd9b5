"""Verify the signature and the age of received webhooks."""

from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Mapping, Sequence
from datetime import timedelta
from hmac import compare_digest, digest
from typing import Any

import msgspec

from punctual.client import clock
from punctual.client.errors import BadWebhook

_SECRET_PREFIX = "whsec_"


def verify_webhook(
    secrets: str | Sequence[str],
    headers: Mapping[str, str],
    body: bytes | str,
    *,
    within: timedelta = timedelta(minutes=5),
    now: float | None = None,
) -> dict[str, Any]:
    """Return the content of a webhook. Raise BadWebhook for a wrong signature or time.

    One of `secrets` must match. The timestamp may differ from `now` by at most `within`. `body`
    must hold the received bytes unchanged. A webhook may arrive twice, with the same `webhook-id`.
    """
    data = body.encode() if isinstance(body, str) else body
    lower_headers = {name.lower(): value for name, value in headers.items()}
    webhook_id, timestamp, signatures = (
        lower_headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature")
    )
    if not (webhook_id and signatures and timestamp.isascii() and timestamp.isdigit()):
        raise BadWebhook("The request is not a signed webhook. A header is missing.")
    signed_content = f"{webhook_id}.{timestamp}.".encode() + data
    secret_list = [secrets] if isinstance(secrets, str) else secrets
    if not any(_is_signed_by(secret, signed_content, signatures.split()) for secret in secret_list):
        raise BadWebhook("The webhook is not signed with this secret.")
    unix_now = clock.unix_seconds() if now is None else now
    age_seconds, max_seconds = unix_now - int(timestamp[:15]), within.total_seconds()
    if age_seconds > max_seconds:
        raise BadWebhook(
            f"The webhook is too old: more than {max_seconds:g} s. It may be a replay."
        )
    if age_seconds < -max_seconds:
        text = f"The webhook's timestamp is more than {max_seconds:g} s in the future."
        raise BadWebhook(f"{text} Check this machine's clock.")
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadWebhook("The webhook is signed, but it is not a JSON object.") from error


def _is_signed_by(secret: str, signed_content: bytes, signatures: Sequence[str]) -> bool:
    try:
        key = b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except (Error, ValueError):
        raise BadWebhook("A webhook secret must be `whsec_` followed by base64.") from None
    expected = "v1," + b64encode(digest(key, signed_content, "sha256")).decode()
    return any(compare_digest(expected.encode(), signature.encode()) for signature in signatures)
