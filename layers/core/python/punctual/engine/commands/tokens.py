"""Commands of an admin: create, list and revoke tokens, and read the webhook secret."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from punctual.domain.errors import LimitExceeded, NotFound
from punctual.domain.tenants.roles import Role
from punctual.domain.tenants.tokens import TOKEN_RANDOM_BYTES, Token, keyed_hash, make_secret
from punctual.domain.timestamps import format_time
from punctual.engine.commands.audit import TOKEN_CREATE, TOKEN_REVOKE, WEBHOOK_SECRET_READ
from punctual.engine.ports.audit_log import Actor, AuditLog, Note
from punctual.engine.ports.clock import Clock, NewId
from punctual.engine.ports.rows import Page
from punctual.engine.ports.tenants.token_rows import (
    LoadTokenKey,
    RandomBytes,
    TokenCounts,
    TokenRows,
)

T = TypeVar("T")
_encode_note = msgspec.json.Encoder().encode
_decode_note = msgspec.json.Decoder(Note).decode


MAX_VALID_TOKENS = 1_000  # valid tokens a tenant
MAX_LISTED_TOKENS = 10_000  # tokens a tenant, including those that ended within the last month
# Seconds until a retry, since only a revocation or expiry makes room.
TOKEN_LIMIT_RETRY_SECONDS = 60.0
REVOCATION_TIMEOUT = timedelta(minutes=15)  # longer than any call lasts


class Tokens:
    """Creates, lists and revokes tokens.

    Admins of `home_tenant` create tokens for all tenants.
    """

    def __init__(
        self,
        rows: TokenRows,
        load_key: LoadTokenKey,
        clock: Clock,
        new_id: NewId,
        random_bytes: RandomBytes,
        home_tenant: str,
        audit: AuditLog,
    ) -> None:
        self.home_tenant = home_tenant
        self._rows = rows
        self._load_key = load_key
        self._clock = clock
        self._new_id = new_id
        self._random_bytes = random_bytes
        self._audit = audit

    def create(
        self,
        tenant: str,
        name: str,
        role: Role,
        expires_at: datetime | None,
        created_by: str,
        actor: Actor | None = None,
        caller_tenant: str = "",
    ) -> tuple[Token, str]:
        """Create a token and return it with its secret, which is never shown again.

        `caller_tenant` is the tenant of the caller. Concurrent calls may exceed the limit by a few
        tokens.
        """
        now = self._clock()
        check_token_limit(self._rows.count(tenant, now))
        token = Token(self._new_id(), tenant, name, role, now, created_by, expires_at=expires_at)
        return self._put(token, actor or Actor(created_by), caller_tenant or tenant)

    def create_first(self, tenant: str, name: str) -> tuple[Token, str]:
        """Create an admin token for a new installation. The limit does not apply."""
        actor = Actor("punctual")
        token = Token(self._new_id(), tenant, name, Role.ADMIN, self._clock(), actor.caller)
        return self._put(token, actor, tenant)

    def _put(self, token: Token, actor: Actor, caller_tenant: str) -> tuple[Token, str]:
        key, tenant = self._load_key(), token.tenant
        token_text = make_secret(key, self._random_bytes(TOKEN_RANDOM_BYTES))
        self._audit.add_note(
            tenant,
            _creation_note(token, actor if caller_tenant == tenant else _public_actor(actor)),
        )
        if caller_tenant != tenant:
            self._audit.add_note(caller_tenant, _creation_note(token, actor))
        self._rows.put(token, keyed_hash(key, token_text))
        return token, token_text

    def load(self, tenant: str, token_id: str) -> Token:
        return _require(self._rows.get(tenant, token_id, self._clock()))

    def page(self, tenant: str, limit: int, after: tuple[str, ...] | None) -> Page:
        before = after[0] if after else None
        tokens = list(self._rows.page(tenant, before, limit + 1, self._clock()))
        has_more = len(tokens) > limit
        return Page(tokens[:limit], (tokens[limit - 1].token_id,) if has_more else None)

    def revoke(self, tenant: str, token_id: str, actor: Actor) -> Token:
        """Revoke a token in the name of the first caller that requested it.

        The first request is stored, then noted, then carried out, so a retry writes the same entry.
        If it is unfinished after `REVOCATION_TIMEOUT`, no call of it is still active. A new request
        then replaces it, because the token was valid in between.
        """
        now = self._clock()
        token = _require(self._rows.get(tenant, token_id, now))
        if token.revoked_at is not None:
            return _require(self._rows.revoke(tenant, token_id, now))
        request = _encode_note(_revocation_note(token_id, actor, now)).decode()
        stored_request = _require(self._rows.store_revocation_request(tenant, token_id, request))
        if now - _decode_note(stored_request).at > REVOCATION_TIMEOUT:
            stored_request = _require(
                self._rows.store_revocation_request(tenant, token_id, request, stored_request)
            )
        note = _decode_note(stored_request)
        self._audit.add_note(tenant, note)  # a repeated note adds no entry
        return _require(self._rows.revoke(tenant, token_id, note.at))

    def has_admin(self, tenant: str) -> bool:
        """Return whether a valid admin token exists."""
        now, before = self._clock(), None
        while rows := self._rows.page(tenant, before, 100, now):
            if any(token.role is Role.ADMIN and token.is_valid(now) for token in rows):
                return True
            before = rows[-1].token_id
        return False


class WebhookSecretReader:
    """Reads the webhook secret of a tenant for an admin."""

    def __init__(self, secret_of: Callable[[str], str], audit: AuditLog) -> None:
        self._secret_of = secret_of
        self._audit = audit

    def read(self, tenant: str, actor: Actor, now: datetime) -> str:
        """Return the tenant's secret. The audit names the reader before the secret is shown."""
        secret = self._secret_of(tenant)
        self._audit.add_note(tenant, Note(actor, WEBHOOK_SECRET_READ, now))
        return secret


def is_below_token_limit(counts: TokenCounts) -> bool:
    return counts.valid < MAX_VALID_TOKENS and counts.listed < MAX_LISTED_TOKENS


def check_token_limit(counts: TokenCounts) -> None:
    if counts.valid >= MAX_VALID_TOKENS:
        text = (
            f"A tenant has at most {MAX_VALID_TOKENS} valid tokens: revoke some "
            "(DELETE /tokens/{token_id}), or let them expire."
        )
        raise LimitExceeded(text, TOKEN_LIMIT_RETRY_SECONDS)
    if counts.listed >= MAX_LISTED_TOKENS:
        text = (
            f"A tenant has at most {MAX_LISTED_TOKENS} tokens that are valid or ended within the "
            "last 30 days: use each for longer."
        )
        raise LimitExceeded(text, TOKEN_LIMIT_RETRY_SECONDS)


def _creation_note(token: Token, actor: Actor) -> Note:
    """Return the note of a new token. It is written before the token, so no token lacks one."""
    expires_at = None if token.expires_at is None else format_time(token.expires_at)
    after = {
        "tenant": token.tenant,
        "name": token.name,
        "role": token.role.label,
        "expires_at": expires_at,
    }
    return Note(actor, TOKEN_CREATE, token.created_at, "", token.token_id, after=after)


def _revocation_note(token_id: str, actor: Actor, now: datetime) -> Note:
    before: dict[str, None] = {"revoked_at": None}
    after = {"revoked_at": format_time(now)}
    return Note(actor, TOKEN_REVOKE, now, "", token_id, before=before, after=after)


def _public_actor(actor: Actor) -> Actor:
    """Return the actor as another tenant may see it: caller name and request id only."""
    return Actor(actor.caller, request_id=actor.request_id)


def _require(value: T | None) -> T:
    if value is None:
        raise NotFound("There is no such token.")
    return value
