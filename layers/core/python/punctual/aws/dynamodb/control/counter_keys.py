"""The keys of counters and run payload markers, and the stream filter of the status function."""

from typing import Any

from punctual.aws.dynamodb.keys import STATUS_ATTR, RowKey, definition_key
from punctual.aws.dynamodb.sort_keys import LAST_CHAR, join_parts, number_key, split_parts

_OWN_PAYLOAD_PREFIX = "own-"

# Filters for the event source. Only job states have a `state`; other rows start no function.
JOB_STATE_STREAM_FILTERS: tuple[dict[str, Any], ...] = tuple(
    {"dynamodb": {image: {STATUS_ATTR: {"S": [{"exists": True}]}}}}
    for image in ("NewImage", "OldImage")
)


# Rows of a tenant's counts; a reader that loses a transaction on one uses the next.
COUNTER_PARTITIONS = 4
# Patterns of the partition keys of these rows, for policies.
TOTALS_KEY_PATTERNS = ("*#totals",)
COUNTED_KEY_PATTERNS = ("*#counted",)
DEFINITION_KEY_PATTERNS = ("*#body",)


def totals_key(tenant: str, part: int) -> RowKey:
    """Return the key of one part of a tenant's totals.

    >>> totals_key("acme", 0), totals_key("acme", 2).sk
    (RowKey(pk='acme#totals', sk='-'), '-2')
    """
    return RowKey(join_parts(tenant, "totals"), f"-{part or ''}")


def minute_key(tenant: str, minute_text: str, part: int) -> RowKey:
    """Return the key of one part of a tenant's counts of a minute.

    >>> minute_key("acme", "2026-12-01T10:00:00.000000Z", 0)
    RowKey(pk='acme#minutes', sk='2026-12-01T10:00:00.000000Z')
    """
    return RowKey(join_parts(tenant, "minutes"), f"{minute_text}#{part}" if part else minute_text)


def parse_minute(sk: str) -> str:
    """Return the minute of a sort key.

    >>> parse_minute(minute_key("acme", "2026-12-01T10:00:00.000000Z", 3).sk)
    '2026-12-01T10:00:00.000000Z'
    """
    return sk.partition("#")[0]


def minutes_bounds(tenant: str, start: str, end: str) -> tuple[str, str, str]:
    """Return the partition key of a tenant's minutes, and the bounds from `start` to `end`."""
    return join_parts(tenant, "minutes"), start, f"{end}#{LAST_CHAR}"


def counted_key(tenant: str, slice_at: str, row_number: int) -> RowKey:
    """Return the key of a row that names counted changes of this slice; rows count from 0.

    >>> counted_key("acme", "2026-12-01T10:00:05.000000Z", 7).sk
    '2026-12-01T10:00:05.000000Z#000000000007'
    """
    return RowKey(join_parts(tenant, "counted"), f"{slice_at}#{number_key(row_number)}")


def counted_bounds(tenant: str, start: str, end: str) -> tuple[str, str, str]:
    """Return the partition key of the `counted_key` rows, and the bounds from `start` to `end`.

    >>> low, high = counted_bounds("acme", "a", "b")[1:]
    >>> low < counted_key("acme", "a", 0).sk < counted_key("acme", "b", 10**9).sk < high
    True
    """
    return join_parts(tenant, "counted"), start, f"{end}#{LAST_CHAR}"


def is_definition_partition(pk: str) -> bool:
    """Return whether this is the partition key of definition rows.

    >>> pk = definition_key("acme", "01900000", "1-abc").pk
    >>> is_definition_partition(pk), is_definition_partition("acme#03")
    (True, False)
    """
    return split_parts(pk)[2:] == ["body"]


def definitions_bounds(tenant: str, job_id: str) -> tuple[str, str, str]:
    """Return the partition key of a job's definition rows, and the bounds of their sort keys."""
    first_key = definition_key(tenant, job_id, "")
    return first_key.pk, first_key.sk, first_key.sk + LAST_CHAR


def payload_marker_key(tenant: str, job_id: str, run_id: str) -> RowKey:
    """Return the key of the marker of a run with its own payload.

    The marker stands beside the definition rows.

    >>> parse_ref(payload_marker_key("acme", "01900000", "r").sk)
    'own-r'
    """
    return definition_key(tenant, job_id, _OWN_PAYLOAD_PREFIX + run_id)


def parse_ref(sk: str) -> str:
    """Return the definition version, or the marker's reference, from a sort key.

    >>> parse_ref(definition_key("acme", "01900000", "1-abc", 2).sk)
    '1-abc'
    """
    return split_parts(sk)[2]


def payload_id_of(ref: str) -> str:
    """Return the definition version or the run id that a payload is stored under.

    >>> payload_id_of("1-abc"), payload_id_of("own-r")
    ('1-abc', 'r')
    """
    return ref.removeprefix(_OWN_PAYLOAD_PREFIX)
