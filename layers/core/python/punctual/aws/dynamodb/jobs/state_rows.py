"""Conversion between a job state and its row.

The row has native attributes, which the AWS console shows. Each lease is a separate attribute.
"""

import zlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from punctual.aws.dynamodb.attributes import Item, from_attribute, from_item, to_attribute, to_item
from punctual.aws.dynamodb.client import Condition, check_layout, key_of
from punctual.aws.dynamodb.keys import (
    AUDIT_NOTE_ATTR,
    LEASE_ATTR_PREFIX,
    PK,
    PROGRESS_ATTR,
    RENEWED_ATTR,
    ROW_LAYOUT_ATTRIBUTE,
    TOKEN_ATTR,
    TTL,
    UNTIL_ATTR,
    VERSION_ATTR,
    WAIT_QUEUE_ATTR,
    WRITE_IDS_ATTR,
    parse_state_key,
    parse_time_key,
    state_key,
    time_key,
    to_ttl,
)
from punctual.domain.draft import job_expires_at
from punctual.domain.job_state import JobState, has_won
from punctual.domain.run import Lease, Progress
from punctual.engine.ports.audit_log import Note
from punctual.engine.ports.job_states import LeaseRenewal, StoredState, Swap

# Runs. A longer wait queue is compressed to a fifth, because each swap pays by row size.
MAX_READABLE_WAITING_RUNS = 4
BLANK_STATE_RETENTION = timedelta(hours=1)
_KEY_FIELDS = frozenset({"tenant", "job_id"})
_STATE_ATTRS = (
    frozenset(field.encode_name for field in msgspec.structs.fields(JobState)) - _KEY_FIELDS
)
_NOTE_DECODER = msgspec.json.Decoder(Note)
_PROGRESS_DECODER = msgspec.json.Decoder(Progress)
_ROW_ABSENT_OR_EXPIRED = "attribute_not_exists(#pk) OR #expires <= :now"
_ROW_NOT_EXPIRED = "(attribute_not_exists(#expires) OR #expires > :now)"


def to_row(
    state: JobState, leases: Mapping[str, Lease | None] | None = None, note: Note | None = None
) -> Item:
    row = {**state_key(state.tenant, state.job_id).item(), **_attributes(state)}
    if note is not None:
        row[AUDIT_NOTE_ATTR] = _note_attribute(note)
    for run_id, lease in (leases or {}).items():
        if lease is not None:
            row[LEASE_ATTR_PREFIX + run_id] = _lease_attribute(lease)
    return row


def from_row(row: Mapping[str, Any]) -> StoredState:
    tenant, job_id = parse_state_key(key_of(row))
    values = from_item({name: row[name] for name in _STATE_ATTRS & check_layout(row).keys()})
    values.update(tenant=tenant, job_id=job_id)
    if isinstance(values.get(WAIT_QUEUE_ATTR), bytes):
        values[WAIT_QUEUE_ATTR] = msgspec.json.decode(zlib.decompress(values[WAIT_QUEUE_ATTR]))
    leases = {
        name.removeprefix(LEASE_ATTR_PREFIX): _parse_lease(value)
        for name, value in row.items()
        if name.startswith(LEASE_ATTR_PREFIX)
    }
    return StoredState(msgspec.convert(values, JobState, str_keys=True), leases)


def is_expired(row: Mapping[str, Any], now: datetime) -> bool:
    return TTL in row and int(row[TTL]["N"]) <= now.timestamp()


def create_condition(now: datetime) -> Condition:
    """Return the condition for a new job state.

    The row must be absent, or expired and not removed by DynamoDB yet.
    """
    return Condition(
        _ROW_ABSENT_OR_EXPIRED,
        names={"#pk": PK, "#expires": TTL},
        values={":now": _seconds_attribute(now)},
    )


def swap_condition(swap: Swap, now: datetime) -> Condition:
    """Return the update that replaces the whole job state if its version is the expected one."""
    new_attrs: dict[str, Any] = dict(_attributes(swap.state))
    if swap.note is not None:
        new_attrs[AUDIT_NOTE_ATTR] = _note_attribute(swap.note)
    removed_attrs = (_STATE_ATTRS | {TTL, AUDIT_NOTE_ATTR}) - new_attrs.keys()
    for run_id, lease in swap.leases.items():
        if lease is None:
            removed_attrs |= {LEASE_ATTR_PREFIX + run_id}
        else:
            new_attrs[LEASE_ATTR_PREFIX + run_id] = _lease_attribute(lease)
    names = {f"#s{i}": name for i, name in enumerate(new_attrs)}
    values = {f":s{i}": value for i, value in enumerate(new_attrs.values())}
    removed_names = {f"#r{i}": name for i, name in enumerate(sorted(removed_attrs))}
    assignments = ", ".join(f"#s{i} = :s{i}" for i in range(len(new_attrs)))
    conditions = ["#version = :expect", _ROW_NOT_EXPIRED]
    for i, (run_id, lease) in enumerate(swap.required_leases.items()):
        names[f"#q{i}"] = LEASE_ATTR_PREFIX + run_id
        values[f":q{i}"] = _lease_attribute(lease)
        conditions.append(f"#q{i} = :q{i}")
    return Condition(
        " AND ".join(conditions),
        f"SET {assignments} REMOVE {', '.join(removed_names)}"
        if removed_names
        else f"SET {assignments}",
        {**names, **removed_names, "#version": VERSION_ATTR, "#expires": TTL},
        {**values, ":expect": to_attribute(swap.expected_version), ":now": _seconds_attribute(now)},
    )


def note_of(row: Mapping[str, Any]) -> Note | None:
    """Return the audit note of the client's change that wrote this row, or None."""
    return _NOTE_DECODER.decode(row[AUDIT_NOTE_ATTR]["S"]) if AUDIT_NOTE_ATTR in row else None


def renew_condition(lease_renewal: LeaseRenewal) -> Condition:
    """Return the update that renews a lease, if the token holds it."""
    update = "SET #lease.#until = :until, #lease.#renewed = :renewed"
    names = {
        "#lease": LEASE_ATTR_PREFIX + lease_renewal.run_id,
        "#token": TOKEN_ATTR,
        "#until": UNTIL_ATTR,
        "#renewed": RENEWED_ATTR,
    }
    values = {
        ":until": to_attribute(time_key(lease_renewal.expires_at)),
        ":renewed": to_attribute(True),
        ":token": to_attribute(lease_renewal.token),
    }
    if lease_renewal.progress is not None:
        update += ", #lease.#progress = :progress"
        names["#progress"] = PROGRESS_ATTR
        values[":progress"] = to_attribute(msgspec.json.encode(lease_renewal.progress).decode())
    return Condition("#lease.#token = :token", update, names, values)


def is_own(state: JobState, row: Mapping[str, Any]) -> bool:
    """Return whether the row holds the result of this swap, after its answer was lost."""
    if not row:
        return False
    write_ids = from_attribute(row[WRITE_IDS_ATTR]) if WRITE_IDS_ATTR in row else []
    return has_won(state, int(row[VERSION_ATTR]["N"]), write_ids)


def _attributes(state: JobState) -> Item:
    values = msgspec.to_builtins(state, builtin_types=(), str_keys=True)
    for name in _KEY_FIELDS:
        del values[name]
    if len(state.wait_queue) > MAX_READABLE_WAITING_RUNS:
        values[WAIT_QUEUE_ATTR] = zlib.compress(msgspec.json.encode(state.wait_queue))
    row = {**ROW_LAYOUT_ATTRIBUTE, **to_item(values)}
    ttl_at = job_expires_at(state)
    if state.is_blank and state.ended_at is not None:
        ttl_at = state.ended_at + BLANK_STATE_RETENTION
    if ttl_at is not None:
        row[TTL] = to_attribute(to_ttl(ttl_at))
    return row


def _note_attribute(note: Note) -> dict[str, Any]:
    return to_attribute(msgspec.json.encode(note).decode())


def _lease_attribute(lease: Lease) -> dict[str, Any]:
    values: dict[str, Any] = {TOKEN_ATTR: lease.token, UNTIL_ATTR: time_key(lease.until)}
    if lease.is_renewed:
        values[RENEWED_ATTR] = True
    if lease.progress is not None:
        values[PROGRESS_ATTR] = msgspec.json.encode(lease.progress).decode()
    return to_attribute(values)


def _parse_lease(attribute: Mapping[str, Any]) -> Lease:
    values = from_attribute(attribute)
    progress = values.get(PROGRESS_ATTR)
    return Lease(
        values[TOKEN_ATTR],
        parse_time_key(values[UNTIL_ATTR]),
        values.get(RENEWED_ATTR, False),
        None if progress is None else _PROGRESS_DECODER.decode(progress),
    )


def _seconds_attribute(now: datetime) -> dict[str, Any]:
    return to_attribute(int(now.timestamp()))
