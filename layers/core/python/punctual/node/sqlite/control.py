"""Control rows of the node: leases of partitions, the watermark, and receipts of requests."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from punctual.domain.errors import Unreadable
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.partitions import BucketLease
from punctual.engine.ports.rows import Receipt
from punctual.node.files.damage import DECODING
from punctual.node.sqlite.codec import Codec, micros, minute, moment
from punctual.node.sqlite.transaction import Transaction

RECEIPT = Codec(Receipt)
_PLACE = "WHERE bucket = ? AND shard = ?"
_MINE = f"{_PLACE} AND token = ? AND until IS NOT NULL AND done = 0"


class SqliteBuckets:
    """Leases of partitions.

    The rows are few, so each change is written at once within the transaction.

    No minute after `_closed` is closed. It is None if the rows have to be read.
    """

    def __init__(self, unit: Transaction, clock: Clock) -> None:
        self._unit = unit
        self._clock = clock
        self._closed: int | None = None

    def watermark(self) -> datetime | None:
        value = self._value("watermark")
        return None if value is None else moment(value)

    def advance(self, old: datetime | None, new: datetime) -> bool:
        with self._unit:
            if self.watermark() != old:
                return False
            self._set("watermark", micros(new))
            self._note_closed(minute(new) - 1)
            return True

    def reopen(self, current: datetime, since: datetime) -> bool:
        if self._closed_to() < minute(current):
            return False
        with self._unit:
            self._unit.begin()
            self._unit.db.execute(
                "UPDATE buckets SET done = 0, until = NULL WHERE bucket >= ? AND done = 1",
                (minute(since),),
            )
            mark = self.watermark()
            if mark is not None and mark > since:
                self._set("watermark", micros(since))
            self._closed = minute(since) - 1
            return True

    def _closed_to(self) -> int:
        """Return the last minute that may be closed."""
        if self._closed is None:
            with self._unit:
                (last,) = self._unit.db.execute(
                    "SELECT max(bucket) FROM buckets WHERE done = 1"
                ).fetchone()
                mark = self.watermark()
            self._closed = max(last or 0, 0 if mark is None else minute(mark) - 1)
        return self._closed

    def _note_closed(self, last: int) -> None:
        if self._closed is not None:
            self._closed = max(self._closed, last)

    def shards(self) -> int:
        return self._value("shards") or 1

    def grow(self, shards: int) -> None:
        with self._unit:
            if shards > self.shards():
                self._set("shards", shards)

    def acquire(
        self, bucket: datetime, shard: int, owner: str, now: datetime, until: datetime
    ) -> BucketLease | None:
        with self._unit:
            row = self._unit.db.execute(
                f"SELECT owner, token, look, until, done FROM buckets {_PLACE}",
                (minute(bucket), shard),
            ).fetchone()
            token, look = 1, 0
            if row is not None and not _is_whole(row):
                error = TypeError("a number is none")
                self._unit.damage.note("buckets", (minute(bucket), shard), error)
            elif row is not None:
                holder, token, look, ends, done = row
                lives = ends is not None and ends > micros(now)
                if done or (lives and holder != owner):
                    return None
                token += 1
            self._unit.begin()
            self._unit.db.execute(
                "INSERT OR REPLACE INTO buckets VALUES (?, ?, ?, ?, ?, ?, 0)",
                (minute(bucket), shard, owner, token, look, micros(until)),
            )
            return BucketLease(bucket, shard, owner, token, look, until)

    def renew(self, lease: BucketLease, until: datetime) -> BucketLease | None:
        renewed = self._update(lease, "until = ?", micros(until))
        return lease._replace(until=until) if renewed else None

    def give_back(self, lease: BucketLease) -> bool:
        return self._update(lease, "until = NULL")

    def done(self, lease: BucketLease) -> bool:
        with self._unit:
            if self._update(lease, "done = 1"):
                self._note_closed(minute(lease.bucket))
                return True
            row = self._unit.db.execute(
                f"SELECT 1 FROM buckets {_PLACE} AND token = ? AND done = 1",
                (minute(lease.bucket), lease.shard, lease.token),
            ).fetchone()
            return row is not None

    def is_done(self, bucket: datetime, shard: int) -> bool:
        with self._unit:
            mark = self.watermark()
            if mark is not None and bucket < mark:
                return True
            row = self._unit.db.execute(
                f"SELECT done = 1 FROM buckets {_PLACE}", (minute(bucket), shard)
            ).fetchone()
            return row is not None and bool(row[0])

    def nudge(self, bucket: datetime, shard: int) -> BucketLease | None:
        with self._unit:
            self._unit.begin()
            row = self._unit.db.execute(
                f"UPDATE buckets SET look = look + 1 {_PLACE} AND done = 0 AND until > ? "
                "AND typeof(until) = 'integer' "
                "RETURNING owner, token, look, until",
                (minute(bucket), shard, micros(self._clock())),
            ).fetchone()
            if row is None:
                return None
            owner, token, look, until = row
            return BucketLease(bucket, shard, owner, token, look, moment(until))

    def flush(self) -> None:
        pass

    def keep(self) -> None:
        pass

    def drop(self) -> None:
        self._closed = None

    def _update(self, lease: BucketLease, change: str, *values: int) -> bool:
        """Change the row of a lease.

        This fails if another lease holds the partition or if a nudge came since the last read.
        """
        with self._unit:
            self._unit.begin()
            done = self._unit.db.execute(
                f"UPDATE buckets SET {change} {_MINE} AND look = ?",
                (*values, minute(lease.bucket), lease.shard, lease.token, lease.look),
            )
            return done.rowcount == 1

    def _value(self, name: str) -> int | None:
        with self._unit:
            row = self._unit.db.execute(
                "SELECT value FROM control WHERE name = ?", (name,)
            ).fetchone()
            return None if row is None else int(row[0])

    def _set(self, name: str, value: int) -> None:
        self._unit.begin()
        self._unit.db.execute("INSERT OR REPLACE INTO control VALUES (?, ?)", (name, value))


def _is_whole(row: tuple[object, ...]) -> bool:
    """Return whether a row of owner, token, look, until and done is valid.

    An invalid row counts as missing.
    """
    _, *numbers, done = row
    return done in (0, 1) and all(isinstance(one, int | None) for one in numbers)


class SqliteReceipts:
    def __init__(self, unit: Transaction) -> None:
        self._unit = unit

    def claim(
        self, tenant: str, wanted: Sequence[tuple[str, Receipt]], now: datetime
    ) -> Sequence[Receipt]:
        standing = dict(self.find(tenant, [name for name, _ in wanted], now))
        with self._unit:
            for name, receipt in wanted:
                if name not in standing:
                    self._write(tenant, name, receipt)
                    standing[name] = receipt
        return [standing[name] for name, _ in wanted]

    def find(self, tenant: str, names: Sequence[str], now: datetime) -> Mapping[str, Receipt]:
        """Return the receipts by name.

        An unreadable receipt is an error. If it counted as missing, a repeated request would act
        twice.
        """
        with self._unit:
            rows = [(name, self._row(tenant, name, now)) for name in dict.fromkeys(names)]
        try:
            return {name: RECEIPT.decode(row) for name, row in rows if row is not None}
        except DECODING as error:
            self._unit.damage.note("receipts", (tenant,), error)
            raise Unreadable(
                "What an earlier request with this Idempotency-Key did cannot be read."
            ) from error

    def _row(self, tenant: str, name: str, now: datetime) -> bytes | None:
        row = self._unit.db.execute(
            "SELECT receipt FROM receipts WHERE tenant = ? AND name = ? AND expires > ?",
            (tenant, name, micros(now)),
        ).fetchone()
        return None if row is None else row[0]

    def _write(self, tenant: str, name: str, receipt: Receipt) -> None:
        self._unit.begin()
        self._unit.db.execute(
            "INSERT OR REPLACE INTO receipts VALUES (?, ?, ?, ?)",
            (tenant, name, micros(receipt.expires_at), RECEIPT.encode(receipt)),
        )
