"""Tokens as an admin handles them: made once, listed, taken back."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from punctual.domain.errors import LimitExceeded, NotFound
from punctual.domain.tenants.roles import Role
from punctual.domain.tenants.tokens import RANDOM_BYTES, Token, keyed_hash, secret
from punctual.engine.commands.audit import (
    TOKEN_CREATE,
    TOKEN_REVOKE,
    Actor,
    AuditLog,
    Note,
    moment_text,
)
from punctual.engine.ports.clock import Clock, NewId
from punctual.engine.queries.views import Page

# Secret bytes: the key is asked for when a token is made, and not before.
Key = Callable[[], bytes]
Random = Callable[[int], bytes]

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Note).decode


MOST_GOOD = 1_000  # tokens of a tenant; whoever needs more shares them too little
MOST_KEPT = 10_000  # with those that ended within the last month, which are still shown
AGAIN = 60.0  # seconds; only people and time make room
GIVEN_UP = timedelta(minutes=15)  # no call lasts longer


class Counted(NamedTuple):
    good: int
    kept: int


class TokenRows(Protocol):
    """Rows whose `forgotten_at` has passed are never returned, whenever they are removed."""

    def put(self, token: Token, hashed: str) -> None:
        """A new one; it can be used when this returns."""

    def get(self, tenant: str, token_id: str, now: datetime) -> Token | None: ...

    def page(self, tenant: str, before: str | None, limit: int, now: datetime) -> Sequence[Token]:
        """Of one tenant with `token_id < before`, newest first."""

    def wished(self, tenant: str, token_id: str, wish: str, old: str = "", /) -> str | None:
        """What was first asked of it: this, or what somebody asked before, but for the `old` wish.
        None: no such token."""

    def count(self, tenant: str, now: datetime) -> Counted:
        """How many are good, and how many are shown."""

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
        """The token, and its secret, which nobody can be told again; `of` is its maker's tenant.

        Several made in the same moment may together be a few more than may be.
        """
        now = self._clock()
        check_room(self._rows.count(tenant, now))
        token = Token(self._new_id(), tenant, name, role, now, created_by, expires_at=expires_at)
        return self._put(token, by or Actor(created_by), of or tenant)

    def create_first(self, tenant: str, name: str) -> tuple[Token, str]:
        """An admin's, by whoever starts the installation: also where there is no room."""
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
        """Who asks first is noted, then it is done: in that name, whoever does it.

        Where that failed, and nobody asked again for so long that no call of then can still be
        on its way, it begins anew: the token was good in between, and nothing may say otherwise.
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
        self._audit.note(tenant, first)  # the same again is no second line
        return _there(self._rows.revoke(tenant, token_id, first.at))

    def has_admin(self, tenant: str) -> bool:
        """Whether somebody can get in who may make more of them."""
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
    """Noted ahead of the token itself: there is none that nobody made."""
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
    """As another tenant may know who acted in it: by name, and by the request to ask about."""
    return Actor(by.caller, request_id=by.request_id)


def _there(found: T | None) -> T:
    if found is None:
        raise NotFound("There is no such token.")
    return found
