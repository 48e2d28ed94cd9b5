"""Records of the jobs table's stream, in the form that Lambda hands to a function."""

from base64 import b64encode
from collections.abc import Mapping
from itertools import count
from typing import Any

from punctual.aws.dynamodb.jobs.state_rows import to_row
from punctual.aws.dynamodb.keys import STATE_SORT_KEY, STATUS_ATTR
from punctual.domain.job_state import JobState
from tests.support.aws.moto_adapter import Moto
from tests.support.builders import NOON

BY_TTL = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}

Row = dict[str, Any]


def is_state_of(row: Mapping[str, Any], job_id: str) -> bool:
    """Return whether this row of the jobs table is the state of the job."""
    pk, sk = str(row["pk"]["S"]), str(row["sk"]["S"])
    return sk == STATE_SORT_KEY and pk.endswith(f"#{job_id}")


class Stream:
    """Numbers records as a stream does. `catch` finds changes by comparing the table."""

    def __init__(self, store: Moto | None = None) -> None:
        self._store = store
        self._numbers = count(1)
        self._seen: dict[tuple[str, str], Row] = {}

    def of(self, old: JobState | None, new: JobState | None, **extra: Any) -> Row:
        return self.record(
            None if old is None else to_row(old), None if new is None else to_row(new), **extra
        )

    def record(self, old: Row | None, new: Row | None, **extra: Any) -> Row:
        row = new or old
        assert row is not None
        number = next(self._numbers)
        change: Row = {
            "ApproximateCreationDateTime": NOON.timestamp(),
            "Keys": {name: row[name] for name in ("pk", "sk")},
            "SequenceNumber": str(100_000_000_000_000_000_000 + number),
            "SizeBytes": 512,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        }
        if old is not None:
            change["OldImage"] = as_sent(old)
        if new is not None:
            change["NewImage"] = as_sent(new)
        name = "INSERT" if old is None else "REMOVE" if new is None else "MODIFY"
        return {
            "eventID": f"event{number:027d}",
            "eventName": name,
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": "eu-central-1",
            "dynamodb": change,
            "eventSourceARN": "arn:aws:dynamodb:eu-central-1:123456789012:table/jobs/stream/x",
            **extra,
        }

    def catch(self, **extra: Any) -> list[Row]:
        """Return records of the changes of states since the last call, one for each state.

        The event source passes no other rows than those of jobs and operations.
        """
        assert self._store is not None
        rows = self._store.rows(self._store.settings.jobs_table)
        now = {(row["pk"]["S"], row["sk"]["S"]): row for row in rows}
        places = [
            place
            for place in {**self._seen, **now}
            if STATUS_ATTR in (now.get(place) or self._seen[place])
            and self._seen.get(place) != now.get(place)
        ]
        caught = [self.record(self._seen.get(at), now.get(at), **extra) for at in sorted(places)]
        self._seen = now
        return caught


def as_sent(row: Mapping[str, Any]) -> Row:
    """Return a row as an event shows it, with bytes as base64."""
    return {name: _sent(value) for name, value in row.items()}


def _sent(attribute: Mapping[str, Any]) -> Row:
    ((kind, value),) = attribute.items()
    if kind == "B":
        return {kind: b64encode(value).decode()}
    if kind == "L":
        return {kind: [_sent(part) for part in value]}
    if kind == "M":
        return {kind: {name: _sent(part) for name, part in value.items()}}
    return {kind: value}
