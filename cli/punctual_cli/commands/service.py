"""The commands punctual status, stats and health."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from punctual_cli.errors import ExitCode
from punctual_cli.output import answers
from punctual_cli.output.columns import Column
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Health, Overview, Stats

_BARS = " ▁▂▃▄▅▆▇█"
BAD_VERDICTS = ("BAD", "BLIND")
VERDICT_STYLES = {"OK": "green", "WARN": "yellow", "BAD": "red", "BLIND": "red"}
# What shows more about a fact that needs a look.
NEXT_COMMANDS = {
    "NO_WORD_FROM_PLANNER": "punctual health",
    "NO_WORD_FROM_EXECUTORS": "punctual stats",
    "LATE_RUNS": "punctual jobs list --health late",
    "FAILURES": "punctual failures",
    "KNOWN_FAILURES": "punctual failures",
    "PAUSED_PAST_UNTIL": "punctual jobs list --status paused",
    "LIMIT_NEARLY_USED": "punctual stats",
}
STATUS_WORDS = {"SUCCESS": "succeeded", "TIMED_OUT": "timed out"}


def status(session: Session) -> None:
    """Show whether everything is all right.

    Exit code 1 if the verdict is BAD or BLIND.
    """
    answer = session.client.overview()
    answers.write_item(session, answer, lambda shown: _print_overview(session, shown))
    if answer.verdict in BAD_VERDICTS:
        raise typer.Exit(ExitCode.FAILED)


def _print_overview(session: Session, answer: "Overview") -> None:
    """Print the verdict with its sentence, its begin, and the commands that show more.

    Unless all is well, each fact has a line of its own.
    """
    text = answer.sentence
    if answer.verdict != "OK" and answer.facts:
        text = "\n".join(fact.text for fact in answer.facts)
    codes = [fact.code for fact in answer.facts]
    commands = dict.fromkeys(NEXT_COMMANDS[code] for code in codes if code in NEXT_COMMANDS)
    session.screen.print_pairs(
        [
            (answer.verdict, text),
            ("Since", session.screen.long_time(answer.since)),
            ("Look at", "\n".join(commands)),
        ],
        VERDICT_STYLES.get(answer.verdict, ""),
    )


def stats(session: Session) -> None:
    """Show the numbers of jobs and runs, and the lateness of runs."""
    answers.write_item(
        session, session.client.stats(), lambda answer: _print_stats(session, answer)
    )


def _print_stats(session: Session, answer: "Stats") -> None:
    screen = session.screen
    lateness, queue = answer.lateness_ms, answer.queue
    started_per_minute = [minute.started for minute in answer.last_hour]
    rows: list[tuple[str, Any]] = [
        ("Jobs", _counts_text(answer.jobs)),
        ("Runs", _counts_text(answer.runs)),
        ("Last hour", _last_hour_text(answer)),
        ("Per minute", sparkline(started_per_minute) if any(started_per_minute) else None),
    ]
    if lateness is not None and lateness.p50 is not None:
        rows.append(
            (
                "Lateness",
                f"{_milliseconds_text(lateness.p50)} p50, "
                f"{_milliseconds_text(lateness.p99)} p99, {_milliseconds_text(lateness.max)} max",
            )
        )
    if queue is not None:
        oldest_text = "" if not queue.depth else f", the oldest for {queue.oldest_seconds:g} s"
        rows.append(("Queue", f"{queue.depth or 0:,} waiting{oldest_text}"))
    rows += [
        ("Limit", f"{limit.limit}: {limit.used or 0:,} of {limit.allowed or 0:,} in use")
        for limit in answer.limits
    ]
    screen.print_pairs(rows)
    if answer.executors:
        screen.print_line()
        columns = (
            Column("EXECUTOR", min_width=16),
            Column("RUNNING", align_right=True),
            Column("LAST SEEN"),
        )
        screen.print_table(
            columns,
            [
                (
                    executor.executor_id,
                    executor.running,
                    screen.relative_time(executor.last_heartbeat),
                )
                for executor in answer.executors
            ],
        )


def _counts_text(counts: Mapping[str, int]) -> str:
    """Return the counts that are not zero, with each status as a word.

    >>> _counts_text({"SUCCESS": 2, "TIMED_OUT": 1, "FAILED": 0})
    '2 succeeded, 1 timed out'
    """
    words = ((STATUS_WORDS.get(name, name.lower()), count) for name, count in counts.items())
    return ", ".join(f"{count:,} {word}" for word, count in words if count) or "none"


def _last_hour_text(answer: "Stats") -> str:
    minutes = answer.last_hour
    started = sum(minute.started for minute in minutes)
    succeeded = sum(minute.succeeded for minute in minutes)
    failed = sum(minute.failed for minute in minutes)
    return f"{started:,} started, {succeeded:,} succeeded, {failed:,} failed"


def _milliseconds_text(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"


def sparkline(numbers: list[int]) -> str:
    """Return a bar chart of the numbers in one line of text.

    >>> sparkline([0, 1, 4, 8])
    ' ▁▄█'
    """
    max_number = max(numbers, default=0) or 1
    steps = len(_BARS) - 1
    return "".join(
        _BARS[0 if number <= 0 else max(1, number * steps // max_number)] for number in numbers
    )


def health(session: Session) -> None:
    """Show the health of the installation.

    Exit code 1 if it is not ok. The command needs no token.
    """
    answer = session.client.health()
    answers.write_item(session, answer, lambda shown_health: _print_health(session, shown_health))
    if not answer.ok:
        raise typer.Exit(ExitCode.FAILED)


def _margin_text(seconds_by_type: Mapping[str, float]) -> str | None:
    """Return the usual margin, and those of the task types that have another one.

    >>> _margin_text({"event": 2, "http": 2, "container": 120})
    '2 s; container 120 s'
    """
    if not seconds_by_type:
        return None
    usual = min(seconds_by_type.values())
    others = [
        f"{task_type} {seconds:g} s"
        for task_type, seconds in seconds_by_type.items()
        if seconds != usual
    ]
    return "; ".join([f"{usual:g} s", *others])


def _print_health(session: Session, answer: "Health") -> None:
    screen = session.screen
    lateness_ms = answer.lateness_ms_p99
    screen.print_pairs(
        [
            ("Status", screen.status(answer.status)),
            ("Server", session.target.url),
            ("Version", answer.version),
            ("Lateness", None if lateness_ms is None else f"{_milliseconds_text(lateness_ms)} p99"),
            ("Planner seen", screen.long_time(answer.planner_heartbeat)),
            ("Guarantee", answer.guarantee),
            ("Margin", _margin_text(answer.margin_seconds)),
            ("Tasks", ", ".join(answer.task_types)),
            ("Sandbox", answer.sandbox),
            ("Issuer", answer.auth and answer.auth.issuer),
            ("Time zones", answer.tzdata and f"tzdata {answer.tzdata}"),
            *(("Warning", health_warning.text) for health_warning in answer.warnings),
        ]
    )
