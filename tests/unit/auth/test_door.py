"""The check of a token: its reads of rows, and its caches."""

from datetime import timedelta
from typing import Any

import pytest

from punctual.auth.authenticator import TokenAuthenticator, TokenSecrets, admin_hash, admin_identity
from punctual.auth.bearer import Identity
from punctual.auth.issuer_config import IssuerConfig, IssuerConfigError
from punctual.domain.errors import Unavailable
from punctual.domain.tenants.roles import Role
from punctual.domain.tenants.tokens import (
    INVALID_TOKEN_RETENTION,
    LAST_USED_RESOLUTION,
    Token,
    keyed_hash,
    make_secret,
)
from punctual.node.clock import ManualClock
from tests.support.builders import NOON, an_id

KEY = b"k" * 32
ADMIN = make_secret(KEY, b"a" * 32)
TEXT = make_secret(KEY, b"t" * 32)
HASHED = keyed_hash(KEY, TEXT)
WHO = Identity("acme", "ci", Role.EDITOR, an_id(1))


class Known:
    """Token rows that count the reads."""

    def __init__(self) -> None:
        token = Token(an_id(1), "acme", "ci", Role.EDITOR, NOON, "me")
        self.rows: dict[str, Token] = {HASHED: token}
        self.found: list[str] = []
        self.noted: list[Any] = []
        self.away = False
        self.full = False

    def find(self, token_hash: str) -> Token | None:
        self.found.append(token_hash)
        if self.away:
            raise Unavailable("away")
        return self.rows.get(token_hash)

    def record_use(self, token_hash: str, now: Any) -> None:
        if self.full:
            raise Unavailable("full")
        self.noted.append((token_hash, now))
        self.rows[token_hash] = self.rows[token_hash]._replace(last_used_at=now)


class House:
    def __init__(self, fresh: float = 45.0) -> None:
        self.clock = ManualClock(NOON)
        self.rows = Known()
        self.problems: list[str] = []
        self.secrets = TokenSecrets(KEY, admin_hash(KEY, ADMIN))
        self.door = TokenAuthenticator(
            lambda: self.secrets,
            self.rows,
            self.clock,
            lambda: self.clock().timestamp(),
            self.problems.append,
            admin_identity("default"),
            fresh,
        )

    def later(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))


def test_the_admin_is_known_without_a_row() -> None:
    house = House()
    assert house.door.identify(ADMIN) == Identity("default", "admin", Role.ADMIN)
    assert house.rows.found == []


def test_an_admin_hash_is_nobodys_where_there_is_no_key() -> None:
    house = House()
    house.secrets = TokenSecrets(b"", admin_hash(b"", ADMIN))
    assert house.door.identify(ADMIN) is None


def test_what_the_key_did_not_make_costs_nothing() -> None:
    house = House()
    assert house.door.identify(make_secret(b"x" * 32, b"t" * 32)) is None
    assert house.door.identify(TEXT[:-1]) is None
    assert house.rows.found == []


def test_a_good_token_is_read_again_when_it_is_stale() -> None:
    house = House()
    for _ in range(90):
        assert house.door.identify(TEXT) == WHO
        house.later(1)
    assert len(house.rows.found) == 2


def test_where_a_read_costs_nothing_what_is_taken_back_is_refused_at_once() -> None:
    house = House(fresh=0)
    assert house.door.identify(TEXT) == WHO
    house.rows.rows[HASHED] = house.rows.rows[HASHED]._replace(revoked_at=NOON)
    assert house.door.identify(TEXT) is None
    assert len(house.rows.found) == 2


def test_a_token_is_remembered_as_no_good_for_a_while_alone() -> None:
    house = House()
    token = house.rows.rows.pop(HASHED)
    assert [house.door.identify(TEXT) for _ in range(5)] == [None] * 5
    assert len(house.rows.found) == 1
    house.rows.rows[HASHED] = token
    house.later(45)
    assert house.door.identify(TEXT) == WHO


def test_a_remembered_token_ends_when_it_says() -> None:
    house = House()
    ends = NOON + timedelta(seconds=10)
    house.rows.rows[HASHED] = house.rows.rows[HASHED]._replace(expires_at=ends)
    assert house.door.identify(TEXT) == WHO._replace(expires_at=ends)
    house.later(10)
    assert house.door.identify(TEXT) is None


def test_an_outage_gives_no_grace_to_what_may_be_taken_back() -> None:
    house = House()
    assert house.door.identify(TEXT) == WHO
    house.rows.away = True
    assert house.door.identify(TEXT) == WHO
    house.later(45)
    with pytest.raises(Unavailable):
        house.door.identify(TEXT)


@pytest.mark.parametrize("fresh", [0.0, 45.0])
def test_a_use_is_noted_once_in_five_minutes(fresh: float) -> None:
    house = House(fresh)
    for _ in range(60):
        house.door.identify(TEXT)
        house.later(10)
    assert [at - NOON for _, at in house.rows.noted] == [timedelta(), LAST_USED_RESOLUTION]


def test_a_use_that_cannot_be_noted_is_told_and_keeps_nobody_out() -> None:
    house = House()
    house.rows.full = True
    assert [house.door.identify(TEXT) for _ in range(3)] == [WHO] * 3
    assert house.problems == ["full"], "and it is not tried with each call"


def test_a_token_is_forgotten_a_month_after_its_end() -> None:
    token = Token(an_id(1), "acme", "ci", Role.EDITOR, NOON, "me")
    assert token.delete_at() is None
    ends = NOON + timedelta(days=9)
    assert token._replace(expires_at=ends).delete_at() == ends + INVALID_TOKEN_RETENTION
    assert (
        token._replace(expires_at=ends, revoked_at=NOON).delete_at()
        == NOON + INVALID_TOKEN_RETENTION
    )
    assert (
        token._replace(revoked_at=ends + INVALID_TOKEN_RETENTION, expires_at=ends).delete_at()
        == ends + INVALID_TOKEN_RETENTION
    )


def test_trust_is_read_whole_or_not_at_all() -> None:
    assert IssuerConfig.from_env({"PUNCTUAL_AUTH": "on", "PUNCTUAL_OIDC_ISSUER": ""}) is None
    full = IssuerConfig("https://id.example.com", "punctual", "org", "groups")
    assert IssuerConfig.from_env(full.to_env()) == full
    named = full._replace(client_id="pages")
    assert IssuerConfig.from_env(named.to_env()) == named
    least = {"PUNCTUAL_OIDC_ISSUER": full.issuer, "PUNCTUAL_OIDC_AUDIENCE": "punctual"}
    assert IssuerConfig.from_env(least) == full._replace(tenant_claim="tenant", role_claim="role")


@pytest.mark.parametrize(
    "changed",
    [
        {"ISSUER": ""},
        {"ISSUER": "http://id.example.com"},
        {"ISSUER": "https://id.example.com/?x"},
        {"ISSUER": "https://a@id.example.com/"},
        {"ISSUER": "https://id.example.com:0/"},
        {"ISSUER": "https://id.example.com:x/"},
        {"ISSUER": "https://[::1/"},
        {"AUDIENCE": ""},
        {"AUDIENCE": "a b"},
        {"TENANT_CLAIM": "a\n"},
        {"ROLE_CLAIM": "x" * 513},
        {"CLIENT_ID": "a b"},
    ],
)
def test_an_issuer_that_cannot_be_is_refused(changed: dict[str, str]) -> None:
    env = IssuerConfig("https://id.example.com", "punctual").to_env()
    with pytest.raises(IssuerConfigError) as refused:
        IssuerConfig.from_env(
            env | {f"PUNCTUAL_OIDC_{name}": text for name, text in changed.items()}
        )
    assert f"PUNCTUAL_OIDC_{next(iter(changed))}" in str(refused.value)
