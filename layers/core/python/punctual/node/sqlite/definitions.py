"""Definitions by version. Each is written once, and job states refer to it."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from punctual.engine.ports.rows import DefinitionRow, JobKey
from punctual.node.files.damage import DECODING_ERRORS
from punctual.node.sqlite.rows import Codec, insert_rows
from punctual.node.sqlite.transaction import Transaction

DEFINITION_CODEC = Codec(DefinitionRow)
MAX_CACHED_DEFINITIONS = 20_000
# a plain tuple: it has the hash of a `JobKey`, and is faster to create
DefinitionKey = tuple[tuple[str, str], str]
# Bytes: larger definitions are not cached, so that memory stays bounded.
MAX_CACHED_DEFINITION_BYTES = 1_024


class SqliteDefinitions:
    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self.pending: dict[DefinitionKey, tuple[DefinitionRow, bytes]] = {}
        self._flushed: dict[DefinitionKey, DefinitionRow] = {}
        self._cache: OrderedDict[DefinitionKey, DefinitionRow] = OrderedDict()

    def put(self, definitions: Sequence[DefinitionRow]) -> None:
        """Store definitions.

        Each is encoded at once, so that an error fails its own caller and not the whole
        transaction.
        """
        rows = {
            ((definition.tenant, definition.job_id), definition.ref): (
                definition,
                DEFINITION_CODEC.encode(definition),
            )
            for definition in definitions
        }
        with self._transaction:
            self.pending.update(rows)

    def get(self, refs: Sequence[tuple[JobKey, str]]) -> Mapping[tuple[JobKey, str], DefinitionRow]:
        with self._transaction:
            return self.find(refs)

    def find(
        self, refs: Sequence[tuple[JobKey, str]]
    ) -> Mapping[tuple[JobKey, str], DefinitionRow]:
        """Return definitions. A part that flushes its rows may call this, but not `get`.

        During a commit an exit of the transaction would be its end.
        """
        definitions = {}
        for key, ref in refs:
            pending = self.pending.get((key, ref))
            definition = pending[0] if pending is not None else self._cache.get((key, ref))
            if definition is None:
                definition = self._read(key, ref)
            if definition is not None:
                definitions[key, ref] = definition
        return definitions

    def _read(self, key: JobKey, ref: str) -> DefinitionRow | None:
        row = self._transaction.db.execute(
            "SELECT body FROM bodies WHERE tenant = ? AND job_id = ? AND ref = ?", (*key, ref)
        ).fetchone()
        if row is None:
            return None
        try:
            definition = DEFINITION_CODEC.decode(row[0])
        except DECODING_ERRORS as error:
            # A damaged row counts as missing. Operations that need it fail.
            self._transaction.damage.note("bodies", (*key, ref), error)
            return None
        if len(row[0]) <= MAX_CACHED_DEFINITION_BYTES and not self._transaction.db.in_transaction:
            self._add_to_cache({(key, ref): definition})
        return definition

    def _add_to_cache(self, definitions: Mapping[DefinitionKey, DefinitionRow]) -> None:
        cache = self._cache
        cache.update(definitions)
        for _ in range(len(cache) - MAX_CACHED_DEFINITIONS):
            cache.popitem(last=False)

    def clear_cache(self) -> None:
        """Clear the cache, because rows were removed in this transaction."""
        self._cache.clear()

    def flush(self) -> None:
        if self.pending:
            self._transaction.begin()
            insert_rows(
                self._transaction.db,
                "INSERT OR IGNORE INTO bodies (tenant, job_id, ref, body) VALUES (?, ?, ?, ?)",
                [
                    (tenant, job_id, ref, encoded)
                    for ((tenant, job_id), ref), (_, encoded) in self.pending.items()
                ],
            )
            self._flushed.update(
                (key, definition)
                for key, (definition, encoded) in self.pending.items()
                if len(encoded) <= MAX_CACHED_DEFINITION_BYTES
            )
            self.pending.clear()

    def on_commit(self) -> None:
        if self._flushed:
            self._add_to_cache(self._flushed)
            self._flushed.clear()

    def on_rollback(self) -> None:
        self.pending.clear()
        self._flushed.clear()
