"""Describe a job's schedule in words."""

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from punctual.client import Job


def short_schedule(job: "Job") -> str:
    """Return a schedule in its short form, for a table.

    A zone other than UTC is named by its city.
    """
    if job.schedule_type == "CRON":
        zone = job.timezone or "UTC"
        city = "" if zone == "UTC" else f" {zone.rpartition('/')[2]}"
        return f"{job.cron_expression}{city}"
    if job.schedule_type == "INTERVAL":
        return f"every {format_interval(job.interval_seconds or 0)}"
    return "once"


def format_interval(seconds: int) -> str:
    """Return an interval without days. 86,400 s stay 24 hours, also where a day has 23.

    >>> format_interval(300), format_interval(5400), format_interval(86400), format_interval(93784)
    ('5 min', '1 h 30 min', '24 h', '26 h 3 min 4 s')
    """
    hours, rest_seconds = divmod(seconds, 3_600)
    parts = [(hours, "h"), (rest_seconds // 60, "min"), (rest_seconds % 60, "s")]
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def full_schedule(job: "Job") -> str:
    """Return a schedule with its meaning."""
    if job.schedule_type == "CRON":
        return f"{job.cron_expression}\n{_describe_cron(job)}"
    if job.schedule_type == "INTERVAL":
        suffix = " after the last run has ended" if job.interval_from == "COMPLETED" else ""
        return f"every {format_interval(job.interval_seconds or 0)}{suffix}"
    if job.schedule_type == "FUTURE" and job.schedule_time is not None:
        return f"once, at {_format_utc(job.schedule_time)}"
    return "once, immediately"


def _describe_cron(job: "Job") -> str:
    from punctual.domain.schedules.schedule import Cron, describe

    try:
        return describe(Cron(job.cron_expression or "", timezone=job.timezone or "UTC"))
    except ValueError:
        # A newer server may know expressions that this program does not.
        return f"in {job.timezone}"


def _format_utc(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")
