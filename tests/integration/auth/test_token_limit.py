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
from punctual.engine.ports.tenants.token_rows import TokenCounts
from tests.support.builders import NOON, an_id
from tests.support.memory_audit import MemoryAudit
from tests.support.node.guarded import GuardedNode
from tests.support.simulation.small_ports import MemoryTokens


def stored_tokens(tokens: int) -> MemoryTokens:
    rows = MemoryTokens()
    for number in range(tokens):
        rows.put(Token(an_id(number), "acme", "ci", Role.VIEWER, NOON, "me"), f"h{number}")
    return rows


def token_commands(rows: MemoryTokens, audit: MemoryAudit) -> Tokens:
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


def create_token(tokens: Tokens, tenant: str = "acme") -> Token:
    return tokens.create(tenant, "one more", Role.VIEWER, None, "me")[0]


def test_token_over_the_limit_is_refused_without_a_trace() -> None:
    rows, audit = stored_tokens(MAX_VALID_TOKENS), MemoryAudit()
    tokens = token_commands(rows, audit)
    with pytest.raises(LimitExceeded, match="revoke some") as refused:
        create_token(tokens)
    assert refused.value.retry_after_seconds == 60
    assert len(rows.rows) == MAX_VALID_TOKENS
    assert audit.noted == {}
    assert create_token(tokens, "globex").tenant == "globex"
    rows.revoke("acme", an_id(0), NOON)
    assert create_token(tokens).tenant == "acme"


def test_first_admin_token_is_created_at_the_limit() -> None:
    token, _ = token_commands(stored_tokens(MAX_VALID_TOKENS), MemoryAudit()).create_first(
        "acme", "first"
    )
    assert token.role is Role.ADMIN


def test_ended_tokens_count_while_they_are_listed() -> None:
    check_token_limit(TokenCounts(MAX_VALID_TOKENS - 1, MAX_LISTED_TOKENS - 1))
    with pytest.raises(LimitExceeded, match="30 days"):
        check_token_limit(TokenCounts(0, MAX_LISTED_TOKENS))


def test_node_answers_429_with_retry_after_over_the_token_limit(tmp_path: Path) -> None:
    node = GuardedNode(tmp_path / "data")
    try:
        for number in range(MAX_VALID_TOKENS - 1):
            token = Token(an_id(number), "local", "ci", Role.VIEWER, NOON, "me")
            node.store.tokens.put(token, f"h{number}")
        headers = {"authorization": f"Bearer {node.admin}"}
        body = b'{"name": "x", "role": "viewer"}'
        refused = node.call("POST", "/v1/tokens", body, headers)
        assert (refused.status, refused.json["code"]) == (429, "LIMIT_EXCEEDED")
        assert refused.headers["retry-after"] == "60"
        assert node.call("DELETE", f"/v1/tokens/{an_id(7)}", None, headers).status == 200
        assert node.call("POST", "/v1/tokens", body, headers).status == 201
    finally:
        node.close()
