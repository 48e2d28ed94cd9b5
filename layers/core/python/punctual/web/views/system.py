"""Render previews, upcoming times, explanations, statistics and health."""

from typing import Any, NamedTuple

from punctual.domain.schedules.schedule import Preview
from punctual.domain.schedules.timezones import TZDATA_VERSION
from punctual.domain.timestamps import format_optional_time, format_time
from punctual.engine.ports.monitor import Health, Stats
from punctual.engine.queries.views import Explanation, UpcomingOccurrence

START_GUARANTEE = "at-least-once start, one holder at a time, every effect fenced"
START_MARGIN_SECONDS = 2
CONTAINER_START_MARGIN_SECONDS = 120  # Fargate starts a task in a minute or two


class Login(NamedTuple):
    """The OIDC issuer where people log in, and the client that a page uses there."""

    issuer: str
    client_id: str | None


class InstallationInfo(NamedTuple):
    """The facts of an installation that need no store."""

    version: str
    task_types: tuple[str, ...]
    sandbox: str | None = None  # of scripts; None without script tasks
    login: Login | None = None  # None if only tokens are accepted


def preview_json(preview: Preview) -> dict[str, Any]:
    return {
        "times": [
            {"utc": format_time(utc), "local": local.isoformat(timespec="milliseconds")}
            for utc, local in preview.times
        ],
        "description": preview.description,
        "warnings": list(preview.warnings),
        "tzdata": TZDATA_VERSION,
    }


def upcoming_json(occurrence: UpcomingOccurrence) -> dict[str, Any]:
    return {
        "job_id": occurrence.job_id,
        "name": occurrence.name,
        "utc": format_time(occurrence.at),
        "local": occurrence.local.isoformat(timespec="milliseconds"),
    }


def explanation_json(job_id: str, explanation: Explanation) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "at": format_time(explanation.at),
        "occurrence": format_optional_time(explanation.occurrence),
        "outcome": explanation.outcome,
        "reason": explanation.reason,
        "run_id": explanation.run_id,
        "previous": format_optional_time(explanation.previous),
        "next": format_optional_time(explanation.next),
    }


def stats_json(stats: Stats) -> dict[str, Any]:
    return {
        "jobs": dict(stats.jobs),
        "runs": dict(stats.runs),
        "last_hour": [_format_times(minute) for minute in stats.last_hour],
        "lateness_ms": dict(stats.lateness_ms),
        "list_lag_ms": None if stats.list_lag_ms is None else dict(stats.list_lag_ms),
        "queue": dict(stats.queue),
        "limits": [dict(limit) for limit in stats.limits],
        "executors": [_format_times(executor) for executor in stats.executors],
    }


def health_json(health: Health, installation: InstallationInfo) -> dict[str, Any]:
    task_types = sorted(health.task_types or installation.task_types)
    return {
        "status": health.status,
        "lateness_ms_p99": health.lateness_ms_p99,
        "watermark": format_optional_time(health.watermark),
        "planner_heartbeat": format_optional_time(health.planner_heartbeat),
        "version": installation.version,
        "tzdata": TZDATA_VERSION,
        "task_types": task_types,
        "guarantee": START_GUARANTEE,
        "margin_seconds": {task_type: _margin_seconds(task_type) for task_type in task_types},
        "sandbox": installation.sandbox,
        "auth": None if installation.login is None else installation.login._asdict(),
        "warnings": [{"code": warning.code, "text": warning.text} for warning in health.warnings],
    }


def _margin_seconds(task_type: str) -> int:
    """Return how long after its due time a run of this type may begin its work."""
    return CONTAINER_START_MARGIN_SECONDS if task_type == "container" else START_MARGIN_SECONDS


def _format_times(values: Any) -> dict[str, Any]:
    return {
        name: format_time(value) if hasattr(value, "astimezone") else value
        for name, value in values.items()
    }
