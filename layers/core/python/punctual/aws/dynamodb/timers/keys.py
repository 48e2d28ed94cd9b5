"""The keys of timers. A single timer consists of its key; timers put together share a row.

All members of a shared row have the same time. The row sorts by its first member, so rows sort by
time. A job's timer stands at or shortly before the key that it would have alone.
"""

from datetime import datetime

from punctual.aws.dynamodb.keys import RowKey, bucket
from punctual.aws.dynamodb.sort_keys import (
    FIRST_CHAR,
    LAST_CHAR,
    escape,
    joined,
    moment,
    number,
    parse_moment,
    parted,
)

MEMBERS = "timers"
_ALONE = 3  # separators in the sort key of a row with a single timer


def timer(
    minute: datetime, shard: int, at: datetime, tenant: str, job_id: str, version: int
) -> RowKey:
    """Return the key of a single timer.

    >>> from datetime import UTC
    >>> ten = datetime(2026, 12, 1, 10, tzinfo=UTC)
    >>> timer(ten, 0, ten, "acme", "j", 3).sk
    '2026-12-01T10:00:00.000000Z#acme#j#000000000003'
    """
    return RowKey(bucket(minute, shard), f"{moment(at)}#{joined(tenant, job_id)}#{number(version)}")


def parse_timer(key: RowKey) -> tuple[datetime, int, datetime, str, str, int]:
    at, tenant, job_id, version = parted(key.sk)
    return (*parse_place(key.pk), parse_moment(at), tenant, job_id, int(version))


def parse_place(pk: str) -> tuple[datetime, int]:
    """Return the minute and shard of a partition key.

    >>> parse_place("2026-12-01T10:00Z#7")
    (datetime.datetime(2026, 12, 1, 10, 0, tzinfo=datetime.timezone.utc), 7)
    """
    minute, shard = pk.split("#")
    return datetime.fromisoformat(minute), int(shard)


def shared(first: RowKey, mark: str) -> RowKey:
    """Return the key of a shared row: the key of its first member and the write id of one put.

    >>> shared(RowKey("2026-12-01T10:00Z#7", "x#acme#j#000000000003"), "5e").sk
    'x#acme#j#000000000003#5e'
    """
    return RowKey(first.pk, f"{first.sk}#{escape(mark)}")


def is_shared(sk: str) -> bool:
    """Return whether this is the sort key of a shared row.

    >>> is_shared("x#acme#j#000000000003"), is_shared("x#acme#j#000000000003#5e")
    (False, True)
    """
    return sk.count("#") > _ALONE


def moment_of(sk: str) -> datetime:
    """Return the time of a timer from its sort key.

    >>> moment_of("2026-12-01T10:00:00.000000Z#acme#j#000000000003#5e").hour
    10
    """
    return parse_moment(sk.partition("#")[0])


def member(tenant: str, job_id: str, version: int) -> str:
    """Return the text that names a timer within a shared row.

    >>> member("acme", "j", 3)
    'acme#j#3'
    """
    return f"{joined(tenant, job_id)}#{version}"


def parse_member(text: str) -> tuple[str, str, int]:
    """Return tenant, job id and version of a member.

    >>> parse_member(member("a#", "j", 3))
    ('a#', 'j', 3)
    """
    tenant, job_id, version = parted(text)
    return tenant, job_id, int(version)


def behind(sk: str) -> str:
    """Return the smallest sort key after this one.

    >>> behind("x#000000000001") <= "x#000000000001#5e" < "x#000000000002"
    True
    """
    return sk + "#"


def until_moment(at: datetime) -> str:
    """Return the upper bound of the sort keys of timers at or before this time.

    >>> from datetime import UTC
    >>> ten = datetime(2026, 12, 1, 10, tzinfo=UTC)
    >>> timer(ten, 0, ten, chr(0x10FFFF), "j", 3).sk < until_moment(ten)
    True
    """
    return moment(at) + FIRST_CHAR


def before_job(at: datetime, tenant: str, job_id: str) -> tuple[str, str]:
    """Return the range of sort keys in which a job's timer of this time can stand.

    >>> from datetime import UTC
    >>> ten = datetime(2026, 12, 1, 10, tzinfo=UTC)
    >>> low, high = before_job(ten, "acme", "j")
    >>> low < timer(ten, 0, ten, "", "", 0).sk < timer(ten, 0, ten, "acme", "j", 3).sk < high
    True
    >>> high < timer(ten, 0, ten, "acme", "ja", 0).sk
    True
    """
    return f"{moment(at)}#", f"{moment(at)}#{joined(tenant, job_id)}#{LAST_CHAR}"
