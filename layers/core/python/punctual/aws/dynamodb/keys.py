"""The tables, and the keys and attributes of most rows.

Timers, audit, counters, limits, tokens and batch outcomes define their keys in their own modules.

In a sort key, times, numbers and tuples of text keep their order as text. Escaping turns `$` and
every lower character into `$` and two hex digits. So the separator `#` sorts before every
character of an escaped part. Keys sort as the tuples of their parts, and differ if the tuples
differ.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from zlib import crc32

from punctual.domain.utc import EPOCH

FIRST_CHAR, LAST_CHAR = "$", "\U0010ffff"  # lowest and highest character of an escaped part

_RESERVED_CHARACTER = re.compile(r"[\x00-$]")
_ESCAPED_CHARACTER = re.compile(r"\$([0-9a-f]{2})")


def escape(part: str) -> str:
    """Return the part with `$` and every lower character escaped.

    >>> escape("a#b c$")
    'a$23b$20c$24'
    """
    return _RESERVED_CHARACTER.sub(lambda match: f"${ord(match.group()):02x}", part)


def unescape(part: str) -> str:
    """Return the text of an escaped part.

    >>> unescape("a$23b$20c$24")
    'a#b c$'
    """
    return _ESCAPED_CHARACTER.sub(lambda match: chr(int(match.group(1), 16)), part)


def join_parts(*parts: str) -> str:
    """Return the escaped parts, joined with `#`.

    >>> join_parts("a#b", "c") == join_parts("a", "b#c")
    False
    """
    return "#".join(map(escape, parts))


def split_parts(key: str) -> list[str]:
    """Return the unescaped parts of a joined key.

    >>> split_parts(join_parts("a#b", "", "c"))
    ['a#b', '', 'c']
    """
    parts = key.split("#")
    return [unescape(part) for part in parts] if "$" in key else parts


def time_key(at: datetime) -> str:
    """Return the time as UTC text of fixed width, so that the text sorts as time does.

    >>> time_key(datetime(2026, 12, 1, 10, tzinfo=UTC))
    '2026-12-01T10:00:00.000000Z'
    """
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_time_key(text: str) -> datetime:
    """Return the time that `time_key` encoded.

    >>> parse_time_key("2026-12-01T10:00:00.000001Z")
    datetime.datetime(2026, 12, 1, 10, 0, 0, 1, tzinfo=datetime.timezone.utc)
    """
    return datetime.fromisoformat(text)


def parse_optional_time_key(text: str | None) -> datetime | None:
    return None if text is None else parse_time_key(text)


def number_key(value: int) -> str:
    """Return the number as text of fixed width. Negative numbers sort before all others.

    >>> number_key(7), number_key(-1) < number_key(0)
    ('000000000007', True)
    """
    return f"{value:012d}"


PK = "pk"
SK = "sk"
TTL = "expires"

# Prefixes of objects that expire with their runs. All other objects belong to an existing job.
RUN_OBJECT_PREFIXES = ("outputs/", "logs/")

LAYOUT_ATTR = "f"  # the layout number of a row, so that no version reads a row of another layout
ROW_LAYOUT = 2
ROW_LAYOUT_ATTRIBUTE: Mapping[str, Any] = {LAYOUT_ATTR: {"N": str(ROW_LAYOUT)}}
# A changed layout takes the next number: docs/decisions/0018-formats.md.
SHARED_TIMERS_LAYOUT = 2
BATCH_OUTCOMES_LAYOUT = 2
VERSION_ATTR = "version"
WRITE_IDS_ATTR = "writers"
STATUS_ATTR = "state"
_OWN_PAYLOAD_PREFIX = "own-"  # of the reference of a run's own payload
# Filters for the event source. Only job states have a `state`; other rows start no function.
JOB_STATE_STREAM_FILTERS: tuple[dict[str, Any], ...] = tuple(
    {"dynamodb": {image: {STATUS_ATTR: {"S": [{"exists": True}]}}}}
    for image in ("NewImage", "OldImage")
)
STATE_SORT_KEY, _DEFINITION_PREFIX = "state", "definition"
RUNS_ATTR, WAIT_QUEUE_ATTR, RECENTLY_ENDED_ATTR = "runs", "line", "ended"
# Prefix of an attribute name; the run id follows, one attribute for each lease.
LEASE_ATTR_PREFIX = "lease_"
TOKEN_ATTR, UNTIL_ATTR, RENEWED_ATTR = "tok", "until", "beaten"
PROGRESS_ATTR = "progress"  # of a lease: what the last renewal reported, as JSON
AUDIT_NOTE_ATTR = "by"  # the audit note of a client's change; the next swap removes it
DATA_ATTR = "row"
PART_COUNT_ATTR = "parts"
OWNER_ATTR, NOTIFY_COUNT_ATTR, DONE_ATTR = "owner", "look", "done"
TIME_ATTR, SHARD_COUNT_ATTR = "at", "n"
PLANNER_HEARTBEAT_ATTR = "beat"  # time of the last watermark write
DISPATCH_ATTR = "dispatch"  # the dispatch switch
FINGERPRINT_ATTR, RESULT_ID_ATTR = "print", "made"  # attributes of a receipt

_GROUP_CHARACTERS = 10


class Table(NamedTuple):
    """The definition of a table for the stack. Every table has the string keys `pk` and `sk`."""

    name: str
    has_ttl: bool
    has_stream: bool = False

    def schema(self) -> dict[str, Any]:
        """Return the parameters of CreateTable for the keys.

        >>> [key["AttributeName"] for key in JOBS_TABLE.schema()["KeySchema"]]
        ['pk', 'sk']
        """
        return {
            "KeySchema": [
                {"AttributeName": PK, "KeyType": "HASH"},
                {"AttributeName": SK, "KeyType": "RANGE"},
            ],
            "AttributeDefinitions": [
                {"AttributeName": name, "AttributeType": "S"} for name in (PK, SK)
            ],
        }


JOBS_TABLE = Table("jobs", has_ttl=True, has_stream=True)
TIMERS_TABLE = Table("timers", has_ttl=False)  # no TTL: a late timer must still fire
HISTORY_TABLE = Table("runs", has_ttl=True)
CONTROL_TABLE = Table("control", has_ttl=True)
AUDIT_TABLE = Table("audit", has_ttl=True)
LISTS_TABLE = Table("lists", has_ttl=True)  # its keys stand in lists/keys.py
TABLES = (JOBS_TABLE, TIMERS_TABLE, HISTORY_TABLE, CONTROL_TABLE, AUDIT_TABLE, LISTS_TABLE)


class RowKey(NamedTuple):
    """The primary key of a row.

    >>> RowKey("acme#03", "job").item()
    {'pk': {'S': 'acme#03'}, 'sk': {'S': 'job'}}
    """

    pk: str
    sk: str

    def item(self) -> dict[str, dict[str, str]]:
        return {PK: {"S": self.pk}, SK: {"S": self.sk}}


def to_ttl(expires_at: datetime) -> int:
    """Return `expires_at` in seconds for the TTL of DynamoDB, rounded up.

    >>> to_ttl(datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC))
    2
    """
    return -((EPOCH - expires_at) // timedelta(seconds=1))


# Jobs

NAME_SLOTS = 16  # partitions of a tenant's names; after a change of this number no name is found
NAME_KEY_PATTERN = "*#names#*"  # of the partition keys of names, for policies


def job_partition(tenant: str, job_id: str) -> str:
    """Return the partition key of a job: of its state, its definitions and its markers.

    >>> job_partition("acme", "01900000")
    'acme#01900000'
    """
    return join_parts(tenant, job_id)


def state_key(tenant: str, job_id: str) -> RowKey:
    return RowKey(job_partition(tenant, job_id), STATE_SORT_KEY)


def parse_state_key(key: RowKey) -> tuple[str, str]:
    """Return the tenant and the job id of a job state's key.

    >>> parse_state_key(state_key("acme", "01900000"))
    ('acme', '01900000')
    """
    tenant, job_id = split_parts(key.pk)
    return tenant, job_id


def definition_key(tenant: str, job_id: str, ref: str, part: int = 0) -> RowKey:
    """Return the key of a definition row, in the partition of its job.

    >>> definition_key("acme", "01900000", "1-abc").sk
    'definition#1-abc'
    """
    sk = join_parts(_DEFINITION_PREFIX, ref)
    return RowKey(job_partition(tenant, job_id), f"{sk}#{part}" if part else sk)


def name_key(tenant: str, name: str) -> RowKey:
    """Return the key of the row of a name.

    >>> name_key("acme", "report")
    RowKey(pk='acme#names#04', sk='report')
    """
    slot = crc32(name.encode()) % NAME_SLOTS
    return RowKey(join_parts(tenant, "names", f"{slot:02d}"), name)


# Minutes


def timer_partition(minute: datetime, shard: int) -> str:
    """Return the partition key of the timers of a minute and shard.

    >>> timer_partition(datetime(2026, 12, 1, 10, tzinfo=UTC), 7)
    '2026-12-01T10:00Z#7'
    """
    utc = minute.astimezone(UTC).replace(tzinfo=None)
    return f"{utc.isoformat(timespec='minutes')}Z#{shard}"


# Runs


def history_partition(tenant: str, job_id: str) -> str:
    return join_parts(tenant, job_id)


def history_key(tenant: str, job_id: str, run_id: str) -> RowKey:
    """Return the key of a run's history row.

    >>> history_key("acme", "j", "r")
    RowKey(pk='acme#j', sk='run#r')
    """
    return RowKey(history_partition(tenant, job_id), join_parts("run", run_id))


def history_bounds(before: str | None, after: str | None) -> tuple[str, str]:
    """Return the bounds for BETWEEN. The range starts after `after` and includes `before`.

    >>> history_bounds("b", "a")
    ('run#a#', 'run#b')
    """
    low = "run#" if after is None else f"{join_parts('run', after)}#"
    high = f"run#{LAST_CHAR}" if before is None else join_parts("run", before)
    return low, high


def attempt_key(
    tenant: str, job_id: str, run_id: str, attempt_number: int, token: int, lost: bool
) -> RowKey:
    """Return the key of an attempt. Attempts have a prefix of their own, so run pages skip them.

    >>> attempt_key("acme", "j", "r", 1, 7, False).sk
    'try#r#000000000001#000000000007#0'
    """
    sk = f"{attempts_prefix(run_id)}{number_key(attempt_number)}#{number_key(token)}#{int(lost)}"
    return RowKey(history_partition(tenant, job_id), sk)


def attempts_prefix(run_id: str) -> str:
    """Return the prefix of the sort keys of a run's attempts."""
    return f"{join_parts('try', run_id)}#"


# Control. Keys without a tenant begin with the separator; no tenant's key does.


def watermark_key() -> RowKey:
    return RowKey("#watermark", "-")


def shards_key() -> RowKey:
    return RowKey("#shards", "-")


def walk_key() -> RowKey:
    """Return the key of the progress row of the daily walk."""
    return RowKey("#walk", "-")


def partition_lease_key(minute: datetime, shard: int) -> RowKey:
    """Return the key of the lease of a partition of timers.

    >>> partition_lease_key(datetime(2026, 12, 1, 10, tzinfo=UTC), 7).pk
    '#lease#2026-12-01T10:00Z#7'
    """
    return RowKey(f"#lease#{timer_partition(minute, shard)}", "-")


def receipt_key(tenant: str, idempotency_key: str) -> RowKey:
    """Return the key of the receipt for an idempotency key.

    >>> receipt_key("acme", "a b").pk
    'acme#receipt#a$20b'
    """
    return RowKey(join_parts(tenant, "receipt", idempotency_key), "-")


def id_group(sortable_id: str) -> str:
    """Return the part of an id that all ids of the same four seconds share.

    >>> id_group("01939f6a-7b12-7000-8000-000000000000")
    '01939f6a-7'
    """
    return sortable_id[:_GROUP_CHARACTERS]


def time_of_group(group: str) -> datetime:
    """Return the first time of the ids of a group.

    >>> time_of_group(id_group("01939f6a-7b12-7000-8000-000000000000")).isoformat()
    '2024-12-07T04:39:33.120000+00:00'
    """
    return EPOCH + timedelta(milliseconds=int(group.replace("-", ""), 16) << 12)


def group_sort_key(group: str, digest: str) -> str:
    return join_parts(group, digest)


def parse_group(sk: str) -> str:
    """Return the group of a row by its sort key.

    >>> parse_group(group_sort_key("01939f6a-7", "ab"))
    '01939f6a-7'
    """
    return split_parts(sk)[0]


def group_upper_bound(group: str) -> str:
    """Return the upper bound of the sort keys of a group.

    >>> group_sort_key("a", "ff") < group_upper_bound("a") < group_sort_key("aa", "00")
    True
    """
    return f"{escape(group)}#{LAST_CHAR}"


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
    return split_parts(sk)[1]


def payload_id_of(ref: str) -> str:
    """Return the definition version or the run id that a payload is stored under.

    >>> payload_id_of("1-abc"), payload_id_of("own-r")
    ('1-abc', 'r')
    """
    return ref.removeprefix(_OWN_PAYLOAD_PREFIX)
