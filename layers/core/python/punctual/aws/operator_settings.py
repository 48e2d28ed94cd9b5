"""Settings of operators in SSM, and the dispatch switch.

Only the planner reads SSM. It copies the dispatch switch to the control table for all functions.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import to_item
from punctual.aws.dynamodb.client import Condition, DynamoClient, known
from punctual.aws.retries import Client, answer
from punctual.domain.errors import Unavailable
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.run_queue import Message, Messages

SHARDS_MOST = 1_000
PACE_MOST = 1_440
FRESH = timedelta(seconds=30)  # how long functions may send after dispatch is switched off
_ON, _OFF = "on", "off"
_WHOLE = re.compile(r"[0-9]{1,4}")


class OperatorSettings(NamedTuple):
    """The settings. `wrong` names those with invalid values, which have their defaults."""

    shards: int = 1
    pace: int = 30  # overdue minutes that the planner hands out at a time
    dispatch: bool = True
    wrong: tuple[str, ...] = ()


class SsmOperatorSettings:
    def __init__(self, client: Client, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    def read(self) -> OperatorSettings:
        names = [self._prefix + name for name in ("shards", "pace", "dispatch")]
        response = answer("reading the knobs", lambda: self._client().get_parameters(Names=names))
        found = {
            one["Name"].removeprefix(self._prefix): one["Value"].strip()
            for one in response["Parameters"]
        }
        wrong: list[str] = []
        dispatch = found.get("dispatch", "").lower()
        if dispatch not in (_ON, _OFF):
            wrong.append("dispatch")
        shards = _whole(found, "shards", SHARDS_MOST, wrong) or OperatorSettings().shards
        pace = _whole(found, "pace", PACE_MOST, wrong) or OperatorSettings().pace
        return OperatorSettings(shards, pace, dispatch != _OFF, tuple(wrong))


def _whole(found: dict[str, str], name: str, most: int, wrong: list[str]) -> int | None:
    text = found.get(name, "")
    if _WHOLE.fullmatch(text) and 1 <= int(text) <= most:
        return int(text)
    wrong.append(name)
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
        self._open = True
        self._read_at: datetime | None = None

    def open(self) -> bool:
        now = self._clock()
        if not self._open or self._read_at is None or now - self._read_at >= FRESH:
            try:
                self._read(now)
            except Unavailable:
                return self._open  # keep the last known value; the next call reads again
        return self._open

    def shards(self) -> int:
        """Return the number of shards in force. This read also refreshes the switch."""
        row = self._read(self._clock())
        return int(row[keys.COUNT]["N"]) if keys.COUNT in row else 1

    def _read(self, now: datetime) -> Mapping[str, Any]:
        found = self._dynamo.read(self._table, [keys.shards()]).get(keys.shards())
        row = {} if found is None else known(found)
        self._open = keys.DISPATCH not in row or row[keys.DISPATCH]["S"] != _OFF
        self._read_at = now
        return row

    def set(self, is_open: bool) -> None:
        """Write the switch to the control table if the value differs."""
        if self.open() is is_open:
            return
        self._dynamo.update_if(
            self._table,
            keys.shards(),
            Condition(
                "attribute_not_exists(#dispatch) OR #dispatch <> :dispatch",
                "SET #dispatch = :dispatch, #f = :f",
                {"#dispatch": keys.DISPATCH, "#f": keys.FORMAT},
                to_item({":dispatch": _ON if is_open else _OFF, ":f": keys.LAYOUT}),
            ),
        )
        self._open, self._read_at = is_open, self._clock()


class SwitchedMessages:
    """Run messages behind the dispatch switch.

    While dispatch is off, `send` accepts no message. The caller keeps its trigger, so no run is
    lost.
    """

    def __init__(self, messages: Messages, gate: DispatchSwitch) -> None:
        self._messages = messages
        self._gate = gate

    def send(self, messages: Sequence[Message]) -> Sequence[bool]:
        if self._gate.open():
            return self._messages.send(messages)
        return [False] * len(messages)
