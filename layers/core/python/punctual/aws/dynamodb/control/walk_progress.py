"""The progress of the daily walk, in one control row that each invocation continues from."""

import zlib
from dataclasses import dataclass
from datetime import datetime
from json import dumps, loads
from typing import Any

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import from_item, to_item
from punctual.aws.dynamodb.client import Condition, DynamoClient, check_layout
from punctual.aws.dynamodb.keys import parse_optional_time_key, parse_time_key, time_key

STARTED_AT_ATTR, STATE_CURSOR_ATTR, TIMER_CURSOR_ATTR = "started", "heads", "sweep"
PAYLOAD_CURSOR_ATTR, STATES_DONE_ATTR, TIMERS_DONE_ATTR = "payloads", "walked", "swept"
COUNTS_ATTR, PAYLOADS_DONE_ATTR, TENANTS_ATTR = "counts", "cleared", "tenants"
COMPLETE_ATTR, STEP_ATTR = "over", "step"


@dataclass(frozen=True)
class Progress:
    """The progress of one walk.

    - `state_cursor`, `timer_cursor`, `payload_cursor`: the cursor of each part, None at its ends.
    - `states_done`, `timers_done`, `payloads_done`: whether the first three parts are done.
    - `is_complete`: whether the whole walk is done.
    - `packed_counts`: the packed counts of job states, until the counters are corrected.
    - `tenants`: those with job states, until the rows of their lists are compared.
    - `step`: the number of writes, so that only one of two concurrent walks continues.
    """

    started_at: datetime
    state_cursor: str | None = None
    timer_cursor: datetime | None = None
    payload_cursor: str | None = None
    states_done: bool = False
    timers_done: bool = False
    packed_counts: bytes = b""
    tenants: tuple[str, ...] = ()
    payloads_done: bool = False
    is_complete: bool = False
    step: int = 0


class WalkProgress:
    """Reads and writes the progress row."""

    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def read(self) -> Progress | None:
        row = self._dynamo.read(self._table, [keys.walk_key()]).get(keys.walk_key())
        if row is None:
            return None
        values = from_item(check_layout(row))
        return Progress(
            started_at=parse_time_key(values[STARTED_AT_ATTR]),
            state_cursor=values.get(STATE_CURSOR_ATTR),
            timer_cursor=parse_optional_time_key(values.get(TIMER_CURSOR_ATTR)),
            payload_cursor=values.get(PAYLOAD_CURSOR_ATTR),
            states_done=values[STATES_DONE_ATTR],
            timers_done=values.get(TIMERS_DONE_ATTR, False),
            packed_counts=values.get(COUNTS_ATTR, b""),
            tenants=tuple(loads(zlib.decompress(values[TENANTS_ATTR])))
            if TENANTS_ATTR in values
            else (),
            payloads_done=values.get(PAYLOADS_DONE_ATTR, False),
            is_complete=values[COMPLETE_ATTR],
            step=values[STEP_ATTR],
        )

    def save(self, progress: Progress) -> bool:
        """Write the progress. Return False if another walk continued from the same step."""
        values: dict[str, Any] = {
            keys.LAYOUT_ATTR: keys.ROW_LAYOUT,
            STARTED_AT_ATTR: time_key(progress.started_at),
            STATES_DONE_ATTR: progress.states_done,
            TIMERS_DONE_ATTR: progress.timers_done,
            PAYLOADS_DONE_ATTR: progress.payloads_done,
            COMPLETE_ATTR: progress.is_complete,
            STEP_ATTR: progress.step + 1,
        }
        if progress.state_cursor is not None:
            values[STATE_CURSOR_ATTR] = progress.state_cursor
        if progress.timer_cursor is not None:
            values[TIMER_CURSOR_ATTR] = time_key(progress.timer_cursor)
        if progress.payload_cursor is not None:
            values[PAYLOAD_CURSOR_ATTR] = progress.payload_cursor
        if progress.tenants:
            values[TENANTS_ATTR] = zlib.compress(dumps(progress.tenants).encode())
        if progress.packed_counts:
            values[COUNTS_ATTR] = progress.packed_counts
        condition = Condition(
            "attribute_not_exists(#step) OR #step = :step",
            names={"#step": STEP_ATTR},
            values=to_item({":step": progress.step}),
        )
        row = {**keys.walk_key().item(), **to_item(values)}
        failure = self._dynamo.put_if(self._table, row, condition)
        return failure is None or (failure.ambiguous and failure.item == row)
