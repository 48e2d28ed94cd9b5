"""Token commands of an admin: create, list and revoke."""

from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from punctual.domain.errors import LimitExceeded, NotFound
from punctual.domain.tenants.roles import Role
from punctual.domain.tenants.tokens import RANDOM_BYTES, Token, keyed_hash, secret
from punctual.engine.commands.audit import TOKEN_CREATE, TOKEN_REVOKE, moment_text
from punctual.engine.ports.audit_log import Actor, AuditLog, Note
from punctual.engine.ports.clock import Clock, NewId
from punctual.engine.ports.token_rows import Counted, Random, TokenKey, TokenRows
from punctual.engine.queries.views import Page

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Note).decode


MOST_GOOD = 1_000  # valid tokens a tenant
MOST_KEPT = 10_000  # tokens a tenant, including those that ended within the last month
AGAIN = 60.0  # seconds until a retry, since only a revocation or expiry makes room
GIVEN_UP = timedelta(minutes=15)  # longer than any call lasts


class Tokens:
    """Creates, lists and revokes tokens.

    Admins of the tenant `home` create tokens for all tenants.
    """

    def __init__(
        self,
        rows: TokenRows,
        key: TokenKey,
        clock: Clock,
        new_id: NewId,
        random: Random,
        home: str,
        audit: AuditLog,
    ) -> None:
        self.home = home
        self._rows = rows
        self._key = key
        self._clock = clock
        self._new_id = new_id
        self._random = random
        self._audit = audit

    def create(
        self,
        tenant: str,
        name: str,
        role: Role,
        expires_at: datetime | None,
        created_by: str,
        by: Actor | None = None,
        of: str = "",
    ) -> tuple[Token, str]:
        """Create a token and return it with its secret, which is never shown again.

        `of` is the tenant of the caller. Concurrent calls may exceed the limit by a few tokens.
        """
        now = self._clock()
        check_room(self._rows.count(tenant, now))
        token = Token(self._new_id(), tenant, name, role, now, created_by, expires_at=expires_at)
        return self._put(token, by or Actor(created_by), of or tenant)

    def create_first(self, tenant: str, name: str) -> tuple[Token, str]:
        """Create an admin token for a new installation. The limit does not apply."""
        maker = Actor("punctual")
        token = Token(self._new_id(), tenant, name, Role.ADMIN, self._clock(), maker.caller)
        return self._put(token, maker, tenant)

    def _put(self, token: Token, maker: Actor, home: str) -> tuple[Token, str]:
        key, tenant = self._key(), token.tenant
        text = secret(key, self._random(RANDOM_BYTES))
        self._audit.note(tenant, _made(token, maker if home == tenant else _from_outside(maker)))
        if home != tenant:
            self._audit.note(home, _made(token, maker))
        self._rows.put(token, keyed_hash(key, text))
        return token, text

    def one(self, tenant: str, token_id: str) -> Token:
        return _there(self._rows.get(tenant, token_id, self._clock()))

    def page(self, tenant: str, limit: int, after: tuple[str, ...] | None) -> Page:
        before = after[0] if after else None
        found = list(self._rows.page(tenant, before, limit + 1, self._clock()))
        more = len(found) > limit
        return Page(found[:limit], (found[limit - 1].token_id,) if more else None)

    def revoke(self, tenant: str, token_id: str, by: Actor) -> Token:
        """Revoke a token in the name of the first caller that requested it.

        The first request is stored, then noted, then carried out, so a retry writes the same entry.
        If it is unfinished after `GIVEN_UP`, no call of it is still active. A new request then
        replaces it, because the token was valid in between.
        """
        now = self._clock()
        token = _there(self._rows.get(tenant, token_id, now))
        if token.revoked_at is not None:
            return _there(self._rows.revoke(tenant, token_id, now))
        wish = _encode(_taken_back(token_id, by, now)).decode()
        stands = _there(self._rows.wished(tenant, token_id, wish))
        if now - _decode(stands).at > GIVEN_UP:
            stands = _there(self._rows.wished(tenant, token_id, wish, stands))
        first = _decode(stands)
        self._audit.note(tenant, first)  # a repeated note adds no entry
        return _there(self._rows.revoke(tenant, token_id, first.at))

    def has_admin(self, tenant: str) -> bool:
        """Return whether a valid admin token exists."""
        now, before = self._clock(), None
        while rows := self._rows.page(tenant, before, 100, now):
            if any(token.role is Role.ADMIN and token.good(now) for token in rows):
                return True
            before = rows[-1].token_id
        return False


def has_room(counted: Counted) -> bool:
    return counted.good < MOST_GOOD and counted.kept < MOST_KEPT


def check_room(counted: Counted) -> None:
    if counted.good >= MOST_GOOD:
        text = (
            f"This tenant has {MOST_GOOD} tokens that are good, as many as it may: take some back "
            "(DELETE /tokens/{token_id}), or let them expire."
        )
        raise LimitExceeded(text, AGAIN)
    if counted.kept >= MOST_KEPT:
        text = (
            f"This tenant has made {MOST_KEPT} tokens that are good or ended within the last 30 "
            "days, as many as it may: use each for longer."
        )
        raise LimitExceeded(text, AGAIN)


def _made(token: Token, by: Actor) -> Note:
    """Return the note of a new token. It is written before the token, so no token lacks one."""
    expires_at = None if token.expires_at is None else moment_text(token.expires_at)
    after = {
        "tenant": token.tenant,
        "name": token.name,
        "role": token.role.word,
        "expires_at": expires_at,
    }
    return Note(by, TOKEN_CREATE, token.created_at, "", token.token_id, after=after)


def _taken_back(token_id: str, by: Actor, now: datetime) -> Note:
    before: dict[str, None] = {"revoked_at": None}
    after = {"revoked_at": moment_text(now)}
    return Note(by, TOKEN_REVOKE, now, "", token_id, before=before, after=after)


def _from_outside(by: Actor) -> Actor:
    """Return the actor as another tenant may see it: caller name and request id only."""
    return Actor(by.caller, request_id=by.request_id)


def _there(found: T | None) -> T:
    if found is None:
        raise NotFound("There is no such token.")
    return found
