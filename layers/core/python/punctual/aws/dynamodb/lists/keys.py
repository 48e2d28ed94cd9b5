"""The partition keys of the `lists` table: rows that the status function derives from job states.

Each kind of row of a tenant has as many partitions as the stage has list slots. Rows can be lost
and made again, so none of them decides.
"""

from enum import StrEnum
from zlib import crc32

from punctual.aws.dynamodb.keys import escape


class ListKind(StrEnum):
    """The kinds of rows in the table. Each stands in the partition key, after the tenant."""

    JOBS = "jobs"
    JOB_COUNTS = "jobcounts"
    FAILURES = "failures"
    RUNS = "runs"
    FEED = "feed"


def list_slot_of(text: str, slots: int) -> int:
    """Return the slot of a job id or another key: one of the parts of a tenant's list.

    >>> list_slot_of("01900000-0000-7000-8000-000000000000", 4) in range(4)
    True
    """
    return crc32(text.encode()) % slots


def list_partition(tenant: str, kind: ListKind, slot: int) -> str:
    """Return the partition key of one slot of a tenant's list.

    >>> list_partition("acme", ListKind.JOBS, 3)
    'acme#jobs#03'
    """
    return f"{escape(tenant)}#{kind}#{slot:02d}"


def list_partitions(tenant: str, kind: ListKind, slots: int) -> list[str]:
    """Return the partition keys of all slots of a tenant's list.

    >>> list_partitions("acme", ListKind.RUNS, 2)
    ['acme#runs#00', 'acme#runs#01']
    """
    return [list_partition(tenant, kind, slot) for slot in range(slots)]


def list_key_pattern(kind: ListKind) -> str:
    """Return the pattern of the partition keys of a kind, for policies.

    >>> list_key_pattern(ListKind.FEED)
    '*#feed#*'
    """
    return f"*#{kind}#*"
