"""Compare the times of a cron expression in croniter with those in Punctual."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from punctual_cli.errors import Trouble
from punctual_cli.input import moments
from punctual_cli.output.columns import Column

if TYPE_CHECKING:
    from punctual.domain.schedules.schedule import Cron
    from punctual_cli.output.screen import Screen

ONE_DAY = timedelta(days=1)
UNSET_DAY_FIELDS = ("*", "?")
RANGE_OF_ONE_VALUE = re.compile(r"\b(\w+)-\1\b")


@dataclass(frozen=True)
class Difference:
    """The first position at which the two programs disagree, and why."""

    position: int
    punctual: datetime
    croniter: datetime
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    version: str
    compared: int
    difference: Difference | None = None
    error: str = ""

    @property
    def agrees(self) -> bool:
        return self.difference is None and not self.error

    def as_json(self) -> dict[str, Any]:
        difference = self.difference
        return {
            "with": "croniter",
            "version": self.version,
            "compared": self.compared,
            "agrees": self.agrees,
            "error": self.error or None,
            "difference": difference
            and {
                "position": difference.position,
                "punctual": moments.wire(difference.punctual),
                "croniter": moments.wire(difference.croniter),
                "reasons": list(difference.reasons),
            },
        }


def compare(schedule: "Cron", after: datetime, times: Sequence[datetime]) -> Comparison:
    """Return how croniter's times after `after` compare with `times`, which are Punctual's.

    croniter gets the expression as it stands, the same time zone data, and its own defaults.
    """
    if "(" in schedule.expression:
        raise Trouble(
            "croniter does not read cron(…), rate(…) or at(…)",
            advice="Compare an expression of five or six fields.",
        )
    croniter, version = _croniter()
    try:
        theirs = _croniter_times(croniter, schedule, after, len(times))
    except croniter.CroniterError as error:
        return Comparison(version, 0, error=str(error))
    for position, (ours, other) in enumerate(zip(times, theirs, strict=True), 1):
        if ours != other:
            reasons = tuple(_reasons(schedule, ours, other))
            return Comparison(version, position, Difference(position, ours, other, reasons))
    return Comparison(version, len(times))


def _croniter() -> tuple[Any, str]:
    """Return the module and its version. croniter is an optional extra of the command line."""
    from importlib.metadata import version

    try:
        import croniter
    except ModuleNotFoundError as error:
        if error.name != "croniter":
            raise
        raise Trouble(
            "--compare needs the package croniter, which is not installed",
            advice="In the checkout: .venv/bin/python -m pip install -e '.[compare]'",
        ) from None
    return croniter, version("croniter")


def _croniter_times(croniter: Any, schedule: "Cron", after: datetime, count: int) -> list[datetime]:
    from punctual.domain.schedules.timezones import zone

    start = after.astimezone(zone(schedule.timezone))
    walk = croniter.croniter(schedule.expression, start, second_at_beginning=True)
    return [walk.get_next(datetime).astimezone(UTC) for _ in range(count)]


def _reasons(schedule: "Cron", ours: datetime, theirs: datetime) -> list[str]:
    """Return each known difference of meaning that applies to these two times."""
    reasons = _clock_reasons(schedule, min(ours, theirs))
    fields = schedule.expression.split()
    if len(fields) > 1:
        days, weekdays = fields[-3], fields[-1]
        both_set = days not in UNSET_DAY_FIELDS and weekdays not in UNSET_DAY_FIELDS
        if both_set and (days.startswith("*") or weekdays.startswith("*")):
            reasons.append(
                "A day field begins with *. Punctual then fires where both day fields match, "
                "as Debian's cron does; croniter fires where one of them matches."
            )
    single = RANGE_OF_ONE_VALUE.search(schedule.expression)
    if single:
        reasons.append(
            f"Punctual reads the range {single[0]} as one value; croniter reads it as all values."
        )
    return reasons or ["No known rule explains it. One of the two programs may be wrong."]


def _clock_reasons(schedule: "Cron", at: datetime) -> list[str]:
    from punctual.domain.schedules.cron.clock_changes import clock_changes
    from punctual.domain.schedules.cron.expression import Calendar, parse_cron
    from punctual.domain.schedules.timezones import zone

    meaning = parse_cron(schedule.expression)
    assert isinstance(meaning, Calendar)
    start, end = at - ONE_DAY, at + ONE_DAY
    changes = clock_changes(meaning, schedule.timezone, schedule.gap, schedule.fold, start, end)
    info = zone(schedule.timezone)
    offsets = [day.astimezone(info).utcoffset() or timedelta() for day in (start, end)]
    way = "both times" if offsets[1] < offsets[0] else "at the first moment after"
    return [f"{change} in Punctual. croniter fires {way}." for change in changes]


def draw(screen: "Screen", comparison: Comparison, tz: str) -> None:
    """Show the agreement, or the first difference side by side."""
    from punctual.domain.schedules.timezones import zone

    name = f"croniter {comparison.version}"
    if not (comparison.compared or comparison.error):
        return
    screen.line()
    if comparison.error:
        screen.line(f"{name} does not accept this expression: {comparison.error}", "yellow")
        return
    difference = comparison.difference
    if difference is None:
        screen.line(f"{name} agrees on {_times(comparison.compared)}.", "green")
        return
    agreed = difference.position - 1
    before = f" and agrees on {_times(agreed)} before it" if agreed else ""
    screen.line(f"{name} differs at time {difference.position}{before}:", "yellow")
    screen.line()
    local = [
        f"{at.astimezone(zone(tz)):%a %Y-%m-%d %H:%M:%S %Z}"
        for at in (difference.punctual, difference.croniter)
    ]
    screen.table([Column("PUNCTUAL"), Column("CRONITER")], [local])
    screen.line()
    for reason in difference.reasons:
        screen.line(f"Reason: {reason}")


def _times(count: int) -> str:
    return "the one time" if count == 1 else f"the {count} times"
