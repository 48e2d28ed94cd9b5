"""The options that set the fields of a job."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from punctual_cli.errors import Trouble
from punctual_cli.input import moments, text_fields

T = TypeVar("T")
WHEN, WHAT, OTHER_FLAGS_PANEL = "When it runs", "What it runs", "The rest"
RUNTIMES = {".py": "python", ".js": "node", ".mjs": "node", ".sh": "bash", ".bash": "bash"}


def _option(panel: str, *names: str, metavar: str, help_text: str) -> Any:
    return typer.Option(
        *names, metavar=metavar, help=help_text, rich_help_panel=panel, show_default=False
    )


@dataclass(frozen=True)
class JobFlags:
    cron: Annotated[
        str | None,
        _option(WHEN, "--cron", metavar="EXPR", help_text="At the times of a cron expression."),
    ] = None
    every: Annotated[
        str | None,
        _option(WHEN, "--every", metavar="DURATION", help_text="Each 90, 30s, 5m, 1h30m or 1d."),
    ] = None
    at: Annotated[
        str | None,
        _option(WHEN, "--at", metavar="TIME", help_text=f"Once: {moments.FORMS}."),
    ] = None
    tz: Annotated[
        str | None,
        _option(WHEN, "--tz", metavar="ZONE", help_text="Of --cron and --at: Europe/Berlin."),
    ] = None
    http: Annotated[
        str | None,
        _option(WHAT, "--http", metavar="URL", help_text="Calls this address."),
    ] = None
    method: Annotated[
        str | None,
        _option(WHAT, "--method", metavar="METHOD", help_text="Of --http; POST by default."),
    ] = None
    header: Annotated[
        list[str] | None,
        _option(WHAT, "--header", metavar="'NAME: VALUE'", help_text="Of --http; repeatable."),
    ] = None
    script: Annotated[
        Path | None,
        _option(WHAT, "--script", metavar="FILE", help_text="Runs a file: .py, .js or .sh."),
    ] = None
    bash: Annotated[
        str | None,
        _option(WHAT, "--bash", metavar="CODE", help_text="Runs this in bash."),
    ] = None
    python: Annotated[
        str | None,
        _option(WHAT, "--python", metavar="CODE", help_text="Runs this in Python."),
    ] = None
    payload: Annotated[
        str | None,
        _option(WHAT, "--payload", metavar="JSON", help_text="What the task is given; or @FILE."),
    ] = None
    timeout: Annotated[
        str | None,
        _option(OTHER_FLAGS_PANEL, "--timeout", metavar="DURATION", help_text="Of one attempt."),
    ] = None
    retries: Annotated[
        int | None,
        _option(
            OTHER_FLAGS_PANEL, "--retries", metavar="N", help_text="After an attempt that failed."
        ),
    ] = None
    priority: Annotated[
        str | None,
        _option(
            OTHER_FLAGS_PANEL, "--priority", metavar="HIGH|NORMAL|LOW", help_text="Who goes first."
        ),
    ] = None
    notify: Annotated[
        list[str] | None,
        _option(
            OTHER_FLAGS_PANEL,
            "--notify",
            metavar="STATUS,…=URL",
            help_text="A signed webhook for runs that end so, such as FAILED; repeatable.",
        ),
    ] = None
    output: Annotated[
        str | None,
        _option(
            OTHER_FLAGS_PANEL,
            "--output",
            metavar="keep|discard",
            help_text="Whether to store what runs print or return; keep by default.",
        ),
    ] = None
    tag: Annotated[
        list[str] | None,
        _option(OTHER_FLAGS_PANEL, "--tag", metavar="KEY=VALUE", help_text="Repeatable."),
    ] = None
    assign: Annotated[
        list[str] | None,
        _option(
            OTHER_FLAGS_PANEL,
            "--set",
            metavar="FIELD=VALUE",
            help_text="Any field of a job, such as retry.backoff_seconds=10; repeatable.",
        ),
    ] = None

    def over(self, given: dict[str, Any], now: datetime) -> dict[str, Any]:
        """Return the given fields, overridden by the options."""
        found = {**given, **self._when(now), **self._rest()}
        task = self._task()
        if task is not None:
            found["task"] = task
        if self.tag:
            found["tags"] = {**(found.get("tags") or {}), **text_fields.tags(self.tag)}
        return text_fields.assigned(found, self.assign or ())

    @property
    def reaches_inside(self) -> bool:
        """Return True if an option changes a part of a field and the rest of the field stays."""
        return bool(self.tag) or any("." in text.partition("=")[0] for text in self.assign or ())

    def touched(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return the present values of the fields that options change in part."""
        names = {text.partition("=")[0].partition(".")[0].strip() for text in self.assign or ()}
        names |= {"tags"} if self.tag else set()
        return {name: job[name] for name in names if isinstance(job.get(name), dict)}

    def _when(self, now: datetime) -> dict[str, Any]:
        said = [name for name in ("cron", "every", "at") if getattr(self, name) is not None]
        if len(said) > 1:
            raise Trouble(f"--{said[0]} and --{said[1]} do not go together.")
        if self.cron is not None:
            zone = {} if self.tz is None else {"timezone": self.tz}
            return {"schedule_type": "CRON", "cron_expression": self.cron, **zone}
        if self.every is not None:
            seconds = _seconds("--every", self.every)
            return {"schedule_type": "INTERVAL", "interval_seconds": seconds}
        if self.at is not None:
            at = moment_of("--at", self.at, now, self.tz)
            return {"schedule_type": "FUTURE", "schedule_time": moments.wire(at)}
        return {} if self.tz is None else {"timezone": self.tz}

    def _task(self) -> dict[str, Any] | None:
        said = [n for n in ("http", "script", "bash", "python") if getattr(self, n) is not None]
        if len(said) > 1:
            raise Trouble(f"--{said[0]} and --{said[1]} do not go together.")
        if self.http is not None:
            return self._http()
        if self.method is not None or self.header:
            raise Trouble("--method and --header belong to --http.")
        if self.script is not None:
            return _script(self.script)
        for runtime in ("bash", "python"):
            code = getattr(self, runtime)
            if code is not None:
                return {"type": "script", "runtime": runtime, "code": code}
        return None

    def _http(self) -> dict[str, Any]:
        task: dict[str, Any] = {"type": "http", "url": self.http}
        if self.method is not None:
            task["method"] = self.method.upper()
        if self.header:
            task["headers"] = dict(_header(text) for text in self.header)
        return task

    def _rest(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.payload is not None:
            found["payload"] = text_fields.payload(self.payload)
        if self.timeout is not None:
            found["timeout_seconds"] = _seconds("--timeout", self.timeout)
        if self.retries is not None:
            found["max_retries"] = self.retries
        if self.priority is not None:
            found["priority"] = self.priority.upper()
        if self.output is not None:
            found["output"] = self.output.lower()
        if self.notify:
            found["notify"] = text_fields.webhooks(self.notify)
        return found


def _seconds(option: str, text: str) -> int:
    return int(read(option, lambda: moments.duration(text)) / timedelta(seconds=1))


def moment_of(option: str, text: str, now: datetime, zone: str | None = None) -> datetime:
    """Return the time that an option's text means."""
    info = zone_of(zone)
    return read(option, lambda: moments.moment(text, now, info))


def zone_of(name: str | None) -> tzinfo | None:
    """Return a zone by its IANA name. None stands for the zone of this machine."""
    from punctual.domain.schedules import timezones

    return None if name is None else read("--tz", lambda: timezones.zone(name))


def read(option: str, action: Callable[[], T]) -> T:
    try:
        return action()
    except OverflowError as error:
        raise Trouble(f"{option}: that is further away than there is time.") from error
    except ValueError as error:
        raise Trouble(f"{option}: {error}.") from error


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise Trouble(f"--header {text!r}: write 'Name: value'.")
    return name.strip(), value.strip()


def _script(file: Path) -> dict[str, Any]:
    runtime = RUNTIMES.get(file.suffix)
    if runtime is None:
        raise Trouble(
            f"--script {file}: its ending does not say what runs it: {', '.join(RUNTIMES)}.",
            advice="Say it with --set task.type=script --set task.runtime=… --set task.code=….",
        )
    try:
        return {"type": "script", "runtime": runtime, "code": file.read_text()}
    except UnicodeDecodeError as error:
        raise Trouble(f"{file} is no text in UTF-8.") from error
