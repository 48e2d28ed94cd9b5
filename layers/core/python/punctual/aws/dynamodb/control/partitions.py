"""Control rows: partition leases, the watermark, the shard count, and receipts."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item, from_attribute, to_attribute, to_item
from punctual.aws.dynamodb.client import Condition, DynamoClient, check_layout
from punctual.aws.dynamodb.keys import parse_time_key, time_key
from punctual.aws.retries import ConditionFailed
from punctual.domain.identifiers import BUCKET_LENGTH
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.partitions import PartitionLease, TimerPartition
from punctual.engine.ports.rows import Receipt

# Of a lease row; a poller reads a bucket again after its row expires.
PARTITION_LEASE_RETENTION = timedelta(days=7)
_LEASE_ATTR_NAMES = {
    "#owner": keys.OWNER_ATTR,
    "#token": keys.TOKEN_ATTR,
    "#look": keys.NOTIFY_COUNT_ATTR,
    "#until": keys.UNTIL_ATTR,
    "#done": keys.DONE_ATTR,
}
_REOPEN_UPDATE = "REMOVE #done, #owner, #until"
_OWN_LEASE_CONDITION = (
    "attribute_not_exists(#done) AND #owner = :owner AND #token = :token AND #look = :look"
)


class DynamoPartitions:
    """Partition leases and the watermark. Each step is one conditional write."""

    def __init__(self, dynamo: DynamoClient, table: str, clock: Clock) -> None:
        self._dynamo = dynamo
        self._table = table
        self._clock = clock

    def watermark(self) -> datetime | None:
        row = self._read(keys.watermark_key())
        return None if row is None else parse_time_key(row[keys.TIME_ATTR]["S"])

    def advance_watermark(self, old: datetime | None, new: datetime) -> bool:
        new_value = to_attribute(time_key(new))
        heartbeat = to_attribute(time_key(self._clock()))
        row = {
            **keys.watermark_key().item(),
            **keys.ROW_LAYOUT_ATTRIBUTE,
            keys.TIME_ATTR: new_value,
            keys.PLANNER_HEARTBEAT_ATTR: heartbeat,
        }
        if old is None:
            condition = Condition("attribute_not_exists(#at)", names={"#at": keys.TIME_ATTR})
        else:
            values = {":old": to_attribute(time_key(old))}
            condition = Condition("#at = :old", names={"#at": keys.TIME_ATTR}, values=values)
        failure = self._dynamo.put_if(self._table, row, condition)
        return failure is None or (
            failure.ambiguous and failure.item.get(keys.TIME_ATTR) == new_value
        )

    def reopen(self, current: datetime, since: datetime) -> bool:
        watermark = self.watermark()
        if (
            watermark is None
            or watermark <= current
            or not self.advance_watermark(watermark, since)
        ):
            return False
        for index in range((watermark - since) // BUCKET_LENGTH):
            for shard in range(self.shard_count()):
                self._update(
                    since + index * BUCKET_LENGTH,
                    shard,
                    "attribute_exists(#done)",
                    _REOPEN_UPDATE,
                    {},
                )
        return True

    def heartbeat(self) -> datetime | None:
        """Return when the planner last wrote the watermark.

        The planner writes it each minute.
        """
        row = self._read(keys.watermark_key())
        return (
            None
            if row is None or keys.PLANNER_HEARTBEAT_ATTR not in row
            else parse_time_key(row[keys.PLANNER_HEARTBEAT_ATTR]["S"])
        )

    def shard_count(self) -> int:
        row = self._read(keys.shards_key())
        return (
            1
            if row is None or keys.SHARD_COUNT_ATTR not in row
            else int(row[keys.SHARD_COUNT_ATTR]["N"])
        )

    def raise_shard_count(self, shards: int) -> None:
        self._dynamo.update_if(
            self._table,
            keys.shards_key(),
            Condition(
                "attribute_not_exists(#n) OR #n < :n",
                "SET #n = :n, #f = :f",
                {"#n": keys.SHARD_COUNT_ATTR, "#f": keys.LAYOUT_ATTR},
                to_item({":n": shards, ":f": keys.ROW_LAYOUT}),
            ),
        )

    def acquire(
        self, bucket: datetime, shard: int, owner: str, now: datetime, expires_at: datetime
    ) -> PartitionLease | None:
        """Take the lease of a partition, or return None.

        The token grows even if the owner already has the lease.
        """
        outcome = self._update(
            bucket,
            shard,
            "attribute_not_exists(#done) AND "
            "(attribute_not_exists(#owner) OR #owner = :owner OR #until <= :now)",
            "SET #owner = :owner, #until = :until, #f = :f, "
            "#token = if_not_exists(#token, :none) + :one, "
            "#look = if_not_exists(#look, :none), #expires = :kept",
            {
                ":kept": keys.to_ttl(max(expires_at, bucket) + PARTITION_LEASE_RETENTION),
                ":owner": owner,
                ":until": time_key(expires_at),
                ":now": time_key(now),
                ":none": 0,
                ":one": 1,
                ":f": keys.ROW_LAYOUT,
            },
        )
        return (
            None if isinstance(outcome, ConditionFailed) else _parse_lease(bucket, shard, outcome)
        )

    def renew(self, lease: PartitionLease, expires_at: datetime) -> PartitionLease | None:
        outcome = self._update_own(lease, "SET #until = :until", {":until": time_key(expires_at)})
        return (
            None if isinstance(outcome, ConditionFailed) else lease._replace(expires_at=expires_at)
        )

    def release(self, lease: PartitionLease) -> bool:
        outcome = self._update_own(lease, "REMOVE #owner, #until", {})
        if not isinstance(outcome, ConditionFailed):
            return True
        is_released = keys.OWNER_ATTR not in outcome.item and keys.DONE_ATTR not in outcome.item
        return outcome.ambiguous and is_released and _matches_lease(outcome.item, lease)

    def mark_done(self, lease: PartitionLease) -> bool:
        ttl = keys.to_ttl(max(lease.expires_at, lease.bucket) + PARTITION_LEASE_RETENTION)
        outcome = self._update_own(
            lease, "SET #done = :done, #expires = :kept", {":done": True, ":kept": ttl}
        )
        if not isinstance(outcome, ConditionFailed):
            return True
        return (
            keys.DONE_ATTR in outcome.item
            and int(outcome.item[keys.TOKEN_ATTR]["N"]) == lease.token
        )

    def is_done(self, bucket: datetime, shard: int) -> bool:
        """Return whether the partition is done. All partitions before the watermark are."""
        row_key = keys.partition_lease_key(bucket, shard)
        rows = self._dynamo.read(self._table, [row_key, keys.watermark_key()])
        if row_key in rows and keys.DONE_ATTR in rows[row_key]:
            return True
        watermark_row = rows.get(keys.watermark_key())
        return watermark_row is not None and bucket < parse_time_key(
            watermark_row[keys.TIME_ATTR]["S"]
        )

    def signal_new_timers(self, bucket: datetime, shard: int) -> PartitionLease | None:
        outcome = self._update(
            bucket,
            shard,
            "attribute_not_exists(#done) AND attribute_exists(#owner) AND #until > :now",
            "SET #look = #look + :one",
            {":one": 1, ":now": time_key(self._clock())},
        )
        return (
            None if isinstance(outcome, ConditionFailed) else _parse_lease(bucket, shard, outcome)
        )

    def valid_leases(
        self, partitions: Sequence[TimerPartition]
    ) -> Mapping[TimerPartition, PartitionLease]:
        """Return the valid leases of these partitions."""
        partitions_by_key = {
            keys.partition_lease_key(*partition): partition for partition in partitions
        }
        rows = self._dynamo.read(self._table, list(partitions_by_key)) if partitions_by_key else {}
        leases = {
            partitions_by_key[row_key]: _parse_lease(*partitions_by_key[row_key], check_layout(row))
            for row_key, row in rows.items()
            if keys.OWNER_ATTR in row and keys.DONE_ATTR not in row
        }
        now = self._clock()
        return {partition: lease for partition, lease in leases.items() if lease.expires_at > now}

    def _update_own(
        self, lease: PartitionLease, update: str, values: Mapping[str, Any]
    ) -> Item | ConditionFailed:
        own_values = {":owner": lease.owner, ":token": lease.token, ":look": lease.signal_count}
        return self._update(
            lease.bucket, lease.shard, _OWN_LEASE_CONDITION, update, {**own_values, **values}
        )

    def _update(
        self, bucket: datetime, shard: int, condition: str, update: str, values: Mapping[str, Any]
    ) -> Item | ConditionFailed:
        expressions = f"{condition} {update}"
        names = {**_LEASE_ATTR_NAMES, "#f": keys.LAYOUT_ATTR, "#expires": keys.TTL}
        used_names = {name: names[name] for name in names if name in expressions}
        return self._dynamo.update_if(
            self._table,
            keys.partition_lease_key(bucket, shard),
            Condition(condition, update, used_names, to_item(values)),
            returns_row=True,
        )

    def _read(self, row_key: keys.RowKey) -> Mapping[str, Any] | None:
        row = self._dynamo.read(self._table, [row_key]).get(row_key)
        return None if row is None else check_layout(row)


class DynamoReceipts:
    """Receipts of idempotency keys, one row each."""

    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def claim(
        self, tenant: str, named_receipts: Sequence[tuple[str, Receipt]], now: datetime
    ) -> Sequence[Receipt]:
        """Return the valid receipt of each key. A repeated key uses its first receipt."""
        first_by_name: dict[str, Receipt] = {}
        for name, receipt in named_receipts:
            first_by_name.setdefault(name, receipt)
        valid_receipts = self._dynamo.pool.map(
            lambda item: self._claim(tenant, item[0], item[1], now), first_by_name.items()
        )
        by_name = dict(zip(first_by_name, valid_receipts, strict=True))
        return [by_name[name] for name, _ in named_receipts]

    def find(self, tenant: str, names: Sequence[str], now: datetime) -> Mapping[str, Receipt]:
        names_by_key = {keys.receipt_key(tenant, name): name for name in names}
        rows = self._dynamo.read(self._table, list(names_by_key)) if names_by_key else {}
        receipts = {
            names_by_key[row_key]: _parse_receipt(check_layout(row))
            for row_key, row in rows.items()
        }
        return {name: receipt for name, receipt in receipts.items() if receipt.expires_at > now}

    def _claim(self, tenant: str, name: str, receipt: Receipt, now: datetime) -> Receipt:
        failure = self._dynamo.put_if(
            self._table,
            {
                **keys.receipt_key(tenant, name).item(),
                **keys.ROW_LAYOUT_ATTRIBUTE,
                **_receipt_row(receipt),
            },
            Condition(
                "attribute_not_exists(#until) OR #until <= :now",
                names={"#until": keys.UNTIL_ATTR},
                values={":now": to_attribute(time_key(now))},
            ),
        )
        return receipt if failure is None else _parse_receipt(check_layout(failure.item))


def _parse_lease(bucket: datetime, shard: int, row: Mapping[str, Any]) -> PartitionLease:
    return PartitionLease(
        bucket,
        shard,
        owner=row[keys.OWNER_ATTR]["S"],
        token=int(row[keys.TOKEN_ATTR]["N"]),
        signal_count=int(row[keys.NOTIFY_COUNT_ATTR]["N"]),
        expires_at=parse_time_key(row[keys.UNTIL_ATTR]["S"]),
    )


def _matches_lease(row: Mapping[str, Any], lease: PartitionLease) -> bool:
    return (from_attribute(row[keys.TOKEN_ATTR]), from_attribute(row[keys.NOTIFY_COUNT_ATTR])) == (
        lease.token,
        lease.signal_count,
    )


def _receipt_row(receipt: Receipt) -> Item:
    return {
        **to_item(
            {
                keys.FINGERPRINT_ATTR: receipt.fingerprint,
                keys.RESULT_ID_ATTR: receipt.created_id,
                keys.TIME_ATTR: time_key(receipt.created_at),
                keys.UNTIL_ATTR: time_key(receipt.expires_at),
            }
        ),
        keys.TTL: to_attribute(keys.to_ttl(receipt.expires_at)),
    }


def _parse_receipt(row: Mapping[str, Any]) -> Receipt:
    return Receipt(
        fingerprint=row[keys.FINGERPRINT_ATTR]["S"],
        created_id=row[keys.RESULT_ID_ATTR]["S"],
        created_at=parse_time_key(row[keys.TIME_ATTR]["S"]),
        expires_at=parse_time_key(row[keys.UNTIL_ATTR]["S"]),
    )
