"""Compare the times of a cron expression in croniter with those in Punctual."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from punctual_cli.errors import CommandError
from punctual_cli.input import moments
from punctual_cli.output.columns import Column

if TYPE_CHECKING:
    from punctual.domain.schedules.schedule import Cron
    from punctual_cli.output.screen import Screen

CLOCK_CHANGE_DISTANCE = timedelta(days=1)
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
                "punctual": moments.format_rfc3339(difference.punctual),
                "croniter": moments.format_rfc3339(difference.croniter),
                "reasons": list(difference.reasons),
            },
        }


def compare_times(schedule: "Cron", after: datetime, times: Sequence[datetime]) -> Comparison:
    """Return how croniter's times after `after` compare with `times`, which are Punctual's.

    croniter gets the expression as it stands, the same time zone data, and its own defaults.
    """
    if "(" in schedule.expression:
        raise CommandError(
            "croniter does not read cron(…), rate(…) or at(…)",
            advice="Compare an expression of five or six fields.",
        )
    croniter, version = _import_croniter()
    try:
        croniter_times = _croniter_times(croniter, schedule, after, len(times))
    except croniter.CroniterError as error:
        return Comparison(version, 0, error=str(error))
    for position, (punctual_at, croniter_at) in enumerate(
        zip(times, croniter_times, strict=True), 1
    ):
        if punctual_at != croniter_at:
            reasons = tuple(_known_reasons(schedule, punctual_at, croniter_at))
            return Comparison(
                version, position, Difference(position, punctual_at, croniter_at, reasons)
            )
    return Comparison(version, len(times))


def _import_croniter() -> tuple[Any, str]:
    """Return the module and its version. croniter is an optional extra of the command line."""
    from importlib.metadata import version

    try:
        import croniter
    except ModuleNotFoundError as error:
        if error.name != "croniter":
            raise
        raise CommandError(
            "--compare needs the package croniter, which is not installed",
            advice="In the checkout: .venv/bin/python -m pip install -e '.[compare]'",
        ) from None
    return croniter, version("croniter")


def _croniter_times(croniter: Any, schedule: "Cron", after: datetime, count: int) -> list[datetime]:
    from punctual.domain.schedules.timezones import zone

    start_at = after.astimezone(zone(schedule.timezone))
    iterator = croniter.croniter(schedule.expression, start_at, second_at_beginning=True)
    return [iterator.get_next(datetime).astimezone(UTC) for _ in range(count)]


def _known_reasons(schedule: "Cron", punctual_at: datetime, croniter_at: datetime) -> list[str]:
    """Return each known difference of meaning that applies to these two times."""
    reasons = _clock_change_reasons(schedule, min(punctual_at, croniter_at))
    fields = schedule.expression.split()
    if len(fields) > 1:
        days, weekdays = fields[-3], fields[-1]
        has_both_days = days not in UNSET_DAY_FIELDS and weekdays not in UNSET_DAY_FIELDS
        if has_both_days and (days.startswith("*") or weekdays.startswith("*")):
            reasons.append(
                "A day field begins with *. Punctual then fires where both day fields match, "
                "as Debian's cron does; croniter fires where one of them matches."
            )
    one_value_range = RANGE_OF_ONE_VALUE.search(schedule.expression)
    if one_value_range:
        reasons.append(
            f"Punctual reads the range {one_value_range[0]} as one value; "
            "croniter reads it as all values."
        )
    return reasons or [
        "No known rule explains the difference. One of the two programs may have a bug."
    ]


def _clock_change_reasons(schedule: "Cron", at: datetime) -> list[str]:
    from punctual.domain.schedules.cron.clock_changes import clock_changes
    from punctual.domain.schedules.cron.expression import Calendar, parse_cron
    from punctual.domain.schedules.timezones import zone

    calendar = parse_cron(schedule.expression)
    assert isinstance(calendar, Calendar)
    start_at, end_at = at - CLOCK_CHANGE_DISTANCE, at + CLOCK_CHANGE_DISTANCE
    changes = clock_changes(
        calendar, schedule.timezone, schedule.gap, schedule.fold, start_at, end_at
    )
    zone_info = zone(schedule.timezone)
    offsets = [
        day_at.astimezone(zone_info).utcoffset() or timedelta() for day_at in (start_at, end_at)
    ]
    croniter_rule = "both times" if offsets[1] < offsets[0] else "at the first moment after"
    return [f"{change} in Punctual. croniter fires {croniter_rule}." for change in changes]


def print_comparison(screen: "Screen", comparison: Comparison, tz: str) -> None:
    """Show the agreement, or the first difference side by side."""
    from punctual.domain.schedules.timezones import zone

    name = f"croniter {comparison.version}"
    if not (comparison.compared or comparison.error):
        return
    screen.print_line()
    if comparison.error:
        screen.print_line(f"{name} does not accept this expression: {comparison.error}", "yellow")
        return
    difference = comparison.difference
    if difference is None:
        screen.print_line(f"{name} agrees on {_times_text(comparison.compared)}.", "green")
        return
    agreed_count = difference.position - 1
    agreement_text = f" and agrees on {_times_text(agreed_count)} before it" if agreed_count else ""
    screen.print_line(f"{name} differs at time {difference.position}{agreement_text}:", "yellow")
    screen.print_line()
    local_times = [
        f"{at.astimezone(zone(tz)):%a %Y-%m-%d %H:%M:%S %Z}"
        for at in (difference.punctual, difference.croniter)
    ]
    screen.print_table([Column("PUNCTUAL"), Column("CRONITER")], [local_times])
    screen.print_line()
    for reason in difference.reasons:
        screen.print_line(f"Reason: {reason}")


def _times_text(count: int) -> str:
    return "the one time" if count == 1 else f"the {count} times"
