"""The types of schedule. Each job state holds one as JSON, so the JSON names are short.

`exclude` is sorted for a binary search.
"""

from datetime import date

import msgspec

from punctual.domain.timestamps import Moment


class Once(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    tag_field="is",
    tag="once",
):
    at: Moment


class Every(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    tag_field="is",
    tag="every",
    rename={
        "anchor_at": "anchor",
        "from_completion": "completion",
        "start_at": "start",
        "end_at": "end",
        "timezone": "tz",
    },
):
    """An interval. It begins at `start_at`, or else one interval after `anchor_at`."""

    seconds: int
    anchor_at: Moment
    from_completion: bool = False
    start_at: Moment | None = None
    end_at: Moment | None = None
    exclude: tuple[date, ...] = ()
    timezone: str = "UTC"


class Cron(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    tag_field="is",
    tag="cron",
    rename={
        "expression": "cron",
        "timezone": "tz",
        "dst_gap": "gap",
        "dst_fold": "fold",
        "start_at": "start",
        "end_at": "end",
        "anchor_at": "anchor",
    },
):
    """A cron expression. An empty `dst_gap` or `dst_fold` means the default of its grammar.

    EventBridge's rate(…) counts from `anchor_at`, or from 1970 without one.
    """

    expression: str
    timezone: str = "UTC"
    dst_gap: str = ""
    dst_fold: str = ""
    start_at: Moment | None = None
    end_at: Moment | None = None
    exclude: tuple[date, ...] = ()
    anchor_at: Moment | None = None

    @property
    def gap(self) -> str:
        return self.dst_gap or ("SKIP" if self._is_eventbridge else "NEXT")

    @property
    def fold(self) -> str:
        return self.dst_fold or "FIRST"

    @property
    def _is_eventbridge(self) -> bool:
        return ")" in self.expression


Schedule = Once | Every | Cron


def counts_from_completion(schedule: Schedule | None) -> bool:
    """Return whether all times but the first depend on the ends of runs."""
    return isinstance(schedule, Every) and schedule.from_completion
