"""The options that set the fields of a job."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from punctual_cli.errors import CommandError
from punctual_cli.input import moments, text_fields

T = TypeVar("T")
SCHEDULE_FLAGS_PANEL, TASK_FLAGS_PANEL, OTHER_FLAGS_PANEL = (
    "Schedule options",
    "Task options",
    "Other options",
)
RUNTIMES_BY_SUFFIX = {
    ".py": "python",
    ".js": "node",
    ".mjs": "node",
    ".sh": "bash",
    ".bash": "bash",
}


def _option(panel: str, *names: str, metavar: str, help_text: str) -> Any:
    return typer.Option(
        *names, metavar=metavar, help=help_text, rich_help_panel=panel, show_default=False
    )


@dataclass(frozen=True)
class JobFlags:
    cron: Annotated[
        str | None,
        _option(
            SCHEDULE_FLAGS_PANEL,
            "--cron",
            metavar="EXPR",
            help_text="Run at the times of a cron expression.",
        ),
    ] = None
    every: Annotated[
        str | None,
        _option(
            SCHEDULE_FLAGS_PANEL,
            "--every",
            metavar="DURATION",
            help_text="Run at an interval, such as 90 (seconds), 30s, 5m, 1h30m or 1d.",
        ),
    ] = None
    at: Annotated[
        str | None,
        _option(
            SCHEDULE_FLAGS_PANEL,
            "--at",
            metavar="TIME",
            help_text=f"Run once at a time: {moments.TIME_FORMS}.",
        ),
    ] = None
    tz: Annotated[
        str | None,
        _option(
            SCHEDULE_FLAGS_PANEL,
            "--tz",
            metavar="ZONE",
            help_text="Time zone of --cron and --at, such as Europe/Berlin.",
        ),
    ] = None
    http: Annotated[
        str | None,
        _option(
            TASK_FLAGS_PANEL,
            "--http",
            metavar="URL",
            help_text="Send an HTTP request to this address.",
        ),
    ] = None
    method: Annotated[
        str | None,
        _option(
            TASK_FLAGS_PANEL,
            "--method",
            metavar="METHOD",
            help_text="HTTP method of --http. Default: POST.",
        ),
    ] = None
    header: Annotated[
        list[str] | None,
        _option(
            TASK_FLAGS_PANEL,
            "--header",
            metavar="'NAME: VALUE'",
            help_text="HTTP header of --http. Repeatable.",
        ),
    ] = None
    script: Annotated[
        Path | None,
        _option(
            TASK_FLAGS_PANEL,
            "--script",
            metavar="FILE",
            help_text="Run a script file with the suffix .py, .js or .sh.",
        ),
    ] = None
    bash: Annotated[
        str | None,
        _option(TASK_FLAGS_PANEL, "--bash", metavar="CODE", help_text="Run this code in bash."),
    ] = None
    python: Annotated[
        str | None,
        _option(TASK_FLAGS_PANEL, "--python", metavar="CODE", help_text="Run this code in Python."),
    ] = None
    interpreter: Annotated[
        str | None,
        _option(
            TASK_FLAGS_PANEL,
            "--interpreter",
            metavar="PATH",
            help_text="Run this program of the node, such as the Python of a virtualenv.",
        ),
    ] = None
    working_directory: Annotated[
        str | None,
        _option(
            TASK_FLAGS_PANEL,
            "--working-directory",
            metavar="PATH",
            help_text="Folder on the node that the script starts in.",
        ),
    ] = None
    arg: Annotated[
        list[str] | None,
        _option(
            TASK_FLAGS_PANEL,
            "--arg",
            metavar="TEXT",
            help_text="Argument of the script or of --interpreter. Repeatable.",
        ),
    ] = None
    payload: Annotated[
        str | None,
        _option(
            TASK_FLAGS_PANEL,
            "--payload",
            metavar="JSON",
            help_text="Payload of the task, or @FILE to read it from a file.",
        ),
    ] = None
    timeout: Annotated[
        str | None,
        _option(
            OTHER_FLAGS_PANEL,
            "--timeout",
            metavar="DURATION",
            help_text="Maximum duration of one attempt.",
        ),
    ] = None
    retries: Annotated[
        int | None,
        _option(
            OTHER_FLAGS_PANEL,
            "--retries",
            metavar="N",
            help_text="Maximum number of retries after failed attempts.",
        ),
    ] = None
    priority: Annotated[
        str | None,
        _option(
            OTHER_FLAGS_PANEL,
            "--priority",
            metavar="HIGH|NORMAL|LOW",
            help_text="Priority of the runs in the run queue.",
        ),
    ] = None
    notify: Annotated[
        list[str] | None,
        _option(
            OTHER_FLAGS_PANEL,
            "--notify",
            metavar="STATUS,…=URL",
            help_text="Send a signed webhook for runs with a status, such as FAILED. Repeatable.",
        ),
    ] = None
    output: Annotated[
        str | None,
        _option(
            OTHER_FLAGS_PANEL,
            "--output",
            metavar="keep|discard",
            help_text="Keep or discard the output of runs. Default: keep.",
        ),
    ] = None
    tag: Annotated[
        list[str] | None,
        _option(
            OTHER_FLAGS_PANEL, "--tag", metavar="KEY=VALUE", help_text="Tag of the job. Repeatable."
        ),
    ] = None
    assign: Annotated[
        list[str] | None,
        _option(
            OTHER_FLAGS_PANEL,
            "--set",
            metavar="FIELD=VALUE",
            help_text="Set any field of the job, such as retry.backoff_seconds=10. Repeatable.",
        ),
    ] = None

    def apply_to(self, base_fields: dict[str, Any], now: datetime) -> dict[str, Any]:
        """Return the given fields, overridden by the options."""
        merged = {**base_fields, **self._schedule_fields(now), **self._other_fields()}
        task = self._task_field()
        if task is not None:
            merged["task"] = task
        if self.tag:
            merged["tags"] = {**(merged.get("tags") or {}), **text_fields.parse_tags(self.tag)}
        return text_fields.apply_assignments(merged, self.assign or ())

    @property
    def changes_nested_fields(self) -> bool:
        """Return True if an option changes a part of a field and the rest of the field stays."""
        return bool(self.tag) or any("." in text.partition("=")[0] for text in self.assign or ())

    def present_nested_fields(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return the present values of the fields that options change in part."""
        names = {text.partition("=")[0].partition(".")[0].strip() for text in self.assign or ()}
        names |= {"tags"} if self.tag else set()
        return {name: job[name] for name in names if isinstance(job.get(name), dict)}

    def _schedule_fields(self, now: datetime) -> dict[str, Any]:
        chosen = [name for name in ("cron", "every", "at") if getattr(self, name) is not None]
        if len(chosen) > 1:
            raise CommandError(f"--{chosen[0]} and --{chosen[1]} cannot be combined.")
        if self.cron is not None:
            timezone_field = {} if self.tz is None else {"timezone": self.tz}
            return {"schedule_type": "CRON", "cron_expression": self.cron, **timezone_field}
        if self.every is not None:
            seconds = _parse_seconds("--every", self.every)
            return {"schedule_type": "INTERVAL", "interval_seconds": seconds}
        if self.at is not None:
            schedule_at = parse_time_option("--at", self.at, now, self.tz)
            return {"schedule_type": "FUTURE", "schedule_time": moments.format_rfc3339(schedule_at)}
        return {} if self.tz is None else {"timezone": self.tz}

    def _task_field(self) -> dict[str, Any] | None:
        chosen = [
            name for name in ("http", "script", "bash", "python") if getattr(self, name) is not None
        ]
        if len(chosen) > 1:
            raise CommandError(f"--{chosen[0]} and --{chosen[1]} cannot be combined.")
        script_fields = {
            "interpreter": self.interpreter,
            "working_directory": self.working_directory,
            "args": self.arg,
        }
        given_fields = {name: value for name, value in script_fields.items() if value}
        if self.http is not None:
            if given_fields:
                raise CommandError("--http cannot be combined with the options of a script.")
            return self._http_task()
        if self.method is not None or self.header:
            raise CommandError("--method and --header require --http.")
        task = self._code_task()
        if task is None and self.interpreter is not None:
            task = {"type": "script", "runtime": _runtime_of(self.interpreter)}
        if task is None and given_fields:
            raise CommandError(
                "--working-directory and --arg require --script, --bash, --python or --interpreter."
            )
        return None if task is None else task | given_fields

    def _code_task(self) -> dict[str, Any] | None:
        if self.script is not None:
            return _script_task(self.script)
        for runtime in ("bash", "python"):
            code = getattr(self, runtime)
            if code is not None:
                return {"type": "script", "runtime": runtime, "code": code}
        return None

    def _http_task(self) -> dict[str, Any]:
        task: dict[str, Any] = {"type": "http", "url": self.http}
        if self.method is not None:
            task["method"] = self.method.upper()
        if self.header:
            task["headers"] = dict(_parse_header(text) for text in self.header)
        return task

    def _other_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self.payload is not None:
            fields["payload"] = text_fields.parse_payload(self.payload)
        if self.timeout is not None:
            fields["timeout_seconds"] = _parse_seconds("--timeout", self.timeout)
        if self.retries is not None:
            fields["max_retries"] = self.retries
        if self.priority is not None:
            fields["priority"] = self.priority.upper()
        if self.output is not None:
            fields["output"] = self.output.lower()
        if self.notify:
            fields["notify"] = text_fields.parse_webhooks(self.notify)
        return fields


def _parse_seconds(option: str, text: str) -> int:
    return int(parse_option(option, lambda: moments.parse_duration(text)) / timedelta(seconds=1))


def parse_time_option(
    option: str, text: str, now: datetime, zone_name: str | None = None
) -> datetime:
    """Return the time that an option's text means."""
    zone = find_zone(zone_name)
    return parse_option(option, lambda: moments.parse_time(text, now, zone))


def find_zone(name: str | None) -> tzinfo | None:
    """Return a zone by its IANA name. None stands for the zone of this machine."""
    from punctual.domain.schedules import timezones

    return None if name is None else parse_option("--tz", lambda: timezones.zone(name))


def parse_option(option: str, action: Callable[[], T]) -> T:
    try:
        return action()
    except OverflowError as error:
        raise CommandError(f"{option}: date out of range.") from error
    except ValueError as error:
        raise CommandError(f"{option}: {error}.") from error


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise CommandError(f"--header must be 'NAME: VALUE'; got {text!r}.")
    return name.strip(), value.strip()


def _runtime_of(program: str) -> str:
    """Return the runtime that the name of a program implies, or `binary`.

    >>> _runtime_of("/srv/venv/bin/python3.12"), _runtime_of("/srv/app/tool")
    ('python', 'binary')
    """
    name = Path(program).name
    return next((runtime for runtime in ("python", "node", "bash") if runtime in name), "binary")


def _script_task(file: Path) -> dict[str, Any]:
    runtime = RUNTIMES_BY_SUFFIX.get(file.suffix)
    if runtime is None:
        raise CommandError(
            f"--script {file}: the suffix must be {', '.join(RUNTIMES_BY_SUFFIX)}.",
            advice="Or use --set task.type=script --set task.runtime=… --set task.code=….",
        )
    try:
        return {"type": "script", "runtime": runtime, "code": file.read_text()}
    except UnicodeDecodeError as error:
        raise CommandError(f"{file} is not valid UTF-8.") from error
