"""Is everything all right? A verdict, one sentence and its facts, from what was read."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from typing import NamedTuple

from punctual.domain.utc import SECOND

FULL_LIMIT_SHARE = 0.8  # a limit that is used above this share is worth a word
# Without a word from the planner, or from all executors that hold runs, nothing is known.
MAX_SILENCE = timedelta(seconds=60)
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class Verdict(IntEnum):
    """How things stand. The worst of all facts holds."""

    OK = 0
    WARN = 1
    BAD = 2
    BLIND = 3  # nothing is known, because planner or executors are silent


class LateRuns(NamedTuple):
    """The jobs with a run that is due, and waits for more than the rules of its job."""

    jobs: int = 0
    has_more: bool = False
    oldest_due_at: datetime | None = None


class OpenFailures(NamedTuple):
    unacknowledged: int = 0
    acknowledged: int = 0
    unacknowledged_since: datetime | None = None
    acknowledged_since: datetime | None = None
    has_more: bool = False  # not all were read


class OverduePauses(NamedTuple):
    """The jobs that are paused past the time at which they resume."""

    jobs: int = 0
    since: datetime | None = None
    has_more: bool = False  # not all jobs were read


class LimitUse(NamedTuple):
    name: str
    used: float
    allowed: float

    @property
    def is_nearly_full(self) -> bool:
        return self.allowed > 0 and self.used > FULL_LIMIT_SHARE * self.allowed


class Situation(NamedTuple):
    """What was read of one tenant at one time."""

    now: datetime
    active_jobs: int
    all_jobs: int
    late: LateRuns = LateRuns()
    failures: OpenFailures = OpenFailures()
    pauses: OverduePauses = OverduePauses()
    limits: Sequence[LimitUse] = ()
    is_planner_silent: bool = False
    planner_at: datetime | None = None  # its last word
    executors_at: datetime | None = None  # the last word of those that hold runs
    next_start_at: datetime | None = None


class Fact(NamedTuple):
    code: str
    text: str
    number: int
    verdict: Verdict = Verdict.OK
    since: datetime | None = None


class Overview(NamedTuple):
    verdict: Verdict
    sentence: str
    since: datetime | None  # the earliest cause of the verdict, as far as it is known
    facts: Sequence[Fact]


def overview(situation: Situation) -> Overview:
    """Return the worst verdict that holds, and the sentences of all facts.

    >>> noon = datetime.fromisoformat("2026-03-02T12:00:00Z")
    >>> overview(Situation(noon, 412, 500, next_start_at=noon + 40 * SECOND)).sentence
    '412 jobs, all on time. Next start in 40 s.'
    """
    facts = list(_facts(situation))
    verdict = max(fact.verdict for fact in facts)
    causes = [fact.since for fact in facts if fact.verdict is verdict and fact.since is not None]
    since = None if verdict is Verdict.OK else min(causes, default=None)
    return Overview(verdict, " ".join(fact.text for fact in facts), since, facts)


def _facts(situation: Situation) -> Iterator[Fact]:
    yield from _silence(situation)
    yield Fact("JOBS", _jobs_text(situation), situation.active_jobs)
    yield from _late_runs(situation)
    yield from _failures(situation.failures)
    yield from _pauses(situation.pauses)
    for limit in situation.limits:
        if limit.is_nearly_full:
            percent = f"{100 * limit.used / limit.allowed:.0f} %"
            text = f"The limit {limit.name} is used to {percent}."
            yield Fact("LIMIT_NEARLY_USED", text, int(limit.used), Verdict.WARN)
    yield from _next_start(situation)


def _silence(situation: Situation) -> Iterator[Fact]:
    now = situation.now
    if situation.is_planner_silent:
        text = "No word from the planner"
        yield _silent("NO_WORD_FROM_PLANNER", text, situation.planner_at, now)
    executors_at = situation.executors_at
    if executors_at is not None and now - executors_at > MAX_SILENCE:
        yield _silent("NO_WORD_FROM_EXECUTORS", "No word from the executors", executors_at, now)


def _silent(code: str, text: str, last_at: datetime | None, now: datetime) -> Fact:
    time_text = "." if last_at is None else f" for {distance_text(now - last_at)}."
    return Fact(code, text + time_text, 1, Verdict.BLIND, last_at)


def _jobs_text(situation: Situation) -> str:
    jobs = situation.active_jobs
    if not jobs:
        return "No active jobs." if situation.all_jobs else "No jobs yet."
    late = situation.late
    on_time = not (late.jobs or late.has_more or situation.is_planner_silent)
    end = "" if not on_time else ", on time" if jobs == 1 else ", all on time"
    return f"{counted(jobs, 'job')}{end}."


def _late_runs(situation: Situation) -> Iterator[Fact]:
    late = situation.late
    if not late.jobs:
        return
    number = f"over {late.jobs:,} jobs" if late.has_more else counted(late.jobs, "job")
    text = f"Runs of {number} are due and have not started"
    if late.oldest_due_at is not None:
        text += f", the oldest for {distance_text(situation.now - late.oldest_due_at)}"
    yield Fact("LATE_RUNS", f"{text}.", late.jobs, Verdict.BAD, late.oldest_due_at)


def _failures(failures: OpenFailures) -> Iterator[Fact]:
    unacknowledged, acknowledged = failures.unacknowledged, failures.acknowledged
    if unacknowledged:
        verb = "is" if unacknowledged == 1 else "are"
        text = f"{counted(unacknowledged, 'failure')} {verb} not acknowledged."
        yield Fact("FAILURES", text, unacknowledged, Verdict.BAD, failures.unacknowledged_since)
    if acknowledged:
        text = f"{counted(acknowledged, 'known failure')}."
        yield Fact("KNOWN_FAILURES", text, acknowledged, Verdict.WARN, failures.acknowledged_since)
    if failures.has_more:
        yield Fact("FAILURES", "There are more failures than were counted.", 0, Verdict.BAD)


def _pauses(pauses: OverduePauses) -> Iterator[Fact]:
    if pauses.jobs:
        verb = "is" if pauses.jobs == 1 and not pauses.has_more else "are"
        number = f"Over {pauses.jobs:,} jobs" if pauses.has_more else counted(pauses.jobs, "job")
        text = f"{number} {verb} paused past the time to resume."
        yield Fact("PAUSED_PAST_UNTIL", text, pauses.jobs, Verdict.WARN, pauses.since)


def _next_start(situation: Situation) -> Iterator[Fact]:
    at = situation.next_start_at
    if at is not None:
        distance = at - situation.now
        when = "now" if distance < SECOND else f"in {distance_text(distance)}"
        yield Fact("NEXT_START", f"Next start {when}.", 1)
    elif situation.active_jobs:
        yield Fact("NEXT_START", "No start is planned.", 0)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "job"), counted(2_000, "job")
    ('1 job', '2,000 jobs')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def distance_text(distance: timedelta) -> str:
    """Return a distance in its largest unit.

    >>> distance_text(timedelta(seconds=40)), distance_text(timedelta(hours=30))
    ('40 s', '1 d')
    """
    seconds = int(distance.total_seconds())
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return "0 s"
