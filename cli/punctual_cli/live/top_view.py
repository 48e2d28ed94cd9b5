"""What `punctual top` shows: the runs of now, the last failures, and the numbers above them."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from punctual_cli.input import moments
from punctual_cli.output.screen import STATUS_STYLES
from punctual_cli.output.terminal_text import escape_controls

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from punctual.client import Change, Run, Stats
    from punctual.client.fields import RunStatusName

MAX_LISTED_RUNS = 1_000  # live runs of a list
MAX_FAILED_RUNS = 50  # that are kept, newest first
LISTED_FAILURE_STATUSES: tuple["RunStatusName", ...] = ("FAILED", "TIMED_OUT")
LISTED_LIVE_STATUSES: tuple["RunStatusName", ...] = ("RUNNING", "CLAIMED", "QUEUED")
_FIXED_LINES = 9  # title, numbers, two headings with their space, and the last line
_MIN_ROWS = 3


class Counts(NamedTuple):
    running: int
    queued: int


class TopState:
    """The live and the failed runs, as the lists and then the changes told."""

    def __init__(self) -> None:
        self._live: dict[str, Run] = {}
        self._failed: dict[str, Run] = {}
        self.stats: Stats | None = None

    def reset(self, live: "Iterable[Run]", failed: "Iterable[Run]") -> None:
        self._live = {run.run_id: run for run in live}
        self._failed = {run.run_id: run for run in failed}

    def apply(self, change: "Change") -> None:
        run, run_id = change.run, change.run_id
        if change.kind != "run" or run_id is None:
            return
        if run is not None and run.status in LISTED_LIVE_STATUSES:
            self._live[run_id] = run
            return
        self._live.pop(run_id, None)
        if run is not None and run.status in LISTED_FAILURE_STATUSES:
            self._failed[run_id] = run
            if len(self._failed) > MAX_FAILED_RUNS:
                kept = sorted(self._failed.values(), key=_end_of, reverse=True)[:MAX_FAILED_RUNS]
                self._failed = {run.run_id: run for run in kept}

    def live_runs(self, now: datetime) -> "list[Run]":
        """Return the runs of now: those that run longest first, then the queue by its age.

        A run that is queued ahead of its time waits for nothing yet.
        """
        due = [
            run
            for run in self._live.values()
            if run.status != "QUEUED" or run.due_time is None or run.due_time <= now
        ]
        return sorted(due, key=lambda run: (run.status == "QUEUED", _begin_of(run, now)))

    def failed_runs(self) -> "list[Run]":
        return sorted(self._failed.values(), key=_end_of, reverse=True)


def count_runs(runs: "Iterable[Run]") -> Counts:
    statuses = [run.status for run in runs]
    queued = statuses.count("QUEUED")
    return Counts(len(statuses) - queued, queued)


def draw(state: TopState, server: str, now: datetime, height: int, hint: str = "") -> "Group":
    """Return the view, which fits into so many lines. `hint` is its last line."""
    from rich.console import Group
    from rich.text import Text

    live, failed = state.live_runs(now), state.failed_runs()
    rows = max(2 * _MIN_ROWS, height - _FIXED_LINES)
    failed_rows = min(len(failed), max(_MIN_ROWS, rows - max(_MIN_ROWS, len(live)), rows // 3))
    live_rows = max(_MIN_ROWS, rows - max(1, failed_rows))
    local = now.astimezone()
    title = Text.assemble(
        ("punctual top", "bold"), (f"  {escape_controls(server)}  {local:%H:%M:%S}", "dim")
    )
    return Group(
        title,
        _numbers(count_runs(live), state.stats),
        Text(),
        _live_table(live, live_rows, now),
        Text(),
        _failed_table(failed, failed_rows, now),
        Text(f"\n{hint}" if hint else "", style="dim"),
    )


def _numbers(counts: Counts, stats: "Stats | None") -> "Text":
    from rich.text import Text

    parts: list[tuple[str, str] | str] = [
        (f"{counts.running:,}", "bold cyan" if counts.running else "bold"),
        " running   ",
        (f"{counts.queued:,}", "bold yellow" if counts.queued else "bold"),
        " queued",
    ]
    queue, lateness = stats and stats.queue, stats and stats.lateness_ms
    if queue and counts.queued and (queue.oldest_seconds or 0) >= 1:
        parts += [(f" (oldest {queue.oldest_seconds:.0f} s)", "dim")]
    if lateness and lateness.p50 is not None and lateness.p99 is not None:
        parts += ["   lateness ", (_milliseconds(lateness.p50), "bold"), (" p50  ", "dim")]
        parts += [(_milliseconds(lateness.p99), "bold"), (" p99", "dim")]
    if stats is not None and stats.last_hour:
        minutes: Mapping[str, int] = {
            "succeeded": sum(minute.succeeded for minute in stats.last_hour),
            "failed": sum(minute.failed for minute in stats.last_hour),
        }
        parts += ["   last hour ", (f"{minutes['succeeded']:,}", "bold green"), " succeeded  "]
        parts += [(f"{minutes['failed']:,}", "bold red" if minutes["failed"] else "bold")]
        parts += [" failed"]
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _live_table(runs: "list[Run]", max_rows: int, now: datetime) -> "Table":
    table = _table(("ELAPSED", "right"), ("STATUS", "left"), ("JOB", "left"), ("NOTE", "left"))
    if not runs:
        table.add_row("", _dim("idle"), _dim("nothing runs now"), "")
    shown = runs if len(runs) <= max_rows else runs[: max_rows - 1]
    for run in shown:
        table.add_row(
            moments.format_duration(max(now - _begin_of(run, now), now - now)),
            _status(run.status),
            _job(run),
            _note(run),
        )
    if len(shown) < len(runs):
        table.add_row("", _dim("…"), _dim(f"and {len(runs) - len(shown):,} more"), "")
    return table


def _failed_table(runs: "list[Run]", max_rows: int, now: datetime) -> "Table":
    table = _table(("FAILED", "right"), ("STATUS", "left"), ("JOB", "left"), ("ERROR", "left"))
    if not runs:
        table.add_row("", _dim("none"), _dim("no run has failed of late"), "")
    for run in runs[:max_rows]:
        error = (run.error_message or "").partition("\n")[0]
        table.add_row(
            moments.format_relative(_end_of(run), now),
            _status(run.status),
            _job(run),
            _dim(escape_controls(error)),
        )
    return table


def _table(*columns: tuple[str, str]) -> "Table":
    from rich.table import Table

    table = Table(box=None, expand=True, padding=(0, 2, 0, 0), header_style="bold")
    widths, ratios = (14, 10, None, None), (None, None, 2, 3)
    for (title, justify), width, ratio in zip(columns, widths, ratios, strict=True):
        table.add_column(
            title,
            justify="right" if justify == "right" else "left",
            width=width,
            ratio=ratio,
            no_wrap=True,
            overflow="ellipsis",
        )
    return table


def _job(run: "Run") -> "Text":
    from rich.text import Text

    return Text(escape_controls(run.job_name or run.job_id))


def _status(word: str) -> "Text":
    from rich.text import Text

    return Text(escape_controls(word), style=STATUS_STYLES.get(word, ""))


def _dim(text: str) -> "Text":
    from rich.text import Text

    return Text(text, style="dim")


def _note(run: "Run") -> "Text":
    attempt = run.attempt_number or 1
    notes = [f"attempt {attempt}"] if attempt > 1 else []
    if run.trigger != "SCHEDULE":
        notes.append(run.trigger.lower().replace("_", " "))
    return _dim(", ".join(notes))


def _milliseconds(value: float) -> str:
    return f"{value / 1_000:,.1f} s" if value >= 1_000 else f"{value:,.0f} ms"


def _begin_of(run: "Run", now: datetime) -> datetime:
    return (run.start_time if run.status != "QUEUED" else run.due_time) or run.created_at or now


def _end_of(run: "Run") -> datetime:
    at = run.end_time or run.modified_time or run.created_at
    assert at is not None
    return at
