"""The other answers: what comes, why, and how the installation does."""

from typing import Any, NamedTuple

from punctual.domain.schedules.schedule import Preview
from punctual.domain.schedules.timezones import TZDATA_VERSION
from punctual.engine.queries.views import Explanation, Health, Stats, Upcoming
from punctual.web.http.timestamps import format_optional_time, format_time

START_GUARANTEE = "at-least-once start, one holder at a time, every effect fenced"
START_MARGIN_SECONDS = 2


class Login(NamedTuple):
    """Where people log in: the OIDC issuer, and the client that asks it on their behalf."""

    issuer: str
    client_id: str | None


class InstallationInfo(NamedTuple):
    """What an installation says of itself, whether its store answers or not."""

    version: str
    task_types: tuple[str, ...]
    sandbox: str | None = None  # of scripts; None where there are none
    login: Login | None = None  # None where tokens alone are accepted


def preview_json(found: Preview) -> dict[str, Any]:
    return {
        "times": [
            {"utc": format_time(utc), "local": local.isoformat(timespec="milliseconds")}
            for utc, local in found.times
        ],
        "description": found.description,
        "warnings": list(found.warnings),
        "tzdata": TZDATA_VERSION,
    }


def upcoming_json(one: Upcoming) -> dict[str, Any]:
    return {
        "job_id": one.job_id,
        "name": one.name,
        "utc": format_time(one.at),
        "local": one.local.isoformat(timespec="milliseconds"),
    }


def explanation_json(job_id: str, found: Explanation) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "at": format_time(found.at),
        "occurrence": format_optional_time(found.occurrence),
        "outcome": found.outcome,
        "reason": found.reason,
        "run_id": found.run_id,
        "previous": format_optional_time(found.previous),
        "next": format_optional_time(found.next),
    }


def stats_json(stats: Stats) -> dict[str, Any]:
    return {
        "jobs": dict(stats.jobs),
        "runs": dict(stats.runs),
        "last_hour": [_format_times(one) for one in stats.last_hour],
        "lateness_ms": dict(stats.lateness_ms),
        "queue": dict(stats.queue),
        "executors": [_format_times(one) for one in stats.executors],
    }


def health_json(health: Health, about: InstallationInfo) -> dict[str, Any]:
    return {
        "status": health.status,
        "lateness_ms_p99": health.lateness_ms_p99,
        "watermark": format_optional_time(health.watermark),
        "planner_heartbeat": format_optional_time(health.planner_heartbeat),
        "version": about.version,
        "tzdata": TZDATA_VERSION,
        "task_types": sorted(health.task_types or about.task_types),
        "guarantee": START_GUARANTEE,
        "margin_seconds": START_MARGIN_SECONDS,
        "sandbox": about.sandbox,
        "auth": None if about.login is None else about.login._asdict(),
        "warnings": [{"code": one.code, "text": one.text} for one in health.warnings],
    }


def _format_times(values: Any) -> dict[str, Any]:
    return {k: format_time(v) if hasattr(v, "astimezone") else v for k, v in values.items()}
