"""Artifacts in the control table: a row for each, and a row for each job that used one."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import to_attribute, to_item
from punctual.aws.dynamodb.client import Condition, DynamoClient, KeyRange, check_layout
from punctual.aws.dynamodb.keys import (
    LAST_CHAR,
    escape,
    join_parts,
    parse_time_key,
    split_parts,
    time_key,
)
from punctual.domain.artifacts import Artifact
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.tenants.artifact_rows import ArtifactUse

REVISION_ATTR = "revision"
# Patterns of the partition keys of artifacts and of their uses. No escaped tenant contains "#".
ARTIFACT_KEY_PATTERN, ARTIFACT_USES_KEY_PATTERN = "*#artifacts", "*#artifact_uses#*"
_ARTIFACT_PAGE_SIZE = 200
_decode = msgspec.json.Decoder(Artifact).decode
_encode = msgspec.json.Encoder().encode


def artifact_key(tenant: str, artifact_id: str) -> keys.RowKey:
    """Return the key of an artifact.

    >>> artifact_key("acme", "01")
    RowKey(pk='acme#artifacts', sk='01')
    """
    return keys.RowKey(join_parts(tenant, "artifacts"), escape(artifact_id))


def artifact_use_key(tenant: str, use: ArtifactUse) -> keys.RowKey:
    """Return the key of a use. It names the time, so that a removal never meets a newer use."""
    return keys.RowKey(
        _uses_partition(tenant, use.artifact_id), join_parts(use.job_id, time_key(use.noted_at))
    )


class DynamoArtifacts:
    """The artifacts of a tenant, with compare and swap on their revision."""

    def __init__(self, dynamo: DynamoClient, table: str, clock: Clock) -> None:
        self._dynamo = dynamo
        self._table = table
        self._clock = clock

    def load(self, tenant: str, artifact_ids: Sequence[str]) -> Mapping[str, Artifact]:
        row_keys = [artifact_key(tenant, artifact_id) for artifact_id in artifact_ids]
        rows = self._dynamo.read(self._table, row_keys)
        artifacts = [_parse(row) for row in rows.values() if not self._is_expired(row)]
        return {artifact.artifact_id: artifact for artifact in artifacts}

    def page(self, tenant: str, after: str | None, limit: int) -> Sequence[Artifact]:
        low = None if after is None else f"{escape(after)}#"
        key_range = KeyRange(join_parts(tenant, "artifacts"), low=low)
        artifacts: list[Artifact] = []
        for row in self._dynamo.query(self._table, key_range, min(limit, _ARTIFACT_PAGE_SIZE)):
            if not self._is_expired(row):
                artifacts.append(_parse(row))
            if len(artifacts) == limit:
                break
        return artifacts

    def store(self, artifact: Artifact, expected_revision: str) -> bool:
        expression, names = "#revision = :expected", {"#revision": REVISION_ATTR}
        arguments: dict[str, Any] = {":expected": expected_revision}
        if not expected_revision:
            expression = "attribute_not_exists(#revision) OR #ttl <= :now"
            names["#ttl"] = keys.TTL
            arguments = {":now": int(self._clock().timestamp())}
        condition = Condition(expression, names=names, values=to_item(arguments))
        failure = self._dynamo.put_if(self._table, _to_row(artifact), condition)
        if failure is None:
            return True
        present = failure.item.get(REVISION_ATTR, {}).get("S")
        return failure.ambiguous and bool(present == artifact.revision)

    def remove(self, artifact: Artifact) -> None:
        """Make the row expire now, unless another revision is stored."""
        condition = Condition(
            "#revision = :revision",
            "SET #ttl = :now",
            {"#revision": REVISION_ATTR, "#ttl": keys.TTL},
            to_item({":revision": artifact.revision, ":now": int(self._clock().timestamp())}),
        )
        key = artifact_key(artifact.tenant, artifact.artifact_id)
        self._dynamo.update_if(self._table, key, condition)

    def put_uses(self, tenant: str, uses: Sequence[ArtifactUse]) -> None:
        rows = [
            {**artifact_use_key(tenant, use).item(), **keys.ROW_LAYOUT_ATTRIBUTE} for use in uses
        ]
        self._dynamo.put(self._table, rows)

    def uses(
        self, tenant: str, artifact_id: str, after: str | None, limit: int
    ) -> Sequence[ArtifactUse]:
        low = None if after is None else f"{escape(after)}#{LAST_CHAR}"
        key_range = KeyRange(_uses_partition(tenant, artifact_id), low=low)
        rows, _ = self._dynamo.query_page(self._table, key_range, limit)
        parts = [split_parts(row[keys.SK]["S"]) for row in rows]
        return [ArtifactUse(artifact_id, job_id, parse_time_key(at)) for job_id, at in parts]

    def first_uses(
        self, tenant: str, artifact_ids: Sequence[str], limit: int
    ) -> Sequence[Sequence[ArtifactUse]]:
        """Query each artifact in parallel, because each has a partition of its own."""
        return self._dynamo.pool.map(
            lambda artifact_id: self.uses(tenant, artifact_id, None, limit), artifact_ids
        )

    def remove_uses(self, tenant: str, uses: Sequence[ArtifactUse]) -> None:
        self._dynamo.delete(self._table, [artifact_use_key(tenant, use) for use in uses])

    def _is_expired(self, row: Mapping[str, Any]) -> bool:
        ttl = row.get(keys.TTL)
        return ttl is not None and int(ttl["N"]) <= self._clock().timestamp()


def _uses_partition(tenant: str, artifact_id: str) -> str:
    return join_parts(tenant, "artifact_uses", artifact_id)


def _to_row(artifact: Artifact) -> dict[str, Any]:
    expires_at = artifact.expires_at
    ttl = {} if expires_at is None else {keys.TTL: to_attribute(keys.to_ttl(expires_at))}
    values = {
        keys.DATA_ATTR: _encode(artifact).decode(),
        REVISION_ATTR: artifact.revision,
        keys.LAYOUT_ATTR: keys.ROW_LAYOUT,
    }
    return {**artifact_key(artifact.tenant, artifact.artifact_id).item(), **to_item(values), **ttl}


def _parse(row: Mapping[str, Any]) -> Artifact:
    return _decode(check_layout(row)[keys.DATA_ATTR]["S"])
