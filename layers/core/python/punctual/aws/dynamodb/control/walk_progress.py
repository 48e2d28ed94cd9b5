"""The progress of the daily walk, in one control row that each invocation continues from."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import from_item, to_item
from punctual.aws.dynamodb.client import Condition, DynamoClient, known
from punctual.aws.dynamodb.sort_keys import moment, parse_moment

STARTED, HEADS, SWEEP = "started", "heads", "sweep"
PAYLOADS, WALKED, SWEPT = "payloads", "walked", "swept"
COUNTS, CLEARED = "counts", "cleared"
OVER, STEP = "over", "step"


@dataclass(frozen=True)
class Progress:
    """The progress of one walk.

    - `heads`, `sweep`, `payloads`: the cursor of each part; None at its start and end.
    - `walked`, `swept`, `cleared`: whether the first three parts are done.
    - `over`: whether the whole walk is done.
    - `counts`: the packed counts of job states, until the counters are corrected.
    - `step`: the number of writes, so that only one of two concurrent walks continues.
    """

    started_at: datetime
    heads: str | None = None
    sweep: datetime | None = None
    payloads: str | None = None
    walked: bool = False
    swept: bool = False
    counts: bytes = b""
    cleared: bool = False
    over: bool = False
    step: int = 0


class WalkProgress:
    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def read(self) -> Progress | None:
        row = self._dynamo.read(self._table, [keys.walk()]).get(keys.walk())
        if row is None:
            return None
        values = from_item(known(row))
        return Progress(
            started_at=parse_moment(values[STARTED]),
            heads=values.get(HEADS),
            sweep=_moment(values.get(SWEEP)),
            payloads=values.get(PAYLOADS),
            walked=values[WALKED],
            swept=values.get(SWEPT, False),
            counts=values.get(COUNTS, b""),
            cleared=values.get(CLEARED, False),
            over=values[OVER],
            step=values[STEP],
        )

    def keep(self, progress: Progress) -> bool:
        """Write the progress. Return False if another walk continued from the same step."""
        values: dict[str, Any] = {
            keys.FORMAT: keys.LAYOUT,
            STARTED: moment(progress.started_at),
            WALKED: progress.walked,
            SWEPT: progress.swept,
            CLEARED: progress.cleared,
            OVER: progress.over,
            STEP: progress.step + 1,
        }
        if progress.heads is not None:
            values[HEADS] = progress.heads
        if progress.sweep is not None:
            values[SWEEP] = moment(progress.sweep)
        if progress.payloads is not None:
            values[PAYLOADS] = progress.payloads
        if progress.counts:
            values[COUNTS] = progress.counts
        condition = Condition(
            "attribute_not_exists(#step) OR #step = :step",
            names={"#step": STEP},
            values=to_item({":step": progress.step}),
        )
        row = {**keys.walk().item(), **to_item(values)}
        refused = self._dynamo.put_if(self._table, row, condition)
        return refused is None or (refused.ambiguous and refused.item == row)


def _moment(text: str | None) -> datetime | None:
    return None if text is None else parse_moment(text)
