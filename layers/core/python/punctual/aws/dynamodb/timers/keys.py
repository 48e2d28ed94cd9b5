"""The keys of timers. A single timer consists of its key; timers put together share a row.

All members of a shared row have the same time. The row sorts by its first member, so rows sort by
time. A job's timer stands at or shortly before the key that it would have alone.
"""

from datetime import datetime

from punctual.aws.dynamodb.keys import (
    FIRST_CHAR,
    LAST_CHAR,
    RowKey,
    escape,
    join_parts,
    number_key,
    parse_time_key,
    split_parts,
    time_key,
    timer_partition,
)

MEMBERS_ATTR = "timers"
_SINGLE_TIMER_SEPARATORS = 3  # separators in the sort key of a row with a single timer


def timer_key(
    minute: datetime, shard: int, timer_at: datetime, tenant: str, job_id: str, version: int
) -> RowKey:
    """Return the key of a single timer.

    >>> from datetime import UTC
    >>> ten = datetime(2026, 12, 1, 10, tzinfo=UTC)
    >>> timer_key(ten, 0, ten, "acme", "j", 3).sk
    '2026-12-01T10:00:00.000000Z#acme#j#000000000003'
    """
    return RowKey(
        timer_partition(minute, shard),
        f"{time_key(timer_at)}#{join_parts(tenant, job_id)}#{number_key(version)}",
    )


def parse_timer_key(key: RowKey) -> tuple[datetime, int, datetime, str, str, int]:
    time_text, tenant, job_id, version = split_parts(key.sk)
    return (*parse_partition(key.pk), parse_time_key(time_text), tenant, job_id, int(version))


def parse_partition(pk: str) -> tuple[datetime, int]:
    """Return the minute and shard of a partition key.

    >>> parse_partition("2026-12-01T10:00Z#7")
    (datetime.datetime(2026, 12, 1, 10, 0, tzinfo=datetime.timezone.utc), 7)
    """
    minute, shard = pk.split("#")
    return datetime.fromisoformat(minute), int(shard)


def shared_row_key(first_key: RowKey, write_id: str) -> RowKey:
    """Return the key of a shared row: the key of its first member and the write id of one put.

    >>> shared_row_key(RowKey("2026-12-01T10:00Z#7", "x#acme#j#000000000003"), "5e").sk
    'x#acme#j#000000000003#5e'
    """
    return RowKey(first_key.pk, f"{first_key.sk}#{escape(write_id)}")


def is_shared(sk: str) -> bool:
    """Return whether this is the sort key of a shared row.

    >>> is_shared("x#acme#j#000000000003"), is_shared("x#acme#j#000000000003#5e")
    (False, True)
    """
    return sk.count("#") > _SINGLE_TIMER_SEPARATORS


def time_of(sk: str) -> datetime:
    """Return the time of a timer from its sort key.

    >>> time_of("2026-12-01T10:00:00.000000Z#acme#j#000000000003#5e").hour
    10
    """
    return parse_time_key(sk.partition("#")[0])


def member_text(tenant: str, job_id: str, version: int) -> str:
    """Return the text that names a timer within a shared row.

    >>> member_text("acme", "j", 3)
    'acme#j#3'
    """
    return f"{join_parts(tenant, job_id)}#{version}"


def parse_member(text: str) -> tuple[str, str, int]:
    """Return tenant, job id and version of a member.

    >>> parse_member(member_text("a#", "j", 3))
    ('a#', 'j', 3)
    """
    tenant, job_id, version = split_parts(text)
    return tenant, job_id, int(version)


def next_sort_key(sk: str) -> str:
    """Return the smallest sort key after this one.

    >>> next_sort_key("x#000000000001") <= "x#000000000001#5e" < "x#000000000002"
    True
    """
    return sk + "#"


def due_upper_bound(due_at: datetime) -> str:
    """Return the upper bound of the sort keys of timers at or before this time.

    >>> from datetime import UTC
    >>> ten = datetime(2026, 12, 1, 10, tzinfo=UTC)
    >>> timer_key(ten, 0, ten, chr(0x10FFFF), "j", 3).sk < due_upper_bound(ten)
    True
    """
    return time_key(due_at) + FIRST_CHAR


def job_bounds(timer_at: datetime, tenant: str, job_id: str) -> tuple[str, str]:
    """Return the range of sort keys in which a job's timer of this time can stand.

    >>> from datetime import UTC
    >>> ten = datetime(2026, 12, 1, 10, tzinfo=UTC)
    >>> low, high = job_bounds(ten, "acme", "j")
    >>> first_sk = timer_key(ten, 0, ten, "", "", 0).sk
    >>> low < first_sk < timer_key(ten, 0, ten, "acme", "j", 3).sk < high
    True
    >>> high < timer_key(ten, 0, ten, "acme", "ja", 0).sk
    True
    """
    return (
        f"{time_key(timer_at)}#",
        f"{time_key(timer_at)}#{join_parts(tenant, job_id)}#{LAST_CHAR}",
    )
