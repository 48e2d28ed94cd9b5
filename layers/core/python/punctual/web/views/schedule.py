"""Render forecasts, and the differences of two schedules."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from punctual.domain.schedules.timezones import TZDATA_VERSION, zone
from punctual.domain.timestamps import format_time
from punctual.domain.utc import SECOND
from punctual.engine.queries.schedules.forecast import Forecast, StartCount
from punctual.engine.queries.schedules.schedule_diff import ScheduleDiff

MAX_LISTED_TIMES = 100  # of each kind


def forecast_json(forecast: Forecast) -> dict[str, Any]:
    return {
        "from": format_time(forecast.start),
        "to": format_time(forecast.end),
        "step_seconds": forecast.step // SECOND,
        "minutes": [_start_count_json(count) for count in forecast.starts],
        "busiest": None if forecast.busiest is None else _start_count_json(forecast.busiest),
        "starts": sum(count.number for count in forecast.starts),
        "jobs": forecast.job_count,
        "from_completion_jobs": forecast.from_completion_jobs,
    }


def _start_count_json(count: StartCount) -> dict[str, Any]:
    return {"minute": format_time(count.at), "starts": count.number}


def schedule_diff_json(
    diff: ScheduleDiff, start: datetime, before_zone: str, after_zone: str
) -> dict[str, Any]:
    return {
        "from": format_time(start),
        "to": format_time(diff.end),
        "added": _times_json(diff.added, after_zone),
        "removed": _times_json(diff.removed, before_zone),
        "moved": {
            "count": len(diff.moved),
            "shift_seconds": _seconds(diff.shift),
            "times": [
                {
                    "before": _time_json(moved.before_at, before_zone),
                    "after": _time_json(moved.after_at, after_zone),
                }
                for moved in diff.moved[:MAX_LISTED_TIMES]
            ],
        },
        "unchanged": _times_json(diff.unchanged, after_zone),
        "warnings": list(diff.warnings),
        "tzdata": TZDATA_VERSION,
    }


def _times_json(times: Sequence[datetime], zone_name: str) -> dict[str, Any]:
    listed = [_time_json(at, zone_name) for at in times[:MAX_LISTED_TIMES]]
    return {"count": len(times), "times": listed}


def _time_json(at: datetime, zone_name: str) -> dict[str, str]:
    local = at.astimezone(zone(zone_name))
    return {"utc": format_time(at), "local": local.isoformat(timespec="milliseconds")}


def _seconds(shift: timedelta | None) -> float | None:
    return None if shift is None else shift / SECOND
