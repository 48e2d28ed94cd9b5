"""Rows of tokens, read by tenant and id for admins, and by hash for authentication."""

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from punctual.domain.errors import Unreadable
from punctual.domain.tenants.roles import Role
from punctual.domain.tenants.tokens import LAST_USED_RESOLUTION, Token
from punctual.engine.ports.tenants.token_rows import TokenCounts
from punctual.node.files.damage import DECODING_ERRORS
from punctual.node.sqlite.rows import from_micros, to_micros
from punctual.node.sqlite.transaction import Transaction

_COLUMNS = (
    "token_id, tenant, name, role, created_at, created_by, expires_at, last_used_at, revoked_at"
)
_NOT_FORGOTTEN = "(forgotten_at IS NULL OR forgotten_at > ?)"
_SELECT_TOKEN = (
    f"SELECT {_COLUMNS} FROM tokens WHERE tenant = ? AND token_id = ? AND {_NOT_FORGOTTEN}"
)


class SqliteTokens:
    """Stores tokens. The rows are few, so each change is written at once within the transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def put(self, token: Token, token_hash: str) -> None:
        with self._transaction:
            self._transaction.begin()
            self._transaction.db.execute(
                f"INSERT INTO tokens (hash, {_COLUMNS}, forgotten_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (token_hash, *_to_row(token), _optional_micros(token.delete_at())),
            )

    def get(self, tenant: str, token_id: str, now: datetime) -> Token | None:
        with self._transaction:
            row = self._transaction.db.execute(
                _SELECT_TOKEN, (tenant, token_id, to_micros(now))
            ).fetchone()
        return self._readable_token(row)

    def page(self, tenant: str, before: str | None, limit: int, now: datetime) -> Sequence[Token]:
        """Return a page of tokens. An unreadable token authenticates no caller, and is left out."""
        before_condition = "" if before is None else "AND token_id < ? "
        values = (tenant, to_micros(now), *(() if before is None else (before,)))
        with self._transaction:
            rows = self._transaction.db.execute(
                f"SELECT {_COLUMNS} FROM tokens WHERE tenant = ? AND {_NOT_FORGOTTEN} "
                f"{before_condition}"
                "ORDER BY token_id DESC",
                values,
            )
            tokens = list(islice(filter(None, map(self._read, rows)), limit))
            rows.close()
            return tokens

    def _readable_token(self, row: tuple[Any, ...] | None) -> Token | None:
        """Return the token of a row, or None without a row.

        Raise `Unreadable` if it is damaged. Call it after the transaction, so that the error rolls
        back no other write.
        """
        token = None if row is None else self._read(row)
        if row is not None and token is None:
            raise Unreadable(f"The token {row[0]} cannot be read from the store.")
        return token

    def _read(self, row: tuple[Any, ...]) -> Token | None:
        try:
            return _from_row(row)
        except DECODING_ERRORS as error:
            self._transaction.damage.note("tokens", (row[1], row[0]), error)
            return None

    def store_revocation_request(
        self, _tenant: str, _token_id: str, wish: str, _old: str = "", /
    ) -> str | None:
        """Return `wish`.

        The whole change is one transaction, so no concurrent change can come first.
        """
        return wish

    def count(self, tenant: str, now: datetime) -> TokenCounts:
        with self._transaction:
            valid_count, total = self._transaction.db.execute(
                "SELECT total(revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)), "
                f"count(*) FROM tokens WHERE tenant = ? AND {_NOT_FORGOTTEN}",
                (to_micros(now), tenant, to_micros(now)),
            ).fetchone()
            return TokenCounts(int(valid_count), total)

    def revoke(self, tenant: str, token_id: str, now: datetime) -> Token | None:
        token = self.get(tenant, token_id, now)
        if token is None or token.revoked_at is not None:
            return token
        token = token._replace(revoked_at=now)
        with self._transaction:
            self._transaction.begin()
            self._transaction.db.execute(
                "UPDATE tokens SET revoked_at = ?, forgotten_at = ? "
                "WHERE tenant = ? AND token_id = ?",
                (to_micros(now), _optional_micros(token.delete_at()), tenant, token_id),
            )
            return token

    def find(self, token_hash: str) -> Token | None:
        with self._transaction:
            row = self._transaction.db.execute(
                f"SELECT {_COLUMNS} FROM tokens WHERE hash = ?", (token_hash,)
            ).fetchone()
        return self._readable_token(row)

    def record_use(self, token_hash: str, now: datetime) -> None:
        with self._transaction:
            self._transaction.begin()
            self._transaction.db.execute(
                "UPDATE tokens SET last_used_at = ? WHERE hash = ? "
                "AND (last_used_at IS NULL OR last_used_at <= ?)",
                (to_micros(now), token_hash, to_micros(now - LAST_USED_RESOLUTION)),
            )


def _to_row(token: Token) -> tuple[Any, ...]:
    return tuple(to_micros(value) if isinstance(value, datetime) else value for value in token)


def _from_row(row: tuple[Any, ...]) -> Token:
    token_id, tenant, name, role, created_at, created_by, *time_values = row
    optional_times = [
        None if time_value is None else from_micros(time_value) for time_value in time_values
    ]
    return Token(
        token_id, tenant, name, Role(role), from_micros(created_at), created_by, *optional_times
    )


def _optional_micros(time: datetime | None) -> int | None:
    return None if time is None else to_micros(time)
