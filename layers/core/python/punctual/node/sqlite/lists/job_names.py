"""Rows of the names of recurring jobs. Each change is written at once within the transaction."""

from collections.abc import Mapping, Sequence
from json import dumps, loads

from punctual.engine.ports.job_states import WalkPage
from punctual.engine.ports.lists.job_names import NameKey, NameRow
from punctual.node.sqlite.transaction import Transaction

# Cursors of the walk over names begin with this. Cursors of the walk over job states never do.
NAMES_CURSOR_PREFIX = "#names "


class SqliteJobNames:
    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def find(self, keys: Sequence[NameKey]) -> Mapping[NameKey, NameRow]:
        with self._transaction:
            rows = [self._find(key) for key in keys]
        return {row.key: row for row in rows if row is not None}

    def put(self, rows: Sequence[NameRow]) -> Sequence[NameRow | None]:
        with self._transaction:
            return [self._put(row) for row in rows]

    def replace(self, replacements: Sequence[tuple[NameRow, NameRow]]) -> Sequence[bool]:
        with self._transaction:
            return [self._replace(old, new) for old, new in replacements]

    def remove(self, rows: Sequence[NameRow]) -> None:
        with self._transaction:
            self._transaction.begin()
            self._transaction.db.executemany(
                "DELETE FROM names WHERE tenant = ? AND name = ? AND mark = ?",
                [(row.tenant, row.name, row.mark) for row in rows],
            )

    def _find(self, key: NameKey) -> NameRow | None:
        value = self._transaction.db.execute(
            "SELECT tenant, name, job_id, mark FROM names WHERE tenant = ? AND name = ?", key
        ).fetchone()
        return None if value is None else NameRow(*value)

    def _put(self, row: NameRow) -> NameRow | None:
        existing = self._find(row.key)
        if existing is None:
            self._transaction.begin()
            self._transaction.db.execute("INSERT INTO names VALUES (?, ?, ?, ?)", row)
        return None if existing == row else existing

    def _replace(self, old: NameRow, new: NameRow) -> bool:
        existing = self._find(old.key)
        if existing == old:
            self._transaction.begin()
            self._transaction.db.execute(
                "UPDATE names SET job_id = ?, mark = ? WHERE tenant = ? AND name = ?",
                (new.job_id, new.mark, *new.key),
            )
        return existing in (old, new)


def walk_names(transaction: Transaction, cursor: str, limit: int) -> WalkPage:
    """Return a page of the rows of all tenants, by tenant and name."""
    after = cursor.removeprefix(NAMES_CURSOR_PREFIX)
    tenant, name = loads(after) if after else ("", "")
    values = transaction.db.execute(
        "SELECT tenant, name, job_id, mark FROM names WHERE (tenant, name) > (?, ?) "
        "ORDER BY tenant, name LIMIT ?",
        (tenant, name, limit + 1),
    ).fetchall()
    rows = [NameRow(*value) for value in values[:limit]]
    has_more = len(values) > limit
    following = NAMES_CURSOR_PREFIX + dumps(rows[-1].key) if has_more else None
    return WalkPage((), following, names=rows)
