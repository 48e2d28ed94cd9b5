"""Definitions by version. Each is written once, and job states refer to it."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from punctual.engine.ports.rows import DefinitionRow, Key
from punctual.node.files.damage import DECODING
from punctual.node.sqlite.bulk_insert import insert
from punctual.node.sqlite.codec import Codec
from punctual.node.sqlite.transaction import Transaction

BODY = Codec(DefinitionRow)
CACHED = 20_000
# a plain tuple: it has the hash of a `Key`, and is faster to create
Place = tuple[tuple[str, str], str]
SMALL = 1_024  # bytes: larger definitions are not cached, so that memory stays bounded


class SqliteDefinitions:
    def __init__(self, unit: Transaction) -> None:
        self._unit = unit
        self._held: dict[Place, tuple[DefinitionRow, bytes]] = {}
        self._flushed: dict[Place, DefinitionRow] = {}
        self._cache: OrderedDict[Place, DefinitionRow] = OrderedDict()

    def put(self, bodies: Sequence[DefinitionRow]) -> None:
        """Store definitions.

        Each is encoded at once, so that an error fails its own caller and not the whole
        transaction.
        """
        rows = {
            ((body.tenant, body.job_id), body.ref): (body, BODY.encode(body)) for body in bodies
        }
        with self._unit:
            self._held.update(rows)

    def get(self, wanted: Sequence[tuple[Key, str]]) -> Mapping[tuple[Key, str], DefinitionRow]:
        with self._unit:
            found = {}
            for key, ref in wanted:
                held = self._held.get((key, ref))
                body = held[0] if held is not None else self._cache.get((key, ref))
                if body is None:
                    body = self._read(key, ref)
                if body is not None:
                    found[key, ref] = body
            return found

    def _read(self, key: Key, ref: str) -> DefinitionRow | None:
        row = self._unit.db.execute(
            "SELECT body FROM bodies WHERE tenant = ? AND job_id = ? AND ref = ?", (*key, ref)
        ).fetchone()
        if row is None:
            return None
        try:
            body = BODY.decode(row[0])
        except DECODING as error:  # A damaged row counts as missing. Operations that need it fail.
            self._unit.damage.note("bodies", (*key, ref), error)
            return None
        if len(row[0]) <= SMALL and not self._unit.db.in_transaction:
            self._remember({(key, ref): body})
        return body

    def _remember(self, bodies: Mapping[Place, DefinitionRow]) -> None:
        cache = self._cache
        cache.update(bodies)
        for _ in range(len(cache) - CACHED):
            cache.popitem(last=False)

    def forget(self) -> None:
        """Clear the cache, because rows were removed in this transaction."""
        self._cache.clear()

    def flush(self) -> None:
        if self._held:
            self._unit.begin()
            insert(
                self._unit.db,
                "INSERT OR IGNORE INTO bodies (tenant, job_id, ref, body) VALUES (?, ?, ?, ?)",
                [
                    (tenant, job_id, ref, row)
                    for ((tenant, job_id), ref), (_, row) in self._held.items()
                ],
            )
            self._flushed.update(
                (place, body) for place, (body, row) in self._held.items() if len(row) <= SMALL
            )
            self._held.clear()

    def keep(self) -> None:
        if self._flushed:
            self._remember(self._flushed)
            self._flushed.clear()

    def drop(self) -> None:
        self._held.clear()
        self._flushed.clear()
