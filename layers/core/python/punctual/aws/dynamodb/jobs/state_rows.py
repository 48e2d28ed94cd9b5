"""Conversion between a job state and its row.

The row has native attributes, which the AWS console shows. Each lease is a separate attribute.
"""

import zlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from punctual.aws.dynamodb.attributes import Item, from_attribute, from_item, to_attribute, to_item
from punctual.aws.dynamodb.client import Condition, key_of, known
from punctual.aws.dynamodb.keys import (
    BEATEN,
    BEATING,
    BY,
    FORMAT,
    LAYOUT,
    LEASE,
    LINE,
    PK,
    TOKEN,
    TTL,
    UNTIL,
    VERSION,
    WRITERS,
    expiry,
    head,
    parse_head,
)
from punctual.aws.dynamodb.sort_keys import moment, parse_moment
from punctual.domain import write_ids as writers_of
from punctual.domain.draft import expires_at
from punctual.domain.job_state import JobState
from punctual.domain.run import Lease
from punctual.engine.ports.audit_log import Note
from punctual.engine.ports.job_states import LeaseRenewal, StoredState, Swap

# Runs. A longer wait queue is compressed to a fifth, because each swap pays by row size.
READABLE_LINE = 4
BLANK_KEPT = timedelta(hours=1)
_IN_KEY = frozenset({"tenant", "job_id"})
_NAMES = frozenset(field.encode_name for field in msgspec.structs.fields(JobState)) - _IN_KEY
_NOTE = msgspec.json.Decoder(Note)
_ABSENT_OR_EXPIRED = "attribute_not_exists(#pk) OR #expires <= :now"
_STANDS = "(attribute_not_exists(#expires) OR #expires > :now)"


def to_row(
    new: JobState, leases: Mapping[str, Lease | None] | None = None, note: Note | None = None
) -> Item:
    row = {**head(new.tenant, new.job_id).item(), **_attributes(new)}
    if note is not None:
        row[BY] = _noted(note)
    for run_id, lease in (leases or {}).items():
        if lease is not None:
            row[LEASE + run_id] = _lease(lease)
    return row


def from_row(row: Mapping[str, Any]) -> StoredState:
    tenant, job_id = parse_head(key_of(row))
    values = from_item({name: row[name] for name in _NAMES & known(row).keys()})
    values.update(tenant=tenant, job_id=job_id)
    if isinstance(values.get(LINE), bytes):
        values[LINE] = msgspec.json.decode(zlib.decompress(values[LINE]))
    leases = {
        name.removeprefix(LEASE): _to_lease(value)
        for name, value in row.items()
        if name.startswith(LEASE)
    }
    return StoredState(msgspec.convert(values, JobState, str_keys=True), leases)


def is_expired(row: Mapping[str, Any], now: datetime) -> bool:
    return TTL in row and int(row[TTL]["N"]) <= now.timestamp()


def creation(now: datetime) -> Condition:
    """Return the condition for a new job state.

    The row must be absent, or expired and not removed by DynamoDB yet.
    """
    return Condition(
        _ABSENT_OR_EXPIRED, names={"#pk": PK, "#expires": TTL}, values={":now": _seconds(now)}
    )


def change(swap: Swap, now: datetime) -> Condition:
    """Return the update that replaces the whole job state if its version is the expected one."""
    wanted: dict[str, Any] = dict(_attributes(swap.head))
    if swap.note is not None:
        wanted[BY] = _noted(swap.note)
    gone = (_NAMES | {TTL, BY}) - wanted.keys()
    if not any(run.held for run in swap.head.runs):
        gone |= {BEATING}
    for run_id, lease in swap.leases.items():
        if lease is None:
            gone |= {LEASE + run_id}
        else:
            wanted[LEASE + run_id] = _lease(lease)
    names = {f"#s{i}": name for i, name in enumerate(wanted)}
    values = {f":s{i}": value for i, value in enumerate(wanted.values())}
    removed = {f"#r{i}": name for i, name in enumerate(sorted(gone))}
    sets = ", ".join(f"#s{i} = :s{i}" for i in range(len(wanted)))
    holds = ["#version = :expect", _STANDS]
    for i, (run_id, lease) in enumerate(swap.required.items()):
        names[f"#q{i}"] = LEASE + run_id
        values[f":q{i}"] = _lease(lease)
        holds.append(f"#q{i} = :q{i}")
    return Condition(
        " AND ".join(holds),
        f"SET {sets} REMOVE {', '.join(removed)}" if removed else f"SET {sets}",
        {**names, **removed, "#version": VERSION, "#expires": TTL},
        {**values, ":expect": to_attribute(swap.expect), ":now": _seconds(now)},
    )


def note_of(row: Mapping[str, Any]) -> Note | None:
    """Return the audit note of the client's change that wrote this row, or None."""
    return _NOTE.decode(row[BY]["S"]) if BY in row else None


def renewal(beat: LeaseRenewal) -> Condition:
    """Return the update that renews a lease and sets `beating`, if the token still holds it."""
    lease = Lease(beat.token, beat.until, beaten=True)
    return Condition(
        "#lease.#token = :token",
        "SET #lease = :lease, #beating = :beating",
        {"#lease": LEASE + beat.run_id, "#token": TOKEN, "#beating": BEATING},
        {
            ":lease": _lease(lease),
            ":token": to_attribute(beat.token),
            ":beating": to_attribute(1),
        },
    )


def is_own(mine: JobState, row: Mapping[str, Any]) -> bool:
    """Return whether the row holds the result of this swap, after its answer was lost."""
    if not row:
        return False
    writers = from_attribute(row[WRITERS]) if WRITERS in row else []
    return writers_of.is_own(mine, int(row[VERSION]["N"]), writers)


def _attributes(new: JobState) -> Item:
    values = msgspec.to_builtins(new, builtin_types=(), str_keys=True)
    for name in _IN_KEY:
        del values[name]
    if len(new.line) > READABLE_LINE:
        values[LINE] = zlib.compress(msgspec.json.encode(new.line))
    row = {FORMAT: to_attribute(LAYOUT), **to_item(values)}
    until = expires_at(new)
    if new.blank and new.ended_at is not None:
        until = new.ended_at + BLANK_KEPT
    if until is not None:
        row[TTL] = to_attribute(expiry(until))
    return row


def _noted(note: Note) -> dict[str, Any]:
    return to_attribute(msgspec.json.encode(note).decode())


def _lease(lease: Lease) -> dict[str, Any]:
    values = {TOKEN: lease.token, UNTIL: moment(lease.until)}
    return to_attribute({**values, BEATEN: True} if lease.beaten else values)


def _to_lease(attribute: Mapping[str, Any]) -> Lease:
    values = from_attribute(attribute)
    return Lease(values[TOKEN], parse_moment(values[UNTIL]), values.get(BEATEN, False))


def _seconds(now: datetime) -> dict[str, Any]:
    return to_attribute(int(now.timestamp()))
