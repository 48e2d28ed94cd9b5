"""The commands punctual stats and punctual health."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from punctual_cli.errors import Code
from punctual_cli.output import answers
from punctual_cli.output.columns import Column
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Health, Stats

_BARS = " ▁▂▃▄▅▆▇█"


def stats(session: Session) -> None:
    """How many jobs and runs there are, and how late they start."""
    answers.one(session, session.client.stats(), lambda found: _stats(session, found))


def _stats(session: Session, found: "Stats") -> None:
    screen = session.screen
    late, queue = found.lateness_ms, found.queue
    started = [minute.started for minute in found.last_hour]
    rows: list[tuple[str, Any]] = [
        ("Jobs", _counted(found.jobs)),
        ("Runs", _counted(found.runs)),
        ("Last hour", _hour(found)),
        ("Per minute", sparks(started) if any(started) else None),
    ]
    if late is not None and late.p50 is not None:
        rows.append(("Late by", f"{_ms(late.p50)} p50, {_ms(late.p99)} p99, {_ms(late.max)} most"))
    if queue is not None:
        waits = "" if not queue.depth else f", the oldest for {queue.oldest_seconds:g} s"
        rows.append(("Queue", f"{queue.depth or 0:,} waiting{waits}"))
    screen.pairs(rows)
    if found.executors:
        screen.line()
        columns = Column("EXECUTOR", least=16), Column("RUNNING", right=True), Column("LAST SEEN")
        screen.table(
            columns,
            [(e.executor_id, e.running, screen.ago(e.last_heartbeat)) for e in found.executors],
        )


def _counted(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {word.lower()}" for word, n in numbers.items() if n) or "none"


def _hour(found: "Stats") -> str:
    minutes = found.last_hour
    started, failed = sum(m.started for m in minutes), sum(m.failed for m in minutes)
    return (
        f"{started:,} started, {sum(m.succeeded for m in minutes):,} succeeded, {failed:,} failed"
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"


def sparks(numbers: list[int]) -> str:
    """Return a bar chart of the numbers in one line of text.

    >>> sparks([0, 1, 4, 8])
    ' ▁▄█'
    """
    most = max(numbers, default=0) or 1
    steps = len(_BARS) - 1
    return "".join(_BARS[0 if n <= 0 else max(1, n * steps // most)] for n in numbers)


def health(session: Session) -> None:
    """Whether the installation is well.

    Exit code 1 if it is late or down. It needs no token.
    """
    found = session.client.health()
    answers.one(session, found, lambda one: _health(session, one))
    if not found.ok:
        raise typer.Exit(Code.FAILED)


def _health(session: Session, found: "Health") -> None:
    screen = session.screen
    late = found.lateness_ms_p99
    screen.pairs(
        [
            ("Status", screen.status(found.status)),
            ("Server", session.place.url),
            ("Version", found.version),
            ("Late by", None if late is None else f"{_ms(late)} p99"),
            ("Planner seen", screen.long(found.planner_heartbeat)),
            ("Guarantee", found.guarantee),
            ("Tasks", ", ".join(found.task_types)),
            ("Sandbox", found.sandbox),
            ("Issuer", found.auth and found.auth.issuer),
            ("Time zones", found.tzdata and f"tzdata {found.tzdata}"),
            *(("Warning", one.text) for one in found.warnings),
        ]
    )
