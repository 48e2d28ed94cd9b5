"""Tokens as an admin handles them: made once, listed, taken back."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from punctual.domain.access import Role
from punctual.domain.errors import NotFound
from punctual.domain.tokens import RANDOM_BYTES, Token, keyed_hash, secret
from punctual.engine.audit import TOKEN_CREATE, TOKEN_REVOKE, Actor, AuditLog, Note, moment_text
from punctual.engine.ports import Clock, NewId
from punctual.engine.views import Page

# Secret bytes: the key is asked for when a token is made, and not before.
Key = Callable[[], bytes]
Random = Callable[[int], bytes]


class TokenRows(Protocol):
    """Rows whose `forgotten_at` has passed are never returned, whenever they are removed."""

    def put(self, token: Token, hashed: str) -> None:
        """A new one; it can be used when this returns."""

    def get(self, tenant: str, token_id: str, now: datetime) -> Token | None: ...

    def page(self, tenant: str, before: str | None, limit: int, now: datetime) -> Sequence[Token]:
        """Of one tenant with `token_id < before`, newest first."""

    def revoke(self, tenant: str, token_id: str, now: datetime) -> Token | None:
        """As it stands then: the first time counts. None where there is no such token."""


class KnownTokens(Protocol):
    """What checks a call asks of the same rows."""

    def find(self, hashed: str) -> Token | None:
        """Whether it is good or not."""

    def used(self, hashed: str, now: datetime) -> None:
        """Take note of it, unless that was done less than `USED` ago."""


class Tokens:
    """`home` is the installation's own tenant, whose admins make tokens for all others."""

    def __init__(
        self,
        rows: TokenRows,
        key: Key,
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
        """The token, and its secret, which nobody can be told again; `of` is its maker's tenant."""
        key = self._key()
        text = secret(key, self._random(RANDOM_BYTES))
        token = Token(
            self._new_id(), tenant, name, role, self._clock(), created_by, expires_at=expires_at
        )
        for where in dict.fromkeys((tenant, of or tenant)):
            self._audit.note(where, _made(token, by or Actor(created_by)))
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
        now = self._clock()
        token = _there(self._rows.get(tenant, token_id, now))
        if token.revoked_at is None:
            after = {"revoked_at": moment_text(now)}
            before: dict[str, None] = {"revoked_at": None}
            note = Note(by, TOKEN_REVOKE, now, "", token_id, before=before, after=after)
            self._audit.note(tenant, note)
        return _there(self._rows.revoke(tenant, token_id, now))

    def has_admin(self, tenant: str) -> bool:
        """Whether somebody can get in who may make more of them."""
        now, before = self._clock(), None
        while rows := self._rows.page(tenant, before, 100, now):
            if any(token.role is Role.ADMIN and token.good(now) for token in rows):
                return True
            before = rows[-1].token_id
        return False


def _made(token: Token, by: Actor) -> Note:
    """Noted ahead of the token itself: there is none that nobody made."""
    expires_at = None if token.expires_at is None else moment_text(token.expires_at)
    after = {
        "tenant": token.tenant,
        "name": token.name,
        "role": token.role.word,
        "expires_at": expires_at,
    }
    return Note(by, TOKEN_CREATE, token.created_at, "", token.token_id, after=after)


def _there(token: Token | None) -> Token:
    if token is None:
        raise NotFound("There is no such token.")
    return token
