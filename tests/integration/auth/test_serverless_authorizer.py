"""The authorizer of the deployed API accepts the admin token and stored tokens only."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from punctual.auth.authenticator import admin_hash
from punctual.domain.tenants.roles import Role
from punctual.domain.tenants.tokens import make_secret
from punctual.engine.ports.audit_log import Actor
from tests.support.builders import NOON, ManualClock
from tests.support.deployed.drivers.authorizer import (
    IN,
    KEY,
    OUT,
    PLAIN,
    TOKEN,
    UNSURE,
    AuthorizerDriver,
    an_authorizer,
    an_event,
    away,
    loaded,
)


@pytest.fixture
def entrance() -> Iterator[AuthorizerDriver]:
    with an_authorizer() as entrance:
        yield entrance


@pytest.fixture
def clock(entrance: AuthorizerDriver) -> ManualClock:
    return entrance.clock


def test_admin_token_is_accepted(entrance: AuthorizerDriver) -> None:
    for scheme in ("Bearer ", "bearer ", "BEARER   ", " Bearer "):
        assert entrance(scheme=scheme) == IN
    assert entrance.store.calls["GetItem"] == 0


def test_header_names_are_case_insensitive(entrance: AuthorizerDriver) -> None:
    event = an_event(Authorization=f"Bearer {TOKEN}")
    assert entrance.authorize(event) == IN
    assert entrance.authorize({**event, "headers": None}) == OUT


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        TOKEN,
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN} {TOKEN}",
        f"Bearer {TOKEN},Bearer {TOKEN}",
        f"Bearer {PLAIN}",
        f"Bearer {admin_hash(KEY, TOKEN)}",
        "Bearer unset",
        "Bearer ä",
        "Bearer " + "a" * 10_000,
        "Bearer a.b.c",
        f"Bearer {make_secret(b'another key', b'r' * 32)}",
    ],
)
def test_invalid_token_is_refused_without_a_read(entrance: AuthorizerDriver, header: str) -> None:
    assert entrance(header, scheme="") == OUT
    assert entrance(None) == OUT
    assert entrance.store.calls["GetItem"] == 0


@pytest.mark.parametrize("stored", ["unset", "-" * 64, "k1:", "k1:ä", PLAIN, TOKEN])
def test_admin_token_is_refused_without_a_valid_hash(
    entrance: AuthorizerDriver, stored: str
) -> None:
    entrance.put("token-hash", stored)
    for token in (TOKEN, stored, PLAIN):
        assert entrance(token) == OUT


def test_admin_hash_may_end_with_a_newline(entrance: AuthorizerDriver) -> None:
    entrance.put("token-hash", f"{admin_hash(KEY, TOKEN)}\n")
    assert entrance(TOKEN) == IN


def test_admin_token_is_refused_without_the_key(entrance: AuthorizerDriver) -> None:
    entrance.drop("token-key")
    assert entrance(TOKEN) == OUT


def test_token_yields_tenant_caller_role_and_expiry(
    entrance: AuthorizerDriver, clock: ManualClock
) -> None:
    until = NOON.replace(year=2027)
    token_id, text = entrance.make(role=Role.VIEWER, until=until)
    assert entrance(text)["context"] == {
        "tenant": "acme",
        "caller": "ci",
        "role": "viewer",
        "token_id": token_id,
        "expires_at": until.isoformat(),
    }
    clock.advance(timedelta(seconds=(until - NOON).total_seconds()))
    assert entrance(text) == OUT


def test_token_is_read_once_and_refused_a_minute_after_revocation(
    entrance: AuthorizerDriver, clock: ManualClock
) -> None:
    token_id, text = entrance.make()
    assert all(entrance(text)["context"] for _ in range(20))
    assert entrance.store.calls["GetItem"] == 1
    entrance.tokens.revoke("acme", token_id, Actor("me"))
    clock.advance(timedelta(seconds=44))
    assert entrance(text)["context"]
    clock.advance(timedelta(seconds=1))
    assert entrance(text) == OUT
    reads = entrance.store.calls["GetItem"]
    assert [entrance(text) for _ in range(20)] == [OUT] * 20
    assert entrance.store.calls["GetItem"] == reads == 2


def test_cache_of_invalid_tokens_is_bounded(entrance: AuthorizerDriver) -> None:
    """The key made these tokens, but no row has them, as after a restore of the table."""
    for number in range(1_050):
        assert entrance(make_secret(KEY, number.to_bytes(32, "big"))) == OUT
    cached = entrance.authorizer._authenticator._tokens._rejected_hashes  # type: ignore[attr-defined]
    assert len(cached) == 1_000


def test_last_use_is_written_once_in_five_minutes(
    entrance: AuthorizerDriver, clock: ManualClock
) -> None:
    token_id, text = entrance.make()
    written = entrance.store.calls["UpdateItem"]
    for _ in range(30):
        assert entrance(text)["context"]
        clock.advance(timedelta(seconds=20))
    assert entrance.store.calls["UpdateItem"] - written == 2
    used = entrance.tokens.load("acme", token_id).last_used_at
    assert used is not None
    assert 0 <= (clock() - used).total_seconds() <= 320


def test_last_use_is_written_once_by_two_instances(entrance: AuthorizerDriver) -> None:
    token_id, text = entrance.make()
    entrance(text)
    first = entrance.tokens.load("acme", token_id).last_used_at
    entrance.renew()
    entrance.clock.advance(timedelta(seconds=60))
    assert entrance(text)["context"]
    assert entrance.tokens.load("acme", token_id).last_used_at == first


def test_failed_write_of_the_last_use_refuses_no_call(
    entrance: AuthorizerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, text = entrance.make()
    monkeypatch.setattr(entrance.store.clients.dynamodb, "update_item", away)
    assert entrance(text)["context"]["tenant"] == "acme"
    assert len(entrance.problems) == 1
    assert entrance(text)["context"]["tenant"] == "acme"
    assert len(entrance.problems) == 1, "the write is not retried on each call"


def test_unreadable_token_row_is_an_outage_not_a_refusal(
    entrance: AuthorizerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, text = entrance.make()
    with monkeypatch.context() as patched:
        patched.setattr(entrance.store.clients.dynamodb, "get_item", away)
        assert entrance(text) == UNSURE
        assert text not in "".join(entrance.problems)
    assert entrance(text)["context"]["tenant"] == "acme"


def test_admin_token_is_replaced_within_a_minute(
    entrance: AuthorizerDriver, clock: ManualClock
) -> None:
    other = make_secret(KEY, b"o" * 32)
    assert entrance() == IN
    entrance.put("token-hash", admin_hash(KEY, other))
    clock.advance(timedelta(seconds=44))
    assert entrance() == IN
    clock.advance(timedelta(seconds=1))
    assert (entrance(), entrance(other)) == (OUT, IN)


def test_clock_set_back_accepts_no_old_token(
    entrance: AuthorizerDriver, clock: ManualClock
) -> None:
    token_id, text = entrance.make()
    assert (entrance(), bool(entrance(text)["context"])) == (IN, True)
    entrance.put("token-hash", "unset")
    entrance.tokens.revoke("acme", token_id, Actor("me"))
    clock.advance(timedelta(seconds=-50))
    assert (entrance(), entrance(text)) == (OUT, OUT)


def test_cached_key_and_hash_are_used_for_ten_minutes(
    entrance: AuthorizerDriver, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert entrance() == IN
    monkeypatch.setattr(entrance.store.clients.ssm, "get_parameter", away)
    clock.advance(timedelta(seconds=599))
    assert (entrance(), entrance("wrong")) == (IN, OUT)
    clock.advance(timedelta(seconds=1))
    assert entrance() == UNSURE


def test_hanging_aws_call_leaves_time_for_an_error_answer(
    entrance: AuthorizerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each hanging attempt takes four seconds, and none begins after the third second."""
    from botocore.exceptions import ReadTimeoutError

    steady, tries = [0.0], []

    def hang(**_: Any) -> Any:
        tries.append(steady[0])
        steady[0] += 4
        raise ReadTimeoutError(endpoint_url="https://x.invalid")

    monkeypatch.setattr("time.monotonic", lambda: steady[0])
    monkeypatch.setattr("time.sleep", lambda _: None)
    clients = entrance.store.clients.__class__(entrance.store.clients._boto3_session)
    clients.ssm.meta.events.register("before-send", hang)
    handler = loaded(monkeypatch, replace(entrance.store, clients=clients))
    assert handler(an_event(authorization=f"Bearer {TOKEN}"), None) == UNSURE
    assert tries == [0.0]
    steady[0] += 60
    assert handler(an_event(authorization=f"Bearer {TOKEN}"), None) == UNSURE
    assert tries == [0.0, 64.0]
