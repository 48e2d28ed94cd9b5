"""The tables, and the keys and attributes of most rows.

Timers, audit, counters, limits, tokens and batch outcomes define their keys in their own modules.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from punctual.aws.dynamodb.sort_keys import LAST_CHAR, escape, joined, number, parted, unescape
from punctual.domain.identifiers import EPOCH, slot_of

PK = "pk"
SK = "sk"
TTL = "expires"

# Prefixes of objects that expire with their runs. All other objects belong to an existing job.
LEFT_BY_RUNS = ("outputs/", "logs/")

FORMAT = "f"  # the layout number of a row, so that a later version can read old rows
LAYOUT = 1
# A changed layout takes the next number: docs/decisions/0018-formats.md.
SHARED_TIMERS = 2
SHARED_ENDS = 2
VERSION = "version"
WRITERS = "writers"
STATE = "state"
RUNS, LINE, ENDED = "runs", "line", "ended"
BEATING = "beating"  # set if a run has a heartbeat; the sparse index holds only these rows
LEASE = "lease_"  # prefix of an attribute name; the run id follows, one attribute for each lease
TOKEN, UNTIL, BEATEN = "tok", "until", "beaten"
BY = "by"  # the audit note of a client's change; the next swap removes it
ROW = "row"
PARTS = "parts"
OWNER, LOOK, DONE = "owner", "look", "done"
AT, COUNT = "at", "n"
BEAT, DISPATCH = "beat", "dispatch"  # time of the last watermark write; the dispatch switch
PRINT, MADE = "print", "made"  # attributes of a receipt

RUN_LISTS = 4  # partitions of a tenant's list of runs over all jobs


class Table(NamedTuple):
    """The definition of a table for the stack. Every table has the string keys `pk` and `sk`.

    `sparse` names a number attribute that some rows have, and the index of these rows.
    """

    name: str
    expires: bool
    streamed: bool = False
    sparse: str = ""

    def schema(self) -> dict[str, Any]:
        """Return the parameters of CreateTable for keys and indexes.

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
TIMERS = Table("timers", expires=False)  # no TTL: a late timer must still fire
HISTORY = Table("runs", expires=True)
CONTROL = Table("control", expires=True)
AUDIT = Table("audit", expires=True)
TABLES = (JOBS, TIMERS, HISTORY, CONTROL, AUDIT)


class RowKey(NamedTuple):
    """The primary key of a row.

    >>> RowKey("acme#03", "job").item()
    {'pk': {'S': 'acme#03'}, 'sk': {'S': 'job'}}
    """

    pk: str
    sk: str

    def item(self) -> dict[str, dict[str, str]]:
        return {PK: {"S": self.pk}, SK: {"S": self.sk}}


def expiry(at: datetime) -> int:
    """Return `at` in seconds for the TTL of DynamoDB, rounded up.

    >>> expiry(datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC))
    2
    """
    return -((EPOCH - at) // timedelta(seconds=1))


# Jobs


def slot(tenant: str, number_of: int) -> str:
    """Return the partition key of the job states of one sixteenth of a tenant's jobs.

    >>> slot("acme", 3)
    'acme#03'
    """
    return f"{escape(tenant)}#{number_of:02d}"


def head(tenant: str, job_id: str) -> RowKey:
    return RowKey(slot(tenant, slot_of(job_id)), escape(job_id))


def parse_head(key: RowKey) -> tuple[str, str]:
    """Return the tenant and the job id of a job state's key.

    >>> parse_head(head("acme", "01900000"))
    ('acme', '01900000')
    """
    return parted(key.pk)[0], unescape(key.sk)


def body(tenant: str, job_id: str, ref: str, part: int = 0) -> RowKey:
    """Return the key of a definition row.

    Definition rows have their own partitions, so a list of job states does not read them.

    >>> body("acme", "01900000", "1-abc").sk
    '01900000#body#1-abc'
    """
    sk = joined(job_id, "body", ref)
    pk = f"{slot(tenant, slot_of(job_id))}#body"
    return RowKey(pk, f"{sk}#{part}" if part else sk)


# Minutes


def bucket(minute: datetime, shard: int) -> str:
    """Return the partition key of the timers of a minute and shard.

    >>> bucket(datetime(2026, 12, 1, 10, tzinfo=UTC), 7)
    '2026-12-01T10:00Z#7'
    """
    utc = minute.astimezone(UTC).replace(tzinfo=None)
    return f"{utc.isoformat(timespec='minutes')}Z#{shard}"


# Runs


def job_runs(tenant: str, job_id: str) -> str:
    return joined(tenant, job_id)


def run(tenant: str, job_id: str, run_id: str) -> RowKey:
    """Return the key of a run's history row.

    >>> run("acme", "j", "r")
    RowKey(pk='acme#j', sk='run#r')
    """
    return RowKey(job_runs(tenant, job_id), joined("run", run_id))


def runs_between(before: str | None, after: str | None) -> tuple[str, str]:
    """Return the bounds for BETWEEN. The range starts behind `after` and includes `before`.

    >>> runs_between("b", "a")
    ('run#a#', 'run#b')
    """
    low = "run#" if after is None else f"{joined('run', after)}#"
    high = f"run#{LAST_CHAR}" if before is None else joined("run", before)
    return low, high


def attempt(
    tenant: str, job_id: str, run_id: str, attempt_number: int, token: int, lost: bool
) -> RowKey:
    """Return the key of an attempt. Attempts have a prefix of their own, so run pages skip them.

    >>> attempt("acme", "j", "r", 1, 7, False).sk
    'try#r#000000000001#000000000007#0'
    """
    sk = f"{attempts(run_id)}{number(attempt_number)}#{number(token)}#{int(lost)}"
    return RowKey(job_runs(tenant, job_id), sk)


def attempts(run_id: str) -> str:
    """Return the prefix of the sort keys of a run's attempts."""
    return f"{joined('try', run_id)}#"


# Control. Keys without a tenant begin with the separator; no tenant's key does.


def watermark() -> RowKey:
    return RowKey("#watermark", "-")


def shards() -> RowKey:
    return RowKey("#shards", "-")


def walk() -> RowKey:
    """Return the key of the progress row of the daily walk."""
    return RowKey("#walk", "-")


def bucket_lease(minute: datetime, shard: int) -> RowKey:
    """Return the key of the lease of a partition of timers.

    >>> bucket_lease(datetime(2026, 12, 1, 10, tzinfo=UTC), 7).pk
    '#lease#2026-12-01T10:00Z#7'
    """
    return RowKey(f"#lease#{bucket(minute, shard)}", "-")


def receipt(tenant: str, idempotency_key: str) -> RowKey:
    """Return the key of the receipt for an idempotency key.

    >>> receipt("acme", "a b").pk
    'acme#receipt#a$20b'
    """
    return RowKey(joined(tenant, "receipt", idempotency_key), "-")


def run_list(tenant: str, part: int) -> str:
    """Return the partition key of one part of a tenant's list of runs.

    >>> run_list("acme", 2)
    'acme#runs#2'
    """
    return f"{escape(tenant)}#runs#{part}"


def run_group(run_id: str) -> str:
    """Return the part of a run id that all ids of the same four seconds share.

    >>> run_group("01939f6a-7b12-7000-8000-000000000000")
    '01939f6a-7'
    """
    return run_id[:10]


def run_list_row(group: str, digest: str) -> str:
    return joined(group, digest)


def run_group_of(sk: str) -> str:
    """Return the group of a packed row.

    >>> run_group_of(run_list_row("01939f6a-7", "ab"))
    '01939f6a-7'
    """
    return parted(sk)[0]


def until_group(group: str) -> str:
    """Return the upper bound of the sort keys of a group.

    >>> run_list_row("a", "ff") < until_group("a") < run_list_row("aa", "00")
    True
    """
    return f"{escape(group)}#{LAST_CHAR}"
