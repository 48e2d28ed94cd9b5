"""Possible savings, with their drawbacks."""

from collections.abc import Iterator, Sequence

from bench.accounts import Line
from bench.meter import Unit
from bench.words import short_role

# Name, saving for a run in batches of ten, and method.
LEVERS = (
    (
        "executors that wait for the moment",
        (Unit.GB_SECOND, "executor-quick", "waiting"),
        "send at the moment, not a tenth of a second before it: a run is then late by what the "
        "queue takes",
    ),
    (
        "pollers that wait for the moment",
        (Unit.GB_SECOND, "poller", "waiting"),
        "half of it is SQS, which delays by whole seconds: who is called comes half a second too "
        "early in the middle. A poller called a second later is late half of the time",
    ),
    (
        "an event for each run that ended",
        (Unit.EVENT, "status", "Run State Change"),
        "`runEvents: none`, where nobody listens",
    ),
    (
        "what runs leave, until their history rows are written",
        (Unit.WRITE, "executor-quick", "runs: pack"),
        "tasks that return nothing, or jobs with `output: discard`",
    ),
    (
        "the line of history, read for the lists over all jobs",
        (Unit.READ, "status", "runs: run"),
        "build the lists from the stream alone, without what a run left behind",
    ),
    (
        "whether the last run's history is written",
        (Unit.READ, "poller", "runs: run"),
        "leave ended runs in the head until there are several, and ask for all at once",
    ),
    (
        "the log line of a run",
        (Unit.LOG_BYTE, "executor-quick", "executor-quick"),
        "log level WARNING; the Infrequent Access class halves it",
    ),
)


def levers_section(lines: Sequence[Line], least_dollars: float) -> Iterator[str]:
    yield ""
    yield "## What would lower it"
    yield ""
    yield "| of a run in batches of ten | $ a million | how |"
    yield "|---|---:|---|"
    for label, (unit, role, purpose), method in LEVERS:
        cost = sum(line.dollars for line in lines if _matches(line, unit, role, purpose))
        if cost >= least_dollars:
            yield f"| {label} | {cost:.2f} | {method} |"


def _matches(line: Line, unit: Unit, role: str, purpose: str) -> bool:
    return (line.unit, short_role(line.role)) == (unit, role) and line.purpose.endswith(purpose)
