"""The calls on schedules, tokens, the audit and the installation."""

from datetime import datetime
from typing import Any, Unpack

from punctual.client.call_steps import Core, Steps, Stream, ask
from punctual.client.error_mapping import of_problem, problem_of
from punctual.client.errors import Unexpected
from punctual.client.fields import Moment, Role, ScheduleFields
from punctual.client.installation import (
    AuditEntry,
    Health,
    Identity,
    NewToken,
    Preview,
    Probe,
    Stats,
    Token,
    Upcoming,
    WebhookSecret,
)
from punctual.client.job import Job
from punctual.client.model import M, one, parsed, seen
from punctual.client.paging import paged
from punctual.client.wire import SUCCESSFUL, Repeat, Request, body, path, query


def preview(
    core: Core,
    *,
    from_: Moment | None = None,
    count: int | None = None,
    **schedule: Unpack[ScheduleFields],
) -> Steps[Preview]:
    """Return the times of a schedule after `from_`, with warnings about clock changes."""
    rest = {"from": from_, "count": count}
    sent = body({**schedule, **{name: v for name, v in rest.items() if v is not None}})
    request = Request("POST", "/schedules/preview", body=sent, repeat=Repeat.READS)
    return one(Preview, (yield from ask(core, request)))


def upcoming(
    core: Core, *, from_: Moment | None = None, to: Moment | None = None, limit: int | None = None
) -> Stream[Upcoming]:
    """Yield the occurrences of all jobs in order of time, for at most 31 days."""
    filters = query(from_=from_, to=to)
    return paged(
        core, "/schedules/upcoming", filters, "times", lambda value: seen(Upcoming, value), limit
    )


def create_token(
    core: Core,
    *,
    name: str,
    role: Role,
    expires_at: datetime | str | None = None,
    tenant: str | None = None,
) -> Steps[NewToken]:
    """Create a token. The server returns its secret, `token`, only this once."""
    sent = {"name": name, "role": role, "expires_at": expires_at}
    if tenant is not None:
        sent["tenant"] = tenant
    request = Request("POST", "/tokens", body=body(sent))
    return one(NewToken, (yield from ask(core, request)))


def tokens(core: Core, *, limit: int | None = None) -> Stream[Token]:
    """Yield the tokens, the newest first."""
    return paged(core, "/tokens", (), "tokens", lambda value: seen(Token, value), limit)


def get_token(core: Core, token_id: str) -> Steps[Token]:
    return _read(core, Token, path("tokens", token_id))


def revoke_token(core: Core, token_id: str) -> Steps[Token]:
    """Revoke a token. Calls with it fail within a minute. A repeated call changes nothing."""
    request = Request("DELETE", path("tokens", token_id), repeat=Repeat.SAFE)
    return one(Token, (yield from ask(core, request)))


def webhook_secret(core: Core) -> Steps[str]:
    """Return the secret that signs the tenant's webhooks, for `verify_webhook`."""
    request = Request("GET", "/webhook-secret", repeat=Repeat.READS)
    return one(WebhookSecret, (yield from ask(core, request))).secret


def audit(
    core: Core,
    *,
    job_id: str | Job | None = None,
    caller: str | None = None,
    action: str | None = None,
    from_: Moment | None = None,
    to: Moment | None = None,
    limit: int | None = None,
) -> Stream[AuditEntry]:
    """Yield the changes in the audit, the newest first."""
    of = job_id.job_id if isinstance(job_id, Job) else job_id
    filters = query(job_id=of, caller=caller, action=action, from_=from_, to=to)
    return paged(core, "/audit", filters, "entries", lambda v: seen(AuditEntry, v), limit)


def whoami(core: Core) -> Steps[Identity]:
    return _read(core, Identity, "/whoami")


def stats(core: Core) -> Steps[Stats]:
    return _read(core, Stats, "/stats")


def health(core: Core) -> Steps[Health]:
    """Return the health of the installation. `late` and `down` are answers, not errors."""
    return _probed(core, Health, "/health")


def live(core: Core) -> Steps[Probe]:
    """Return the answer of the liveness check."""
    return _probed(core, Probe, "/health/live")


def ready(core: Core) -> Steps[Probe]:
    """Return whether the installation accepts requests and fires jobs.

    The status `down` is an answer, not an error.
    """
    return _probed(core, Probe, "/health/ready")


def _probed(core: Core, kind: type[M], where: str) -> Steps[M]:
    request = Request(
        "GET",
        where,
        repeat=Repeat.READS,
        expected=SUCCESSFUL | {503},
        with_token=False,
    )
    answer = yield from ask(core, request)
    try:
        return one(kind, answer)
    except Unexpected:
        if answer.status in SUCCESSFUL:
            raise
        raise of_problem(problem_of(answer)) from None


def openapi(core: Core) -> Steps[dict[str, Any]]:
    """Return the OpenAPI 3.1 document of the API."""
    request = Request("GET", "/openapi.json", repeat=Repeat.READS, with_token=False)
    value = parsed((yield from ask(core, request)))
    if not isinstance(value, dict):
        raise Unexpected("The server's answer is no OpenAPI document.")
    return value


def _read(core: Core, kind: type[M], where: str) -> Steps[M]:
    request = Request("GET", where, repeat=Repeat.READS)
    return one(kind, (yield from ask(core, request)))
