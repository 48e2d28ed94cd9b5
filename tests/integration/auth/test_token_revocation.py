"""Concurrent and repeated revocations of a token write one audit entry."""

from collections.abc import Callable
from typing import Any

import pytest

from punctual.aws.dynamodb.audit import DynamoAudit
from punctual.aws.dynamodb.control.tokens import DynamoTokens
from punctual.aws.ports import build_dynamo_client
from punctual.domain.errors import Unavailable
from punctual.domain.tenants.roles import Role
from punctual.engine.commands.audit import TOKEN_REVOKE
from punctual.engine.commands.tokens import Tokens
from punctual.engine.ports.audit_log import Actor, AuditEntry, AuditFilters
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.builders import NOON, ManualClock, after, an_id


class CallBefore:
    """Wrap an object, and run a function once before the call of this name."""

    def __init__(self, wrapped: Any, name: str, happens: Callable[[], Any]) -> None:
        self._wrapped = wrapped
        self._name = name
        self._action: list[Callable[[], Any]] = [happens]

    def __getattr__(self, name: str) -> Any:
        if name == self._name and self._action:
            self._action.pop()()
        return getattr(self._wrapped, name)


class Scene:
    def __init__(self, store: Moto) -> None:
        self.clock = ManualClock(NOON)
        dynamo = build_dynamo_client(store.clients)
        self.rows = DynamoTokens(dynamo, store.settings.control_table)
        self.audit = DynamoAudit(dynamo, store.settings.audit_table)
        new_token, _ = self.tokens().create("acme", "ci", Role.EDITOR, None, "me")
        self.token_id = new_token.token_id

    def tokens(self, rows: Any = None, audit: Any = None) -> Tokens:
        return Tokens(
            rows or self.rows,
            lambda: bytes(32),
            self.clock,
            lambda: an_id(1),
            bytes,
            "default",
            audit or self.audit,
        )

    def revoke(self, caller: str, rows: Any = None, audit: Any = None) -> Any:
        self.clock.set(self.clock() + (after(1) - NOON))
        by = Actor(caller, request_id=f"of {caller}")
        return self.tokens(rows, audit).revoke("acme", self.token_id, by)

    def lines(self) -> list[AuditEntry]:
        filters = AuditFilters(action=TOKEN_REVOKE)
        return list(self.audit.page("acme", filters, 50, None, self.clock()).entries)


@pytest.mark.parametrize("step", ["store_revocation_request", "add_note", "revoke"])
def test_concurrent_revocations_add_one_audit_entry_with_one_time(step: str) -> None:
    with moto(ManualClock(NOON)) as store:
        scene = Scene(store)

        def other() -> None:
            scene.revoke("other")

        if step == "add_note":
            token = scene.revoke("one", audit=CallBefore(scene.audit, step, other))
        else:
            token = scene.revoke("one", rows=CallBefore(scene.rows, step, other))
        (line,) = scene.lines()
        assert line.note.actor.caller == ("other" if step == "store_revocation_request" else "one")
        assert token.revoked_at == line.note.at
        assert scene.revoke("later") == token
        assert scene.lines() == [line]


@pytest.mark.parametrize("step", ["add_note", "revoke"])
def test_revocation_repeated_after_a_crash_names_the_first_caller(step: str) -> None:
    with moto(ManualClock(NOON)) as store:
        scene = Scene(store)

        def crash() -> None:
            raise Unavailable("gone")

        with pytest.raises(Unavailable):
            scene.revoke(
                "one",
                rows=CallBefore(scene.rows, step, crash),
                audit=CallBefore(scene.audit, step, crash),
            )
        token = scene.rows.get("acme", scene.token_id, scene.clock())
        assert token is not None
        assert token.revoked_at is None
        done = scene.revoke("other")
        (line,) = scene.lines()
        assert (line.note.actor.caller, line.note.at) == ("one", done.revoked_at)


@pytest.mark.parametrize("step", ["add_note", "revoke"])
def test_revocation_repeated_days_later_names_the_present_caller_and_time(
    step: str,
) -> None:
    """The token was valid in between, and its row and the audit must show that."""
    with moto(ManualClock(NOON)) as store:
        scene = Scene(store)

        def crash() -> None:
            raise Unavailable("gone")

        with pytest.raises(Unavailable):
            scene.revoke(
                "one",
                rows=CallBefore(scene.rows, step, crash),
                audit=CallBefore(scene.audit, step, crash),
            )
        scene.clock.set(after(3 * 86_400))
        done = scene.revoke("other")
        assert done.revoked_at == scene.clock()
        last = max(scene.lines(), key=lambda line: line.note.at)
        assert (last.note.actor.caller, last.note.at) == ("other", done.revoked_at)
        assert scene.revoke("later") == done
        assert len(scene.lines()) == (1 if step == "add_note" else 2)
