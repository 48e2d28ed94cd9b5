"""The settings of operators in SSM, and the dispatch switch.

Only the planner reads SSM. It copies the dispatch switch to the control table for all functions.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import to_item
from punctual.aws.dynamodb.client import Condition, DynamoClient, check_layout
from punctual.aws.retries import Client, call_aws
from punctual.domain.errors import Unavailable
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.run_queue import Message, RunQueue

MAX_SHARDS = 1_000
MAX_PACE = 1_440
# How long functions may send after dispatch is switched off.
DISPATCH_SWITCH_CACHE_TIME = timedelta(seconds=30)
_ON, _OFF = "on", "off"
_WHOLE_NUMBER = re.compile(r"[0-9]{1,4}")


class OperatorSettings(NamedTuple):
    """The settings. `invalid` names those with invalid values, which have their defaults."""

    shards: int = 1
    pace: int = 30  # overdue minutes that the planner hands out at a time
    dispatch: bool = True
    invalid: tuple[str, ...] = ()


class SsmOperatorSettings:
    def __init__(self, client: Client, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    def read(self) -> OperatorSettings:
        names = [self._prefix + name for name in ("shards", "pace", "dispatch")]
        response = call_aws(
            "reading the settings of operators", lambda: self._client().get_parameters(Names=names)
        )
        values = {
            parameter["Name"].removeprefix(self._prefix): parameter["Value"].strip()
            for parameter in response["Parameters"]
        }
        invalid: list[str] = []
        dispatch = values.get("dispatch", "").lower()
        if dispatch not in (_ON, _OFF):
            invalid.append("dispatch")
        shards = (
            _parse_whole_number(values, "shards", MAX_SHARDS, invalid) or OperatorSettings().shards
        )
        pace = _parse_whole_number(values, "pace", MAX_PACE, invalid) or OperatorSettings().pace
        return OperatorSettings(shards, pace, dispatch != _OFF, tuple(invalid))


def _parse_whole_number(
    values: dict[str, str], name: str, maximum: int, invalid: list[str]
) -> int | None:
    text = values.get(name, "")
    if _WHOLE_NUMBER.fullmatch(text) and 1 <= int(text) <= maximum:
        return int(text)
    invalid.append(name)
    return None


class DispatchSwitch:
    """The dispatch switch in the control table, as the planner last copied it.

    While dispatch is on, the switch is read every 30 s. While it is off, each call reads it. An
    outdated value would drop a wake-up, and its sender does not repeat it.
    """

    def __init__(self, dynamo: DynamoClient, table: str, clock: Clock) -> None:
        self._dynamo = dynamo
        self._table = table
        self._clock = clock
        self._is_on = True
        self._read_at: datetime | None = None

    def is_on(self) -> bool:
        now = self._clock()
        if (
            not self._is_on
            or self._read_at is None
            or now - self._read_at >= DISPATCH_SWITCH_CACHE_TIME
        ):
            try:
                self._read(now)
            except Unavailable:
                return self._is_on  # keep the last known value; the next call reads again
        return self._is_on

    def shards(self) -> int:
        """Return the number of shards in force. This read also refreshes the switch."""
        row = self._read(self._clock())
        return int(row[keys.SHARD_COUNT_ATTR]["N"]) if keys.SHARD_COUNT_ATTR in row else 1

    def _read(self, now: datetime) -> Mapping[str, Any]:
        stored = self._dynamo.read(self._table, [keys.shards_key()]).get(keys.shards_key())
        row = {} if stored is None else check_layout(stored)
        self._is_on = keys.DISPATCH_ATTR not in row or row[keys.DISPATCH_ATTR]["S"] != _OFF
        self._read_at = now
        return row

    def set(self, is_on: bool) -> None:
        """Write the switch to the control table if the value differs."""
        if self.is_on() is is_on:
            return
        self._dynamo.update_if(
            self._table,
            keys.shards_key(),
            Condition(
                "attribute_not_exists(#dispatch) OR #dispatch <> :dispatch",
                "SET #dispatch = :dispatch, #f = :f",
                {"#dispatch": keys.DISPATCH_ATTR, "#f": keys.LAYOUT_ATTR},
                to_item({":dispatch": _ON if is_on else _OFF, ":f": keys.ROW_LAYOUT}),
            ),
        )
        self._is_on, self._read_at = is_on, self._clock()


class SwitchedMessages:
    """A run queue that obeys the dispatch switch.

    While dispatch is off, `send` accepts no message. The caller keeps its trigger, so no run is
    lost.
    """

    def __init__(self, messages: RunQueue, dispatch_switch: DispatchSwitch) -> None:
        self._messages = messages
        self._dispatch_switch = dispatch_switch

    def send(self, messages: Sequence[Message]) -> Sequence[bool]:
        if self._dispatch_switch.is_on():
            return self._messages.send(messages)
        return [False] * len(messages)
