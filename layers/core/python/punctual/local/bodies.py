"""Definitions by version: written once, beside the heads that name them."""

from collections.abc import Mapping, Sequence

from punctual.engine.ports import Body, Key
from punctual.local.codec import Codec
from punctual.local.unit import Unit

BODY = Codec(Body)


class SqliteBodies:
    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._held: dict[tuple[Key, str], tuple[Body, bytes]] = {}

    def put(self, bodies: Sequence[Body]) -> None:
        """Encoded at once: what cannot be written fails its own caller, not the whole unit."""
        rows = {
            (Key(body.tenant, body.job_id), body.ref): (body, BODY.encode(body)) for body in bodies
        }
        with self._unit:
            self._held.update(rows)

    def get(self, wanted: Sequence[tuple[Key, str]]) -> Mapping[tuple[Key, str], Body]:
        with self._unit:
            found = {}
            for key, ref in wanted:
                held = self._held.get((key, ref))
                body = held[0] if held is not None else self._read(key, ref)
                if body is not None:
                    found[key, ref] = body
            return found

    def _read(self, key: Key, ref: str) -> Body | None:
        row = self._unit.db.execute(
            "SELECT body FROM bodies WHERE tenant = ? AND job_id = ? AND ref = ?", (*key, ref)
        ).fetchone()
        return None if row is None else BODY.decode(row[0])

    def flush(self) -> None:
        if self._held:
            self._unit.begin()
            self._unit.db.executemany(
                "INSERT OR IGNORE INTO bodies (tenant, job_id, ref, body) VALUES (?, ?, ?, ?)",
                [(*key, ref, row) for (key, ref), (_, row) in self._held.items()],
            )
            self._held.clear()

    def keep(self) -> None:
        pass

    def drop(self) -> None:
        self._held.clear()
