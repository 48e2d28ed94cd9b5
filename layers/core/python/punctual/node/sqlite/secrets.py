"""The node's secrets: encrypted rows, changed by the API and read by attempts."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from threading import Lock
from urllib.parse import quote

from punctual.domain.errors import Unavailable
from punctual.engine.ports.tenants.secret_store import SecretInfo
from punctual.node.files.secret_key import SecretCipher
from punctual.node.sqlite.rows import from_micros, to_micros
from punctual.node.sqlite.transaction import Transaction
from punctual.tasks.script.open_files import NotBegun

_READ_TIMEOUT_SECONDS = 5.0


class SqliteSecrets:
    """Changes and lists secrets. The rows are few, so each change is written at once."""

    def __init__(self, transaction: Transaction, cipher: SecretCipher) -> None:
        self._transaction = transaction
        self._cipher = cipher

    def list(self, tenant: str) -> Sequence[SecretInfo]:
        with self._transaction:
            rows = self._transaction.db.execute(
                "SELECT name, created_at, updated_at, updated_by FROM secrets "
                "WHERE tenant = ? ORDER BY name",
                (tenant,),
            ).fetchall()
        return [
            SecretInfo(name, from_micros(created_at), from_micros(updated_at), updated_by)
            for name, created_at, updated_at, updated_by in rows
        ]

    def put(self, tenant: str, name: str, value: str, caller: str, now: datetime) -> None:
        """Store a value. Its key is on the disk before the row, so no row lacks its key."""
        encrypted = self._cipher.encrypt(tenant, name, value)
        with self._transaction:
            self._transaction.begin()
            self._transaction.db.execute(
                "INSERT INTO secrets (tenant, name, created_at, updated_at, updated_by, value) "
                "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, name) DO UPDATE SET "
                "updated_at = excluded.updated_at, updated_by = excluded.updated_by, "
                "value = excluded.value",
                (tenant, name, to_micros(now), to_micros(now), caller, encrypted),
            )

    def delete(self, tenant: str, name: str) -> bool:
        with self._transaction:
            self._transaction.begin()
            cursor = self._transaction.db.execute(
                "DELETE FROM secrets WHERE tenant = ? AND name = ?", (tenant, name)
            )
            return cursor.rowcount > 0

    def check_key(self) -> None:
        """Raise `StoreError` if secrets exist without a usable key. This stops a start."""
        with self._transaction:
            row = self._transaction.db.execute("SELECT 1 FROM secrets LIMIT 1").fetchone()
        if row is not None or self._cipher.path.exists():
            self._cipher.load()


class SecretReader:
    """Reads values for attempts, from any thread, by a connection of its own."""

    def __init__(self, database: Path, cipher: SecretCipher) -> None:
        self._database = database
        self._cipher = cipher
        self._lock = Lock()
        self._db: sqlite3.Connection | None = None

    def find(self, tenant: str, name: str) -> str:
        """Return the value as the last commit left it. Raise `KeyError` if it is missing."""
        with self._lock:
            row = self._read(tenant, name)
        if row is None:
            raise KeyError(name)
        return self._cipher.decrypt(tenant, name, row[0])

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def _read(self, tenant: str, name: str) -> tuple[bytes] | None:
        try:
            if self._db is None:
                self._db = sqlite3.connect(
                    f"file:{quote(str(self._database.absolute()))}?mode=ro",
                    uri=True,
                    isolation_level=None,
                    timeout=_READ_TIMEOUT_SECONDS,
                    check_same_thread=False,
                )
            row: tuple[bytes] | None = self._db.execute(
                "SELECT value FROM secrets WHERE tenant = ? AND name = ?", (tenant, name)
            ).fetchone()
        except sqlite3.Error as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CANTOPEN:
                raise NotBegun from error  # as at the limit of open files
            raise Unavailable(f"The secret {name!r} cannot be read: {error}.") from error
        return row
