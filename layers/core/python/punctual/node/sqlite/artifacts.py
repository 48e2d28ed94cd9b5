"""Rows of artifacts, and of the jobs that use them."""

from collections.abc import Mapping, Sequence

from punctual.domain.artifacts import Artifact
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.tenants.artifact_rows import ArtifactUse
from punctual.node.sqlite.rows import Codec, from_micros, to_micros
from punctual.node.sqlite.transaction import Transaction

_CODEC = Codec(Artifact)


class SqliteArtifacts:
    """Stores artifacts. Each change is written at once within the transaction."""

    def __init__(self, transaction: Transaction, clock: Clock) -> None:
        self._transaction = transaction
        self._clock = clock

    def load(self, tenant: str, artifact_ids: Sequence[str]) -> Mapping[str, Artifact]:
        marks = ", ".join("?" * len(artifact_ids))
        with self._transaction:
            rows = self._transaction.db.execute(
                "SELECT artifact FROM artifacts WHERE tenant = ? "
                f"AND (expires IS NULL OR expires > ?) AND artifact_id IN ({marks})",
                (tenant, to_micros(self._clock()), *artifact_ids),
            ).fetchall()
        return {row.artifact_id: row for row in (_CODEC.decode(value) for (value,) in rows)}

    def page(self, tenant: str, after: str | None, limit: int) -> Sequence[Artifact]:
        with self._transaction:
            rows = self._transaction.db.execute(
                "SELECT artifact FROM artifacts WHERE tenant = ? AND artifact_id > ? "
                "AND (expires IS NULL OR expires > ?) ORDER BY artifact_id LIMIT ?",
                (tenant, after or "", to_micros(self._clock()), limit),
            ).fetchall()
        return [_CODEC.decode(value) for (value,) in rows]

    def store(self, artifact: Artifact, expected_revision: str) -> bool:
        with self._transaction:
            stored = self.load(artifact.tenant, [artifact.artifact_id]).get(artifact.artifact_id)
            if (stored.revision if stored else "") != expected_revision:
                return False
            expires_at = artifact.expires_at
            self._transaction.begin()
            self._transaction.db.execute(
                "INSERT OR REPLACE INTO artifacts (tenant, artifact_id, expires, artifact) "
                "VALUES (?, ?, ?, ?)",
                (
                    artifact.tenant,
                    artifact.artifact_id,
                    None if expires_at is None else to_micros(expires_at),
                    _CODEC.encode(artifact),
                ),
            )
            return True

    def remove(self, artifact: Artifact) -> None:
        with self._transaction:
            stored = self.load(artifact.tenant, [artifact.artifact_id]).get(artifact.artifact_id)
            if stored is None or stored.revision != artifact.revision:
                return
            self._transaction.begin()
            self._transaction.db.execute(
                "DELETE FROM artifacts WHERE tenant = ? AND artifact_id = ?",
                (artifact.tenant, artifact.artifact_id),
            )

    def put_uses(self, tenant: str, uses: Sequence[ArtifactUse]) -> None:
        with self._transaction:
            self._transaction.begin()
            self._transaction.db.executemany(
                "INSERT OR REPLACE INTO artifact_uses (tenant, artifact_id, job_id, noted) "
                "VALUES (?, ?, ?, ?)",
                [(tenant, use.artifact_id, use.job_id, to_micros(use.noted_at)) for use in uses],
            )

    def uses(
        self, tenant: str, artifact_id: str, after: str | None, limit: int
    ) -> Sequence[ArtifactUse]:
        with self._transaction:
            rows = self._transaction.db.execute(
                "SELECT artifact_id, job_id, noted FROM artifact_uses "
                "WHERE tenant = ? AND artifact_id = ? AND job_id > ? ORDER BY job_id LIMIT ?",
                (tenant, artifact_id, after or "", limit),
            ).fetchall()
        return [ArtifactUse(used_id, job_id, from_micros(noted)) for used_id, job_id, noted in rows]

    def first_uses(
        self, tenant: str, artifact_ids: Sequence[str], limit: int
    ) -> Sequence[Sequence[ArtifactUse]]:
        with self._transaction:
            return [self.uses(tenant, artifact_id, None, limit) for artifact_id in artifact_ids]

    def remove_uses(self, tenant: str, uses: Sequence[ArtifactUse]) -> None:
        """Remove uses, but none that was noted again since."""
        with self._transaction:
            self._transaction.begin()
            self._transaction.db.executemany(
                "DELETE FROM artifact_uses "
                "WHERE tenant = ? AND artifact_id = ? AND job_id = ? AND noted = ?",
                [(tenant, use.artifact_id, use.job_id, to_micros(use.noted_at)) for use in uses],
            )
