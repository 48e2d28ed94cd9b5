"""The keys of counters and run payload markers, and the stream filter of the status function."""

from typing import Any

from punctual.aws.dynamodb.keys import STATE, RowKey, body
from punctual.aws.dynamodb.sort_keys import LAST_CHAR, joined, number, parted

_OWN = "own-"

# Filters for the event source. Only job states have a `state`; other rows start no function.
HEADS_ONLY: tuple[dict[str, Any], ...] = tuple(
    {"dynamodb": {image: {STATE: {"S": [{"exists": True}]}}}} for image in ("NewImage", "OldImage")
)


PARTS = 4  # rows of a tenant's counts; a reader that loses a transaction on one uses the next
# Patterns of the partition keys of these rows, for policies.
TOTALS, COUNTED, BODIES = ("*#totals",), ("*#counted",), ("*#body",)


def totals(tenant: str, part: int) -> RowKey:
    """Return the key of one part of a tenant's totals.

    >>> totals("acme", 0), totals("acme", 2).sk
    (RowKey(pk='acme#totals', sk='-'), '-2')
    """
    return RowKey(joined(tenant, "totals"), f"-{part or ''}")


def minute(tenant: str, at: str, part: int) -> RowKey:
    """Return the key of one part of a tenant's counts of a minute.

    >>> minute("acme", "2026-12-01T10:00:00.000000Z", 0)
    RowKey(pk='acme#minutes', sk='2026-12-01T10:00:00.000000Z')
    """
    return RowKey(joined(tenant, "minutes"), f"{at}#{part}" if part else at)


def minute_of(sk: str) -> str:
    """Return the minute of a sort key.

    >>> minute_of(minute("acme", "2026-12-01T10:00:00.000000Z", 3).sk)
    '2026-12-01T10:00:00.000000Z'
    """
    return sk.partition("#")[0]


def minutes(tenant: str, start: str, end: str) -> tuple[str, str, str]:
    """Return the partition key of a tenant's minutes, and the bounds from `start` to `end`."""
    return joined(tenant, "minutes"), start, f"{end}#{LAST_CHAR}"


def counted(tenant: str, slice_at: str, row: int) -> RowKey:
    """Return the key of a row that names counted changes of this slice; rows count from 0.

    >>> counted("acme", "2026-12-01T10:00:05.000000Z", 7).sk
    '2026-12-01T10:00:05.000000Z#000000000007'
    """
    return RowKey(joined(tenant, "counted"), f"{slice_at}#{number(row)}")


def counted_between(tenant: str, start: str, end: str) -> tuple[str, str, str]:
    """Return the partition key of the `counted` rows, and the bounds from `start` to `end`.

    >>> low, high = counted_between("acme", "a", "b")[1:]
    >>> low < counted("acme", "a", 0).sk < counted("acme", "b", 10**9).sk < high
    True
    """
    return joined(tenant, "counted"), start, f"{end}#{LAST_CHAR}"


def is_body(pk: str) -> bool:
    """Return whether this is the partition key of definition rows.

    >>> is_body(body("acme", "01900000", "1-abc").pk), is_body("acme#03")
    (True, False)
    """
    return parted(pk)[2:] == ["body"]


def bodies(tenant: str, job_id: str) -> tuple[str, str, str]:
    """Return the partition key of a job's definition rows, and the bounds of their sort keys."""
    first = body(tenant, job_id, "")
    return first.pk, first.sk, first.sk + LAST_CHAR


def own_payload(tenant: str, job_id: str, run_id: str) -> RowKey:
    """Return the key of the marker of a run with its own payload.

    The marker stands beside the definition rows.

    >>> ref_of(own_payload("acme", "01900000", "r").sk)
    'own-r'
    """
    return body(tenant, job_id, _OWN + run_id)


def ref_of(sk: str) -> str:
    """Return the definition version, or the marker's reference, from a sort key.

    >>> ref_of(body("acme", "01900000", "1-abc", 2).sk)
    '1-abc'
    """
    return parted(sk)[2]


def payload_of(ref: str) -> str:
    """Return the definition version or the run id that a payload is stored under.

    >>> payload_of("1-abc"), payload_of("own-r")
    ('1-abc', 'r')
    """
    return ref.removeprefix(_OWN)
