"""Token rows follow the same rules in every store."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from punctual.aws.dynamodb.control.tokens import AuthorizerTokens, DynamoTokens
from punctual.aws.ports import build_dynamo_client
from punctual.aws.retries import RetryPolicy
from punctual.domain.identifiers import sortable_id
from punctual.domain.tenants.roles import Role
from punctual.domain.tenants.tokens import INVALID_TOKEN_RETENTION, LAST_USED_RESOLUTION, Token
from punctual.engine.ports.tenants.token_rows import TokenLookup, TokenRows
from punctual.node.sqlite.store import Store
from tests.support.aws.moto_adapter import moto
from tests.support.builders import NOON, ManualClock, after, an_id
from tests.support.simulation.small_ports import MemoryTokens

LATER = NOON + timedelta(days=9)


class Rows(NamedTuple):
    listed: TokenRows
    known: TokenLookup


@pytest.fixture(params=["aws", "embedded", "memory"])
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rows]:
    if request.param == "aws":
        with moto(ManualClock(NOON)) as aws:
            patience = RetryPolicy(lambda _: None, seed="test", tries=1)
            table = aws.settings.control_table
            door = AuthorizerTokens(lambda: aws.clients.dynamodb, table, patience)
            yield Rows(DynamoTokens(build_dynamo_client(aws.clients), table), door)
    elif request.param == "embedded":
        store = Store.open(tmp_path / "data", ManualClock(NOON))
        yield Rows(store.tokens, store.tokens)
        store.close()
    else:
        memory = MemoryTokens()
        yield Rows(memory, memory)


def a_token(number: int = 1, tenant: str = "acme", **changed: Any) -> Token:
    token = Token(an_id(number), tenant, "ci", Role.EDITOR, NOON, "me")
    return token._replace(**changed)


def put(rows: Rows, *tokens: Token) -> None:
    for token in tokens:
        rows.listed.put(token, f"{token.tenant}-{token.token_id}")


def test_token_is_found_by_id_and_by_hash(rows: Rows) -> None:
    full = a_token(expires_at=LATER, name="ü \U0001f511", role=Role.VIEWER)
    rows.listed.put(full, "ab" * 32)
    assert rows.listed.get("acme", full.token_id, NOON) == full
    assert rows.known.find("ab" * 32) == full
    assert rows.known.find("ac" * 32) is None
    assert rows.listed.get("acme", an_id(2), NOON) is None


def test_token_of_another_tenant_is_not_found(rows: Rows) -> None:
    put(rows, a_token(1), a_token(2, "globex"), a_token(3, "acme-2"))
    for tenant in ("globex", "acme-2", "acm", "acme#tokens", ""):
        assert rows.listed.get(tenant, an_id(1), NOON) is None
        assert rows.listed.revoke(tenant, an_id(1), NOON) is None
    assert [token.token_id for token in rows.listed.page("acme", None, 9, NOON)] == [an_id(1)]
    stored = rows.listed.get("acme", an_id(1), NOON)
    assert stored is not None
    assert stored.revoked_at is None


def test_token_list_is_newest_first_and_continues_after_a_token(rows: Rows) -> None:
    put(rows, *(a_token(number) for number in range(1, 121)), a_token(200, "globex"))
    page = rows.listed.page("acme", None, 50, NOON)
    assert [token.token_id for token in page] == [an_id(number) for number in range(120, 70, -1)]
    page = rows.listed.page("acme", an_id(71), 200, NOON)
    assert [token.token_id for token in page] == [an_id(number) for number in range(70, 0, -1)]
    assert list(rows.listed.page("acme", an_id(1), 5, NOON)) == []


def test_first_revocation_time_is_kept(rows: Rows) -> None:
    put(rows, a_token())
    token = rows.listed.revoke("acme", an_id(1), after(1))
    assert token == a_token(revoked_at=after(1))
    assert rows.listed.revoke("acme", an_id(1), after(9)) == token
    assert rows.known.find(f"acme-{an_id(1)}") == token
    assert rows.listed.revoke("acme", an_id(2), NOON) is None


def test_last_use_is_stored(rows: Rows) -> None:
    put(rows, a_token())
    rows.known.record_use(f"acme-{an_id(1)}", after(5))
    stored = rows.listed.get("acme", an_id(1), NOON)
    assert stored == a_token(last_used_at=after(5))


def test_invalid_token_is_listed_for_a_month(rows: Rows) -> None:
    ends = NOON + timedelta(hours=1)
    put(rows, a_token(1, expires_at=ends), a_token(2), a_token(3))
    rows.listed.revoke("acme", an_id(2), after(0))
    last = NOON + INVALID_TOKEN_RETENTION - timedelta(seconds=1)
    assert [token.token_id for token in rows.listed.page("acme", None, 2, last)] == [
        an_id(3),
        an_id(2),
    ]
    assert len(rows.listed.page("acme", None, 9, last)) == 3
    assert [
        token.token_id
        for token in rows.listed.page("acme", None, 1, NOON + INVALID_TOKEN_RETENTION)
    ] == [an_id(3)]
    assert len(rows.listed.page("acme", None, 9, NOON + INVALID_TOKEN_RETENTION)) == 2
    assert rows.listed.get("acme", an_id(2), NOON + INVALID_TOKEN_RETENTION) is None
    assert rows.listed.revoke("acme", an_id(1), ends + INVALID_TOKEN_RETENTION) is None


@pytest.mark.parametrize("rows", ["aws", "memory"], indirect=True)
def test_first_revocation_request_wins(rows: Rows) -> None:
    """The node needs no request row, because it writes in one transaction."""
    put(rows, a_token(), a_token(2))
    assert rows.listed.store_revocation_request("acme", an_id(1), "mine") == "mine"
    assert rows.listed.store_revocation_request("acme", an_id(1), "theirs") == "mine"
    assert rows.listed.store_revocation_request("acme", an_id(2), "theirs") == "theirs"
    assert rows.listed.get("acme", an_id(1), NOON) == a_token()


def test_abandoned_revocation_request_is_replaced_once() -> None:
    with moto(ManualClock(NOON)) as aws:
        tokens = DynamoTokens(build_dynamo_client(aws.clients), aws.settings.control_table)
        tokens.put(a_token(1), "a")
        assert tokens.store_revocation_request("acme", an_id(1), "first") == "first"
        assert tokens.store_revocation_request("acme", an_id(1), "mine", "first") == "mine"
        assert tokens.store_revocation_request("acme", an_id(1), "theirs", "first") == "mine"
        assert tokens.store_revocation_request("acme", an_id(1), "theirs") == "mine"


def test_revocation_request_for_missing_token_is_not_stored() -> None:
    with moto(ManualClock(NOON)) as aws:
        tokens = DynamoTokens(build_dynamo_client(aws.clients), aws.settings.control_table)
        tokens.put(a_token(), "a")
        assert tokens.store_revocation_request("acme", an_id(2), "mine") is None
        assert tokens.store_revocation_request("globex", an_id(1), "mine") is None
        key = {"pk": {"S": "#token#a"}, "sk": {"S": "-"}}
        aws.clients.dynamodb.delete_item(TableName=aws.settings.control_table, Key=key)
        assert tokens.store_revocation_request("acme", an_id(1), "mine") is None


def test_valid_and_listed_tokens_are_counted(rows: Rows) -> None:
    assert rows.listed.count("acme", NOON) == (0, 0)
    ends = NOON + timedelta(hours=1)
    put(rows, *(a_token(number) for number in range(1, 61)), a_token(99, "globex"))
    put(rows, a_token(61, expires_at=ends))
    rows.listed.revoke("acme", an_id(2), NOON)
    rows.listed.revoke("acme", an_id(2), NOON)
    assert rows.listed.count("acme", NOON) == (60, 61)
    assert rows.listed.count("acme", ends + timedelta(seconds=1)) == (59, 61)
    assert rows.listed.count("acme", NOON + INVALID_TOKEN_RETENTION + timedelta(seconds=1)) == (
        59,
        60,
    )
    assert rows.listed.count("acme", ends + INVALID_TOKEN_RETENTION + timedelta(seconds=1)) == (
        59,
        59,
    )
    assert rows.listed.count("globex", NOON) == (1, 1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "data", ManualClock(NOON))
    yield store
    store.close()


def test_node_stores_last_use_once_in_five_minutes(store: Store) -> None:
    store.tokens.put(a_token(), "h")
    for seconds in range(0, 601, 20):
        store.tokens.record_use("h", after(seconds))
    stored = store.tokens.find("h")
    assert stored is not None
    assert stored.last_used_at == NOON + 2 * LAST_USED_RESOLUTION


def test_node_purges_expired_tokens(store: Store) -> None:
    store.tokens.put(a_token(1, expires_at=after(1)), "a")
    store.tokens.put(a_token(2), "b")
    while store.purge(NOON + INVALID_TOKEN_RETENTION + timedelta(seconds=2), 10):
        pass
    assert (store.tokens.find("a"), store.tokens.find("b")) == (None, a_token(2))


def test_token_of_rolled_back_transaction_is_not_found(store: Store) -> None:
    def undone() -> None:
        with store.transaction():
            store.tokens.put(a_token(), "h")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        undone()
    assert store.tokens.find("h") is None


def test_list_row_without_token_row_is_not_a_token() -> None:
    """A crash between the two writes of a new token leaves this state."""
    with moto(ManualClock(NOON)) as aws:
        tokens = DynamoTokens(build_dynamo_client(aws.clients), aws.settings.control_table)
        tokens.put(a_token(1), "a")
        tokens.put(a_token(2), "b")
        key = {"pk": {"S": "#token#b"}, "sk": {"S": "-"}}
        aws.clients.dynamodb.delete_item(TableName=aws.settings.control_table, Key=key)
        assert list(tokens.page("acme", None, 9, NOON)) == [a_token(1)]
        assert tokens.get("acme", an_id(2), NOON) is None
        assert tokens.revoke("acme", an_id(2), NOON) is None


def test_list_rows_without_token_row_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed writes of a new and of a revoked token leave this state."""
    monkeypatch.setattr("punctual.engine.commands.tokens.MAX_VALID_TOKENS", 4)
    with moto(ManualClock(NOON)) as aws:
        control = aws.settings.control_table
        tokens = DynamoTokens(build_dynamo_client(aws.clients), control)
        old, young = (
            a_token(2),
            a_token(3, token_id=sortable_id(NOON + INVALID_TOKEN_RETENTION, bytes(10))),
        )
        for token in (a_token(1), old, young, a_token(4)):
            tokens.put(token, token.token_id)
        for token in (old, young):
            key = {"pk": {"S": f"#token#{token.token_id}"}, "sk": {"S": "-"}}
            aws.clients.dynamodb.delete_item(TableName=control, Key=key)
        with pytest.MonkeyPatch.context() as failing:
            failing.setattr(tokens, "_expire_list_row", lambda _: None)
            tokens.revoke("acme", an_id(4), NOON + INVALID_TOKEN_RETENTION)
        now = NOON + INVALID_TOKEN_RETENTION + timedelta(minutes=30)
        assert tokens.count("acme", now) == (1, 2)
        rows = {row["sk"]["S"]: row for row in aws.rows("control") if "hash" in row}
        assert rows[old.token_id]["expires"]["N"] == str(int(now.timestamp()))
        assert rows[an_id(4)]["expires"]["N"] == str(
            int((NOON + 2 * INVALID_TOKEN_RETENTION).timestamp())
        )
        # The second write of a new token may still follow, and the token must then be listed.
        assert "expires" not in rows[young.token_id]
        assert "expires" not in rows[an_id(1)]
        tokens.put(a_token(5), "e")
        assert aws.spend(lambda: tokens.count("acme", now)) == {"Query": 1}


def test_list_rows_are_checked_once_a_minute_at_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("punctual.engine.commands.tokens.MAX_VALID_TOKENS", 2)
    with moto(ManualClock(NOON)) as aws:
        tokens = DynamoTokens(build_dynamo_client(aws.clients), aws.settings.control_table)
        tokens.put(a_token(1), "a")
        assert aws.spend(lambda: tokens.count("acme", NOON)) == {"Query": 1}
        tokens.put(a_token(2), "b")
        looked = {"BatchGetItem": 1, "Query": 1}
        assert aws.spend(lambda: tokens.count("acme", NOON)) == looked
        assert aws.spend(lambda: tokens.count("acme", after(59))) == {"Query": 1}
        assert aws.spend(lambda: tokens.count("acme", after(60))) == looked
        assert tokens.count("acme", after(60)) == (2, 2)


def test_revoked_token_rows_expire_by_ttl() -> None:
    with moto(ManualClock(NOON)) as aws:
        tokens = DynamoTokens(build_dynamo_client(aws.clients), aws.settings.control_table)
        tokens.put(a_token(), "a")
        assert all("expires" not in row for row in aws.rows("control"))
        tokens.revoke("acme", an_id(1), NOON)
        ends = int((NOON + INVALID_TOKEN_RETENTION).timestamp())
        assert [row["expires"]["N"] for row in aws.rows("control")] == [str(ends)] * 2


def test_token_operations_cost_few_calls() -> None:
    with moto(ManualClock(NOON)) as aws:
        tokens = DynamoTokens(build_dynamo_client(aws.clients), aws.settings.control_table)
        assert aws.spend(lambda: tokens.put(a_token(), "a")) == {"PutItem": 2}
        assert aws.spend(lambda: tokens.revoke("acme", an_id(1), NOON)) == {
            "BatchGetItem": 2,
            "UpdateItem": 2,
        }
        assert aws.spend(lambda: tokens.page("acme", None, 50, NOON)) == {
            "BatchGetItem": 1,
            "Query": 1,
        }
