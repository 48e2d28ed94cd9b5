"""Possible savings, with their drawbacks."""

from collections.abc import Iterator, Sequence

from bench.cost.accounts import Line
from bench.cost.meter import Unit
from bench.cost.words import short_role

# Name, saving for a run in batches of ten, and method.
LEVERS = (
    (
        "waiting executors",
        (Unit.GB_SECOND, "executor-quick", "waiting"),
        "send messages at the due time, not a tenth of a second before it; runs are then late by "
        "the delay of the queue",
    ),
    (
        "waiting pollers",
        (Unit.GB_SECOND, "poller", "waiting"),
        "half of it comes from SQS, which delays by whole seconds, so a poller starts half a "
        "second too early on average; a poller that starts a second later is late half of the time",
    ),
    (
        "an event for each ended run",
        (Unit.EVENT, "status", "Run State Change"),
        "`runEvents: none`, if no rule uses the events",
    ),
    (
        "results of attempts, until their history rows are written",
        (Unit.WRITE, "executor-quick", "runs: results"),
        "tasks that return nothing, or jobs with `output: discard`",
    ),
    (
        "history rows, read for the lists over all jobs",
        (Unit.READ, "status", "runs: run"),
        "build the lists from the stream alone, without the results of runs",
    ),
    (
        "reads that check the history row of the last run",
        (Unit.READ, "poller", "runs: run"),
        "keep ended runs in the job state until there are several, and check all at once",
    ),
    (
        "the log line of a run",
        (Unit.LOG_BYTE, "executor-quick", "executor-quick"),
        "log level WARNING; the log class Infrequent Access halves the price",
    ),
)


def levers_section(lines: Sequence[Line], least_dollars: float) -> Iterator[str]:
    yield ""
    yield "## Possible savings"
    yield ""
    yield "| part of a run in batches of ten | $ a million | method |"
    yield "|---|---:|---|"
    for label, (unit, role, purpose), method in LEVERS:
        cost = sum(line.dollars for line in lines if _matches(line, unit, role, purpose))
        if cost >= least_dollars:
            yield f"| {label} | {cost:.2f} | {method} |"


def _matches(line: Line, unit: Unit, role: str, purpose: str) -> bool:
    return (line.unit, short_role(line.role)) == (unit, role) and line.purpose.endswith(purpose)
