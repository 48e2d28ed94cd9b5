"""Control rows of the node: leases of partitions, the watermark, and receipts of requests."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from punctual.domain.errors import Unreadable
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.partitions import PartitionLease
from punctual.engine.ports.rows import Receipt
from punctual.node.files.damage import DECODING_ERRORS
from punctual.node.sqlite.rows import Codec, from_micros, to_micros, to_minute
from punctual.node.sqlite.transaction import Transaction

RECEIPT_CODEC = Codec(Receipt)
_WHERE_PARTITION = "WHERE bucket = ? AND shard = ?"
_WHERE_LEASED = f"{_WHERE_PARTITION} AND token = ? AND until IS NOT NULL AND done = 0"


class SqlitePartitions:
    """Leases of partitions.

    The rows are few, so each change is written at once within the transaction.

    No minute after `_last_closed` is closed. None means that the rows must be read.
    """

    def __init__(self, transaction: Transaction, clock: Clock) -> None:
        self._transaction = transaction
        self._clock = clock
        self._last_closed: int | None = None

    def watermark(self) -> datetime | None:
        value = self._value("watermark")
        return None if value is None else from_micros(value)

    def advance_watermark(self, old: datetime | None, new: datetime) -> bool:
        with self._transaction:
            if self.watermark() != old:
                return False
            self._set("watermark", to_micros(new))
            self._extend_closed(to_minute(new) - 1)
            return True

    def reopen(self, current: datetime, since: datetime) -> bool:
        if self._find_last_closed() < to_minute(current):
            return False
        with self._transaction:
            self._transaction.begin()
            self._transaction.db.execute(
                "UPDATE buckets SET done = 0, until = NULL WHERE bucket >= ? AND done = 1",
                (to_minute(since),),
            )
            watermark = self.watermark()
            if watermark is not None and watermark > since:
                self._set("watermark", to_micros(since))
            self._last_closed = to_minute(since) - 1
            return True

    def _find_last_closed(self) -> int:
        """Return the last minute that may be closed."""
        if self._last_closed is None:
            with self._transaction:
                (last_done,) = self._transaction.db.execute(
                    "SELECT max(bucket) FROM buckets WHERE done = 1"
                ).fetchone()
                watermark = self.watermark()
            self._last_closed = max(
                last_done or 0, 0 if watermark is None else to_minute(watermark) - 1
            )
        return self._last_closed

    def _extend_closed(self, minute_number: int) -> None:
        if self._last_closed is not None:
            self._last_closed = max(self._last_closed, minute_number)

    def shard_count(self) -> int:
        return self._value("shards") or 1

    def raise_shard_count(self, shards: int) -> None:
        with self._transaction:
            if shards > self.shard_count():
                self._set("shards", shards)

    def acquire(
        self, bucket: datetime, shard: int, owner: str, now: datetime, expires_at: datetime
    ) -> PartitionLease | None:
        with self._transaction:
            row = self._transaction.db.execute(
                f"SELECT owner, token, look, until, done FROM buckets {_WHERE_PARTITION}",
                (to_minute(bucket), shard),
            ).fetchone()
            token, signals = 1, 0
            if row is not None and not _is_valid(row):
                error = TypeError("a number is none")
                self._transaction.damage.note("buckets", (to_minute(bucket), shard), error)
            elif row is not None:
                lease_owner, token, signals, lease_until, is_done = row
                is_leased = lease_until is not None and lease_until > to_micros(now)
                if is_done or (is_leased and lease_owner != owner):
                    return None
                token += 1
            self._transaction.begin()
            self._transaction.db.execute(
                "INSERT OR REPLACE INTO buckets VALUES (?, ?, ?, ?, ?, ?, 0)",
                (to_minute(bucket), shard, owner, token, signals, to_micros(expires_at)),
            )
            return PartitionLease(bucket, shard, owner, token, signals, expires_at)

    def renew(self, lease: PartitionLease, expires_at: datetime) -> PartitionLease | None:
        renewed = self._update_leased(lease, "until = ?", to_micros(expires_at))
        return lease._replace(expires_at=expires_at) if renewed else None

    def release(self, lease: PartitionLease) -> bool:
        return self._update_leased(lease, "until = NULL")

    def mark_done(self, lease: PartitionLease) -> bool:
        with self._transaction:
            if self._update_leased(lease, "done = 1"):
                self._extend_closed(to_minute(lease.bucket))
                return True
            row = self._transaction.db.execute(
                f"SELECT 1 FROM buckets {_WHERE_PARTITION} AND token = ? AND done = 1",
                (to_minute(lease.bucket), lease.shard, lease.token),
            ).fetchone()
            return row is not None

    def is_done(self, bucket: datetime, shard: int) -> bool:
        with self._transaction:
            watermark = self.watermark()
            if watermark is not None and bucket < watermark:
                return True
            row = self._transaction.db.execute(
                f"SELECT done = 1 FROM buckets {_WHERE_PARTITION}", (to_minute(bucket), shard)
            ).fetchone()
            return row is not None and bool(row[0])

    def signal_new_timers(self, bucket: datetime, shard: int) -> PartitionLease | None:
        with self._transaction:
            self._transaction.begin()
            row = self._transaction.db.execute(
                f"UPDATE buckets SET look = look + 1 {_WHERE_PARTITION} AND done = 0 AND until > ? "
                "AND typeof(until) = 'integer' "
                "RETURNING owner, token, look, until",
                (to_minute(bucket), shard, to_micros(self._clock())),
            ).fetchone()
            if row is None:
                return None
            owner, token, signals, until = row
            return PartitionLease(bucket, shard, owner, token, signals, from_micros(until))

    def on_rollback(self) -> None:
        self._last_closed = None

    def _update_leased(self, lease: PartitionLease, assignment: str, *values: int) -> bool:
        """Change the row of a lease.

        This fails if another lease holds the partition or if a signal came since the last read.
        """
        with self._transaction:
            self._transaction.begin()
            result = self._transaction.db.execute(
                f"UPDATE buckets SET {assignment} {_WHERE_LEASED} AND look = ?",
                (*values, to_minute(lease.bucket), lease.shard, lease.token, lease.signal_count),
            )
            return result.rowcount == 1

    def _value(self, name: str) -> int | None:
        with self._transaction:
            row = self._transaction.db.execute(
                "SELECT value FROM control WHERE name = ?", (name,)
            ).fetchone()
            return None if row is None else int(row[0])

    def _set(self, name: str, value: int) -> None:
        self._transaction.begin()
        self._transaction.db.execute("INSERT OR REPLACE INTO control VALUES (?, ?)", (name, value))


def _is_valid(row: tuple[object, ...]) -> bool:
    """Return whether a row of owner, token, look, until and done is valid.

    An invalid row counts as missing.
    """
    _, *numbers, is_done = row
    return is_done in (0, 1) and all(isinstance(number, int | None) for number in numbers)


class SqliteReceipts:
    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def claim(
        self, tenant: str, named_receipts: Sequence[tuple[str, Receipt]], now: datetime
    ) -> Sequence[Receipt]:
        receipts = dict(self.find(tenant, [name for name, _ in named_receipts], now))
        with self._transaction:
            for name, receipt in named_receipts:
                if name not in receipts:
                    self._write(tenant, name, receipt)
                    receipts[name] = receipt
        return [receipts[name] for name, _ in named_receipts]

    def find(self, tenant: str, names: Sequence[str], now: datetime) -> Mapping[str, Receipt]:
        """Return the receipts by name.

        An unreadable receipt is an error. If it counted as missing, a repeated request would act
        twice.
        """
        with self._transaction:
            rows = [(name, self._read(tenant, name, now)) for name in dict.fromkeys(names)]
        try:
            return {name: RECEIPT_CODEC.decode(row) for name, row in rows if row is not None}
        except DECODING_ERRORS as error:
            self._transaction.damage.note("receipts", (tenant,), error)
            raise Unreadable(
                "The result of an earlier request with this Idempotency-Key cannot be read."
            ) from error

    def _read(self, tenant: str, name: str, now: datetime) -> bytes | None:
        row = self._transaction.db.execute(
            "SELECT receipt FROM receipts WHERE tenant = ? AND name = ? AND expires > ?",
            (tenant, name, to_micros(now)),
        ).fetchone()
        return None if row is None else row[0]

    def _write(self, tenant: str, name: str, receipt: Receipt) -> None:
        self._transaction.begin()
        self._transaction.db.execute(
            "INSERT OR REPLACE INTO receipts VALUES (?, ?, ?, ?)",
            (tenant, name, to_micros(receipt.expires_at), RECEIPT_CODEC.encode(receipt)),
        )
