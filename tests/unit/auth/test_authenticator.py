"""The check of a token: its reads of rows, and its caches."""

from datetime import timedelta
from typing import Any

import pytest

from punctual.auth.authenticator import (
    Identity,
    TokenAuthenticator,
    TokenSecrets,
    admin_hash,
    admin_identity,
)
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
from tests.support.builders import NOON, ManualClock, an_id

KEY = b"k" * 32
ADMIN = make_secret(KEY, b"a" * 32)
SECRET = make_secret(KEY, b"t" * 32)
TOKEN_HASH = keyed_hash(KEY, SECRET)
IDENTITY = Identity("acme", "ci", Role.EDITOR, an_id(1))


class CountingTokenRows:
    """Token rows that count the reads."""

    def __init__(self) -> None:
        token = Token(an_id(1), "acme", "ci", Role.EDITOR, NOON, "me")
        self.rows: dict[str, Token] = {TOKEN_HASH: token}
        self.reads: list[str] = []
        self.recorded_uses: list[Any] = []
        self.is_away = False
        self.is_full = False

    def find(self, token_hash: str) -> Token | None:
        self.reads.append(token_hash)
        if self.is_away:
            raise Unavailable("away")
        return self.rows.get(token_hash)

    def record_use(self, token_hash: str, now: Any) -> None:
        if self.is_full:
            raise Unavailable("full")
        self.recorded_uses.append((token_hash, now))
        self.rows[token_hash] = self.rows[token_hash]._replace(last_used_at=now)


class AuthenticatorSetup:
    def __init__(self, cache_seconds: float = 45.0) -> None:
        self.clock = ManualClock(NOON)
        self.rows = CountingTokenRows()
        self.problems: list[str] = []
        self.secrets = TokenSecrets(KEY, admin_hash(KEY, ADMIN))
        self.authenticator = TokenAuthenticator(
            lambda: self.secrets,
            self.rows,
            self.clock,
            lambda: self.clock().timestamp(),
            self.problems.append,
            admin_identity("default"),
            cache_seconds,
        )

    def advance(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))


def test_admin_is_identified_without_a_read() -> None:
    setup = AuthenticatorSetup()
    assert setup.authenticator.identify(ADMIN) == Identity("default", "admin", Role.ADMIN)
    assert setup.rows.reads == []


def test_admin_hash_without_a_key_identifies_no_caller() -> None:
    setup = AuthenticatorSetup()
    setup.secrets = TokenSecrets(b"", admin_hash(b"", ADMIN))
    assert setup.authenticator.identify(ADMIN) is None


def test_token_not_made_with_the_key_is_refused_without_a_read() -> None:
    setup = AuthenticatorSetup()
    assert setup.authenticator.identify(make_secret(b"x" * 32, b"t" * 32)) is None
    assert setup.authenticator.identify(SECRET[:-1]) is None
    assert setup.rows.reads == []


def test_valid_token_is_read_again_after_the_cache_period() -> None:
    setup = AuthenticatorSetup()
    for _ in range(90):
        assert setup.authenticator.identify(SECRET) == IDENTITY
        setup.advance(1)
    assert len(setup.rows.reads) == 2


def test_revoked_token_without_a_cache_is_refused_at_once() -> None:
    setup = AuthenticatorSetup(cache_seconds=0)
    assert setup.authenticator.identify(SECRET) == IDENTITY
    setup.rows.rows[TOKEN_HASH] = setup.rows.rows[TOKEN_HASH]._replace(revoked_at=NOON)
    assert setup.authenticator.identify(SECRET) is None
    assert len(setup.rows.reads) == 2


def test_unknown_token_is_cached_until_the_cache_period_ends() -> None:
    setup = AuthenticatorSetup()
    token = setup.rows.rows.pop(TOKEN_HASH)
    assert [setup.authenticator.identify(SECRET) for _ in range(5)] == [None] * 5
    assert len(setup.rows.reads) == 1
    setup.rows.rows[TOKEN_HASH] = token
    setup.advance(45)
    assert setup.authenticator.identify(SECRET) == IDENTITY


def test_cached_token_ends_at_its_expiry() -> None:
    setup = AuthenticatorSetup()
    ends = NOON + timedelta(seconds=10)
    setup.rows.rows[TOKEN_HASH] = setup.rows.rows[TOKEN_HASH]._replace(expires_at=ends)
    assert setup.authenticator.identify(SECRET) == IDENTITY._replace(expires_at=ends)
    setup.advance(10)
    assert setup.authenticator.identify(SECRET) is None


def test_stale_token_during_an_outage_is_unavailable() -> None:
    setup = AuthenticatorSetup()
    assert setup.authenticator.identify(SECRET) == IDENTITY
    setup.rows.is_away = True
    assert setup.authenticator.identify(SECRET) == IDENTITY
    setup.advance(45)
    with pytest.raises(Unavailable):
        setup.authenticator.identify(SECRET)


@pytest.mark.parametrize("cache_seconds", [0.0, 45.0])
def test_token_use_is_recorded_once_in_five_minutes(cache_seconds: float) -> None:
    setup = AuthenticatorSetup(cache_seconds)
    for _ in range(60):
        setup.authenticator.identify(SECRET)
        setup.advance(10)
    assert [at - NOON for _, at in setup.rows.recorded_uses] == [timedelta(), LAST_USED_RESOLUTION]


def test_failed_record_of_use_is_reported_and_the_token_is_accepted() -> None:
    setup = AuthenticatorSetup()
    setup.rows.is_full = True
    assert [setup.authenticator.identify(SECRET) for _ in range(3)] == [IDENTITY] * 3
    assert setup.problems == ["full"], "and it is not tried with each call"


def test_token_row_is_deleted_after_the_retention_of_invalid_tokens() -> None:
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


def test_issuer_config_round_trips_through_the_environment() -> None:
    assert IssuerConfig.from_env({"PUNCTUAL_AUTH": "on", "PUNCTUAL_OIDC_ISSUER": ""}) is None
    config = IssuerConfig("https://id.example.com", "punctual", "org", "groups")
    assert IssuerConfig.from_env(config.to_env()) == config
    with_client_id = config._replace(client_id="pages")
    assert IssuerConfig.from_env(with_client_id.to_env()) == with_client_id
    minimal_env = {"PUNCTUAL_OIDC_ISSUER": config.issuer, "PUNCTUAL_OIDC_AUDIENCE": "punctual"}
    assert IssuerConfig.from_env(minimal_env) == config._replace(
        tenant_claim="tenant", role_claim="role"
    )


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
def test_invalid_issuer_setting_is_refused_by_its_name(changed: dict[str, str]) -> None:
    env = IssuerConfig("https://id.example.com", "punctual").to_env()
    with pytest.raises(IssuerConfigError) as refused:
        IssuerConfig.from_env(
            env | {f"PUNCTUAL_OIDC_{name}": text for name, text in changed.items()}
        )
    assert f"PUNCTUAL_OIDC_{next(iter(changed))}" in str(refused.value)
