"""The tables, and the keys and attributes of most rows; some kinds have a file of their own.

Those are `…_keys.py`: audit, limit, pack, status, timer, token. Nowhere else is one spelled out.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from punctual.aws.dynamodb.sort_keys import LAST_CHAR, escape, joined, number, parted, unescape
from punctual.domain.identifiers import EPOCH, slot_of

PK = "pk"
SK = "sk"
TTL = "expires"

# What runs leave behind in the bucket, and nobody needs longer than they are kept; all else
# there belongs to a living job.
LEFT_BY_RUNS = ("outputs/", "logs/")

FORMAT = "f"  # the number of a row's layout, so that a later version can read old rows
LAYOUT = 1
# What was laid out anew has the next number, whatever it is: docs/decisions/0018-formats.md.
SHARED_TIMERS = 2
SHARED_ENDS = 2
VERSION = "version"
WRITERS = "writers"
STATE = "state"
RUNS, LINE, ENDED = "runs", "line", "ended"
BEATING = "beating"  # of a head of which a run has a heartbeat: only such are in its index
LEASE = "lease_"  # and the run's id: each lease is an attribute of its own
TOKEN, UNTIL, BEATEN = "tok", "until", "beaten"
BY = "by"  # a client's change: who made it; gone with the next swap
ROW = "row"
PARTS = "parts"
OWNER, LOOK, DONE = "owner", "look", "done"
AT, COUNT = "at", "n"
BEAT, DISPATCH = "beat", "dispatch"  # when the watermark was kept; the kill switch
PRINT, MADE = "print", "made"  # of a receipt

RUN_LISTS = 4  # a tenant's list over all jobs is spread over so many partitions


class Table(NamedTuple):
    """What the stack must know of a table; all have the string keys `pk` and `sk`.

    `sparse` is a number that some rows have, and an index that has only those; both have that name.
    """

    name: str
    expires: bool
    streamed: bool = False
    sparse: str = ""

    def schema(self) -> dict[str, Any]:
        """
        >>> [key["AttributeName"] for key in JOBS.schema()["KeySchema"]]
        ['pk', 'sk']
        """
        kinds = {PK: "S", SK: "S", **({self.sparse: "N"} if self.sparse else {})}
        found: dict[str, Any] = {
            "KeySchema": _key_schema(PK, SK),
            "AttributeDefinitions": [
                {"AttributeName": name, "AttributeType": kind} for name, kind in kinds.items()
            ],
        }
        if self.sparse:
            found["GlobalSecondaryIndexes"] = [
                {
                    "IndexName": self.sparse,
                    "KeySchema": _key_schema(PK, self.sparse),
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                }
            ]
        return found


def _key_schema(partition: str, sort: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": partition, "KeyType": "HASH"},
        {"AttributeName": sort, "KeyType": "RANGE"},
    ]


JOBS = Table("jobs", expires=True, streamed=True, sparse=BEATING)
TIMERS = Table("timers", expires=False)  # an accepted job hangs on its timer, however late
HISTORY = Table("runs", expires=True)
CONTROL = Table("control", expires=True)
AUDIT = Table("audit", expires=True)
TABLES = (JOBS, TIMERS, HISTORY, CONTROL, AUDIT)


class RowKey(NamedTuple):
    """
    >>> RowKey("acme#03", "job").item()
    {'pk': {'S': 'acme#03'}, 'sk': {'S': 'job'}}
    """

    pk: str
    sk: str

    def item(self) -> dict[str, dict[str, str]]:
        return {PK: {"S": self.pk}, SK: {"S": self.sk}}


def expiry(at: datetime) -> int:
    """Whole seconds for DynamoDB's TTL, never before `at`.

    >>> expiry(datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC))
    2
    """
    return -((EPOCH - at) // timedelta(seconds=1))


# Jobs


def slot(tenant: str, number_of: int) -> str:
    """The heads of one sixteenth of a tenant's jobs.

    >>> slot("acme", 3)
    'acme#03'
    """
    return f"{escape(tenant)}#{number_of:02d}"


def head(tenant: str, job_id: str) -> RowKey:
    return RowKey(slot(tenant, slot_of(job_id)), escape(job_id))


def parse_head(key: RowKey) -> tuple[str, str]:
    """
    >>> parse_head(head("acme", "01900000"))
    ('acme', '01900000')
    """
    return parted(key.pk)[0], unescape(key.sk)


def body(tenant: str, job_id: str, ref: str, part: int = 0) -> RowKey:
    """Beside the heads, in partitions of their own: a list of heads reads no bodies.

    >>> body("acme", "01900000", "1-abc").sk
    '01900000#body#1-abc'
    """
    sk = joined(job_id, "body", ref)
    pk = f"{slot(tenant, slot_of(job_id))}#body"
    return RowKey(pk, f"{sk}#{part}" if part else sk)


# Minutes


def bucket(minute: datetime, shard: int) -> str:
    """
    >>> bucket(datetime(2026, 12, 1, 10, tzinfo=UTC), 7)
    '2026-12-01T10:00Z#7'
    """
    utc = minute.astimezone(UTC).replace(tzinfo=None)
    return f"{utc.isoformat(timespec='minutes')}Z#{shard}"


# Runs


def job_runs(tenant: str, job_id: str) -> str:
    return joined(tenant, job_id)


def run(tenant: str, job_id: str, run_id: str) -> RowKey:
    """
    >>> run("acme", "j", "r")
    RowKey(pk='acme#j', sk='run#r')
    """
    return RowKey(job_runs(tenant, job_id), joined("run", run_id))


def runs_between(before: str | None, after: str | None) -> tuple[str, str]:
    """The sort keys from behind `after` up to `before`, both taken in by BETWEEN.

    >>> runs_between("b", "a")
    ('run#a#', 'run#b')
    """
    low = "run#" if after is None else f"{joined('run', after)}#"
    high = f"run#{LAST_CHAR}" if before is None else joined("run", before)
    return low, high


def attempt(
    tenant: str, job_id: str, run_id: str, attempt_number: int, token: int, lost: bool
) -> RowKey:
    """In a range of their own, so that runs are paged without them.

    >>> attempt("acme", "j", "r", 1, 7, False).sk
    'try#r#000000000001#000000000007#0'
    """
    sk = f"{attempts(run_id)}{number(attempt_number)}#{number(token)}#{int(lost)}"
    return RowKey(job_runs(tenant, job_id), sk)


def attempts(run_id: str) -> str:
    """What the sort keys of a run's attempts begin with."""
    return f"{joined('try', run_id)}#"


# Control. What belongs to no tenant begins with the separator: no tenant's key does.


def watermark() -> RowKey:
    return RowKey("#watermark", "-")


def shards() -> RowKey:
    return RowKey("#shards", "-")


def walk() -> RowKey:
    """Where the daily walk over all heads stands."""
    return RowKey("#walk", "-")


def bucket_lease(minute: datetime, shard: int) -> RowKey:
    """
    >>> bucket_lease(datetime(2026, 12, 1, 10, tzinfo=UTC), 7).pk
    '#lease#2026-12-01T10:00Z#7'
    """
    return RowKey(f"#lease#{bucket(minute, shard)}", "-")


def receipt(tenant: str, idempotency_key: str) -> RowKey:
    """
    >>> receipt("acme", "a b").pk
    'acme#receipt#a$20b'
    """
    return RowKey(joined(tenant, "receipt", idempotency_key), "-")


def run_list(tenant: str, part: int) -> str:
    """
    >>> run_list("acme", 2)
    'acme#runs#2'
    """
    return f"{escape(tenant)}#runs#{part}"


def run_group(run_id: str) -> str:
    """Runs that are packed together: the ids of four seconds begin alike.

    >>> run_group("01939f6a-7b12-7000-8000-000000000000")
    '01939f6a-7'
    """
    return run_id[:10]


def run_list_row(group: str, digest: str) -> str:
    return joined(group, digest)


def run_group_of(sk: str) -> str:
    """
    >>> run_group_of(run_list_row("01939f6a-7", "ab"))
    '01939f6a-7'
    """
    return parted(sk)[0]


def until_group(group: str) -> str:
    """
    >>> run_list_row("a", "ff") < until_group("a") < run_list_row("aa", "00")
    True
    """
    return f"{escape(group)}#{LAST_CHAR}"
