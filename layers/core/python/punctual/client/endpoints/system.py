"""The calls on tokens, secrets, the audit and the installation."""

from datetime import datetime
from typing import Any

from punctual.client.call_steps import ClientSettings, Steps, Stream, send_request
from punctual.client.calls.error_mapping import error_of_problem, read_problem
from punctual.client.calls.paging import stream_pages
from punctual.client.endpoints.job_references import JobRef, job_id_of
from punctual.client.errors import Unexpected
from punctual.client.fields import Role, TimeValue
from punctual.client.installation import (
    AuditEntry,
    Health,
    Identity,
    NewToken,
    Probe,
    Secret,
    Stats,
    Token,
    WebhookSecret,
)
from punctual.client.model import M, convert_model, decode_json, decode_model, required_field
from punctual.client.wire import (
    SUCCESS_STATUSES,
    Repeat,
    Request,
    build_path,
    encode_body,
    query_parameters,
)


def create_token(
    settings: ClientSettings,
    *,
    name: str,
    role: Role,
    expires_at: datetime | str | None = None,
    tenant: str | None = None,
) -> Steps[NewToken]:
    """Create a token. The server returns its secret, `token`, only this once."""
    fields = {"name": name, "role": role, "expires_at": expires_at}
    if tenant is not None:
        fields["tenant"] = tenant
    request = Request("POST", "/tokens", body=encode_body(fields))
    return decode_model(NewToken, (yield from send_request(settings, request)))


def tokens(settings: ClientSettings, *, limit: int | None = None) -> Stream[Token]:
    """Yield the tokens, the newest first."""
    return stream_pages(
        settings, "/tokens", (), "tokens", lambda value: convert_model(Token, value), limit
    )


def get_token(settings: ClientSettings, token_id: str) -> Steps[Token]:
    return _get(settings, Token, build_path("tokens", token_id))


def revoke_token(settings: ClientSettings, token_id: str) -> Steps[Token]:
    """Revoke a token. Calls with it fail within a minute. A repeated call changes nothing."""
    request = Request("DELETE", build_path("tokens", token_id), repeat=Repeat.SAFE)
    return decode_model(Token, (yield from send_request(settings, request)))


def secrets(settings: ClientSettings) -> Steps[tuple[Secret, ...]]:
    """Return the secrets that tasks may name, sorted by name, without their values."""
    request = Request("GET", "/secrets", repeat=Repeat.READS)
    listed = required_field(decode_json((yield from send_request(settings, request))), "secrets")
    return tuple(convert_model(Secret, value) for value in listed)


def set_secret(settings: ClientSettings, name: str, value: str) -> Steps[None]:
    """Set a new or an existing secret. Runs use a changed value within a minute."""
    path, body = build_path("secrets", name), encode_body({"value": value})
    yield from send_request(settings, Request("PUT", path, body=body, repeat=Repeat.SAFE))


def delete_secret(settings: ClientSettings, name: str) -> Steps[None]:
    """Delete a secret. An attempt that names it then fails without a retry."""
    path = build_path("secrets", name)
    yield from send_request(settings, Request("DELETE", path, repeat=Repeat.SAFE))


def webhook_secret(settings: ClientSettings) -> Steps[str]:
    """Return the secret that signs the tenant's webhooks, for `verify_webhook`."""
    request = Request("GET", "/webhook-secret", repeat=Repeat.READS)
    return decode_model(WebhookSecret, (yield from send_request(settings, request))).secret


def audit(
    settings: ClientSettings,
    *,
    job: JobRef | None = None,
    caller: str | None = None,
    action: str | None = None,
    from_: TimeValue | None = None,
    to: TimeValue | None = None,
    limit: int | None = None,
) -> Stream[AuditEntry]:
    """Yield the changes in the audit, the newest first."""
    job_id = None if job is None else (yield from job_id_of(settings, job))
    filters = query_parameters(job_id=job_id, caller=caller, action=action, from_=from_, to=to)
    yield from stream_pages(
        settings,
        "/audit",
        filters,
        "entries",
        lambda value: convert_model(AuditEntry, value),
        limit,
    )


def whoami(settings: ClientSettings) -> Steps[Identity]:
    return _get(settings, Identity, "/whoami")


def stats(settings: ClientSettings) -> Steps[Stats]:
    return _get(settings, Stats, "/stats")


def health(settings: ClientSettings) -> Steps[Health]:
    """Return the health of the installation. `late` and `down` are answers, not errors."""
    return _probe(settings, Health, "/health")


def live(settings: ClientSettings) -> Steps[Probe]:
    """Return the answer of the liveness check."""
    return _probe(settings, Probe, "/health/live")


def ready(settings: ClientSettings) -> Steps[Probe]:
    """Return whether the installation accepts requests and fires jobs.

    The status `down` is an answer, not an error.
    """
    return _probe(settings, Probe, "/health/ready")


def _probe(settings: ClientSettings, model_class: type[M], url_path: str) -> Steps[M]:
    request = Request(
        "GET",
        url_path,
        repeat=Repeat.READS,
        expected=SUCCESS_STATUSES | {503},
        with_token=False,
    )
    answer = yield from send_request(settings, request)
    try:
        return decode_model(model_class, answer)
    except Unexpected:
        if answer.status in SUCCESS_STATUSES:
            raise
        raise error_of_problem(read_problem(answer)) from None


def openapi(settings: ClientSettings) -> Steps[dict[str, Any]]:
    """Return the OpenAPI 3.1 document of the API."""
    request = Request("GET", "/openapi.json", repeat=Repeat.READS, with_token=False)
    value = decode_json((yield from send_request(settings, request)))
    if not isinstance(value, dict):
        raise Unexpected("The server's answer is not an OpenAPI document.")
    return value


def _get(settings: ClientSettings, model_class: type[M], url_path: str) -> Steps[M]:
    request = Request("GET", url_path, repeat=Repeat.READS)
    return decode_model(model_class, (yield from send_request(settings, request)))
