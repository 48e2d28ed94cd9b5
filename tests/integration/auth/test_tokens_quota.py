"""A token over the limit of the tenant is an error, and a revoked token makes room."""

from pathlib import Path

import pytest

from punctual.domain.errors import LimitExceeded
from punctual.domain.tenants.roles import Role
from punctual.domain.tenants.tokens import Token
from punctual.engine.commands.tokens import (
    MAX_LISTED_TOKENS,
    MAX_VALID_TOKENS,
    Tokens,
    check_token_limit,
)
from punctual.engine.ports.token_rows import TokenCounts
from tests.support.builders import NOON, an_id
from tests.support.memory_audit import MemoryAudit
from tests.support.node.guarded import GuardedNode
from tests.support.web_engine import MemoryTokens


def filled(tokens: int) -> MemoryTokens:
    rows = MemoryTokens()
    for number in range(tokens):
        rows.put(Token(an_id(number), "acme", "ci", Role.VIEWER, NOON, "me"), f"h{number}")
    return rows


def making(rows: MemoryTokens, audit: MemoryAudit) -> Tokens:
    ids = iter(range(10_000, 20_000))
    return Tokens(
        rows,
        lambda: bytes(32),
        lambda: NOON,
        lambda: an_id(next(ids)),
        lambda size: next(ids).to_bytes(size, "big"),
        "local",
        audit,
    )


def make(tokens: Tokens, tenant: str = "acme") -> Token:
    return tokens.create(tenant, "one more", Role.VIEWER, None, "me")[0]


def test_one_more_than_may_be_is_refused_and_leaves_no_trace() -> None:
    rows, audit = filled(MAX_VALID_TOKENS), MemoryAudit()
    tokens = making(rows, audit)
    with pytest.raises(LimitExceeded, match="take some back") as refused:
        make(tokens)
    assert refused.value.retry_after_seconds == 60
    assert len(rows.rows) == MAX_VALID_TOKENS
    assert audit.noted == {}
    assert make(tokens, "globex").tenant == "globex"
    rows.revoke("acme", an_id(0), NOON)
    assert make(tokens).tenant == "acme"


def test_who_starts_the_installation_gets_in_whatever_there_is() -> None:
    token, _ = making(filled(MAX_VALID_TOKENS), MemoryAudit()).create_first("acme", "first")
    assert token.role is Role.ADMIN


def test_those_that_ended_count_while_they_are_shown() -> None:
    check_token_limit(TokenCounts(MAX_VALID_TOKENS - 1, MAX_LISTED_TOKENS - 1))
    with pytest.raises(LimitExceeded, match="30 days"):
        check_token_limit(TokenCounts(0, MAX_LISTED_TOKENS))


def test_the_node_answers_429_and_when_to_come_again(tmp_path: Path) -> None:
    node = GuardedNode(tmp_path / "data")
    try:
        for number in range(MAX_VALID_TOKENS - 1):
            token = Token(an_id(number), "local", "ci", Role.VIEWER, NOON, "me")
            node.store.tokens.put(token, f"h{number}")
        sent = {"authorization": f"Bearer {node.admin}"}
        body = b'{"name": "x", "role": "viewer"}'
        refused = node.call("POST", "/v1/tokens", body, sent)
        assert (refused.status, refused.json["code"]) == (429, "LIMIT_EXCEEDED")
        assert refused.headers["retry-after"] == "60"
        assert node.call("DELETE", f"/v1/tokens/{an_id(7)}", None, sent).status == 200
        assert node.call("POST", "/v1/tokens", body, sent).status == 201
    finally:
        node.close()
