"""Control rows: partition leases, the watermark, the shard count, and receipts."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item, from_attribute, to_attribute, to_item
from punctual.aws.dynamodb.client import Condition, DynamoClient, known
from punctual.aws.dynamodb.sort_keys import moment, parse_moment
from punctual.aws.retries import ConditionFailed
from punctual.engine.dispatch.planner import BUCKET
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.partitions import BucketLease, TimerPartition
from punctual.engine.ports.rows import Receipt

KEPT = timedelta(days=7)  # of a lease row; a poller reads a bucket again after its row expires
_NAMES = {
    "#owner": keys.OWNER,
    "#token": keys.TOKEN,
    "#look": keys.LOOK,
    "#until": keys.UNTIL,
    "#done": keys.DONE,
}
_OPEN = "REMOVE #done, #owner, #until"
_MINE = "attribute_not_exists(#done) AND #owner = :owner AND #token = :token AND #look = :look"


class DynamoBuckets:
    """Partition leases and the watermark. Each step is one conditional write."""

    def __init__(self, dynamo: DynamoClient, table: str, clock: Clock) -> None:
        self._dynamo = dynamo
        self._table = table
        self._clock = clock

    def watermark(self) -> datetime | None:
        row = self._read(keys.watermark())
        return None if row is None else parse_moment(row[keys.AT]["S"])

    def advance(self, old: datetime | None, new: datetime) -> bool:
        wanted = to_attribute(moment(new))
        beat = to_attribute(moment(self._clock()))
        row = {**keys.watermark().item(), **_layout(), keys.AT: wanted, keys.BEAT: beat}
        if old is None:
            condition = Condition("attribute_not_exists(#at)", names={"#at": keys.AT})
        else:
            value = {":old": to_attribute(moment(old))}
            condition = Condition("#at = :old", names={"#at": keys.AT}, values=value)
        refused = self._dynamo.put_if(self._table, row, condition)
        return refused is None or (refused.ambiguous and refused.item.get(keys.AT) == wanted)

    def reopen(self, current: datetime, since: datetime) -> bool:
        mark = self.watermark()
        if mark is None or mark <= current or not self.advance(mark, since):
            return False
        for number in range((mark - since) // BUCKET):
            for shard in range(self.shards()):
                self._change(since + number * BUCKET, shard, "attribute_exists(#done)", _OPEN, {})
        return True

    def heartbeat(self) -> datetime | None:
        """Return when the planner last wrote the watermark.

        The planner writes it every five minutes, and after each minute with work.
        """
        row = self._read(keys.watermark())
        return None if row is None or keys.BEAT not in row else parse_moment(row[keys.BEAT]["S"])

    def shards(self) -> int:
        row = self._read(keys.shards())
        return 1 if row is None or keys.COUNT not in row else int(row[keys.COUNT]["N"])

    def grow(self, shards: int) -> None:
        self._dynamo.update_if(
            self._table,
            keys.shards(),
            Condition(
                "attribute_not_exists(#n) OR #n < :n",
                "SET #n = :n, #f = :f",
                {"#n": keys.COUNT, "#f": keys.FORMAT},
                to_item({":n": shards, ":f": keys.LAYOUT}),
            ),
        )

    def acquire(
        self, bucket: datetime, shard: int, owner: str, now: datetime, until: datetime
    ) -> BucketLease | None:
        """Take the lease of a partition, or return None.

        The token grows even if the owner already has the lease.
        """
        answer = self._change(
            bucket,
            shard,
            "attribute_not_exists(#done) AND "
            "(attribute_not_exists(#owner) OR #owner = :owner OR #until <= :now)",
            "SET #owner = :owner, #until = :until, #f = :f, "
            "#token = if_not_exists(#token, :none) + :one, "
            "#look = if_not_exists(#look, :none), #expires = :kept",
            {
                ":kept": keys.expiry(max(until, bucket) + KEPT),
                ":owner": owner,
                ":until": moment(until),
                ":now": moment(now),
                ":none": 0,
                ":one": 1,
                ":f": keys.LAYOUT,
            },
        )
        return None if isinstance(answer, ConditionFailed) else _lease(bucket, shard, answer)

    def renew(self, lease: BucketLease, until: datetime) -> BucketLease | None:
        answer = self._change_mine(lease, "SET #until = :until", {":until": moment(until)})
        return None if isinstance(answer, ConditionFailed) else lease._replace(until=until)

    def give_back(self, lease: BucketLease) -> bool:
        answer = self._change_mine(lease, "REMOVE #owner, #until", {})
        if not isinstance(answer, ConditionFailed):
            return True
        given = keys.OWNER not in answer.item and keys.DONE not in answer.item
        return answer.ambiguous and given and _says(answer.item, lease)

    def done(self, lease: BucketLease) -> bool:
        kept = keys.expiry(max(lease.until, lease.bucket) + KEPT)
        answer = self._change_mine(
            lease, "SET #done = :done, #expires = :kept", {":done": True, ":kept": kept}
        )
        if not isinstance(answer, ConditionFailed):
            return True
        return keys.DONE in answer.item and int(answer.item[keys.TOKEN]["N"]) == lease.token

    def is_done(self, bucket: datetime, shard: int) -> bool:
        """Return whether the partition is done. All partitions before the watermark are."""
        at = keys.bucket_lease(bucket, shard)
        rows = self._dynamo.read(self._table, [at, keys.watermark()])
        if at in rows and keys.DONE in rows[at]:
            return True
        mark = rows.get(keys.watermark())
        return mark is not None and bucket < parse_moment(mark[keys.AT]["S"])

    def nudge(self, bucket: datetime, shard: int) -> BucketLease | None:
        answer = self._change(
            bucket,
            shard,
            "attribute_not_exists(#done) AND attribute_exists(#owner) AND #until > :now",
            "SET #look = #look + :one",
            {":one": 1, ":now": moment(self._clock())},
        )
        return None if isinstance(answer, ConditionFailed) else _lease(bucket, shard, answer)

    def held(self, places: Sequence[TimerPartition]) -> Mapping[TimerPartition, BucketLease]:
        """Return the live leases on these partitions."""
        by_key = {keys.bucket_lease(*place): place for place in places}
        rows = self._dynamo.read(self._table, list(by_key)) if by_key else {}
        leases = {
            by_key[at]: _lease(*by_key[at], known(row))
            for at, row in rows.items()
            if keys.OWNER in row and keys.DONE not in row
        }
        now = self._clock()
        return {place: lease for place, lease in leases.items() if lease.until > now}

    def _change_mine(
        self, lease: BucketLease, change: str, values: Mapping[str, Any]
    ) -> Item | ConditionFailed:
        mine = {":owner": lease.owner, ":token": lease.token, ":look": lease.look}
        return self._change(lease.bucket, lease.shard, _MINE, change, {**mine, **values})

    def _change(
        self, bucket: datetime, shard: int, holds: str, change: str, values: Mapping[str, Any]
    ) -> Item | ConditionFailed:
        both = f"{holds} {change}"
        names = {**_NAMES, "#f": keys.FORMAT, "#expires": keys.TTL}
        used = {name: names[name] for name in names if name in both}
        return self._dynamo.update_if(
            self._table,
            keys.bucket_lease(bucket, shard),
            Condition(holds, change, used, to_item(values)),
            answers=True,
        )

    def _read(self, at: keys.RowKey) -> Mapping[str, Any] | None:
        row = self._dynamo.read(self._table, [at]).get(at)
        return None if row is None else known(row)


class DynamoReceipts:
    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def claim(
        self, tenant: str, wanted: Sequence[tuple[str, Receipt]], now: datetime
    ) -> Sequence[Receipt]:
        """Return the valid receipt of each key. A repeated key uses its first receipt."""
        first: dict[str, Receipt] = {}
        for name, receipt in wanted:
            first.setdefault(name, receipt)
        standing = self._dynamo.crew.map(
            lambda one: self._claim(tenant, one[0], one[1], now), first.items()
        )
        by_name = dict(zip(first, standing, strict=True))
        return [by_name[name] for name, _ in wanted]

    def find(self, tenant: str, names: Sequence[str], now: datetime) -> Mapping[str, Receipt]:
        by_key = {keys.receipt(tenant, name): name for name in names}
        rows = self._dynamo.read(self._table, list(by_key)) if by_key else {}
        found = {by_key[at]: _receipt(known(row)) for at, row in rows.items()}
        return {name: receipt for name, receipt in found.items() if receipt.expires_at > now}

    def _claim(self, tenant: str, name: str, receipt: Receipt, now: datetime) -> Receipt:
        refused = self._dynamo.put_if(
            self._table,
            {**keys.receipt(tenant, name).item(), **_layout(), **_receipt_row(receipt)},
            Condition(
                "attribute_not_exists(#until) OR #until <= :now",
                names={"#until": keys.UNTIL},
                values={":now": to_attribute(moment(now))},
            ),
        )
        return receipt if refused is None else _receipt(known(refused.item))


def _layout() -> Item:
    return {keys.FORMAT: to_attribute(keys.LAYOUT)}


def _lease(bucket: datetime, shard: int, row: Mapping[str, Any]) -> BucketLease:
    return BucketLease(
        bucket,
        shard,
        owner=row[keys.OWNER]["S"],
        token=int(row[keys.TOKEN]["N"]),
        look=int(row[keys.LOOK]["N"]),
        until=parse_moment(row[keys.UNTIL]["S"]),
    )


def _says(row: Mapping[str, Any], lease: BucketLease) -> bool:
    return (from_attribute(row[keys.TOKEN]), from_attribute(row[keys.LOOK])) == (
        lease.token,
        lease.look,
    )


def _receipt_row(receipt: Receipt) -> Item:
    return {
        **to_item(
            {
                keys.PRINT: receipt.fingerprint,
                keys.MADE: receipt.made_id,
                keys.AT: moment(receipt.created_at),
                keys.UNTIL: moment(receipt.expires_at),
            }
        ),
        keys.TTL: to_attribute(keys.expiry(receipt.expires_at)),
    }


def _receipt(row: Mapping[str, Any]) -> Receipt:
    return Receipt(
        fingerprint=row[keys.PRINT]["S"],
        made_id=row[keys.MADE]["S"],
        created_at=parse_moment(row[keys.AT]["S"]),
        expires_at=parse_moment(row[keys.UNTIL]["S"]),
    )
