"""Random stories. A seed draws a job, its client calls and the course of its runs."""

import random
from collections.abc import Callable
from typing import Any

from punctual.domain.job_state import MisfirePolicy
from punctual.domain.run import RunStatus
from punctual.engine.commands.jobs import Jobs
from punctual.engine.execution.executor import Assignment
from tests.support.simulation.processes import Action, AttemptPlan, ReturnPlan
from tests.support.simulation.scenario import (
    SKEWS,
    TENANT,
    Scenario,
    at,
    backfill,
    change,
    document,
    job_id,
    on_job,
    run_now,
    run_with,
    submit,
    text,
)
from tests.support.simulation.world import Setup

LARGE = "x" * 9_000  # more than a row holds
HOOKS = [{"on": ["FAILED", "MISSED", "SUCCESS"], "url": "https://a.example"}]
LIMIT = 7_200  # seconds, for a run each minute, and all runs of an outage in sequence
END = 240  # seconds after the start; paused jobs are resumed by then


def random_story(seed: int) -> Scenario:
    chance = random.Random(f"a story {seed}")
    actions = [_action(chance, number) for number in range(chance.choice((0, 1, 2, 3, 5, 8)))]
    others = [action for action in actions if chance.random() < 0.3]
    fields = _document(chance)
    return Scenario(
        f"story {seed}",
        [
            Action(1, "submit", submit("k", fields)),
            *(action for action in actions if action not in others),
            Action(END, "the last resume", on_job("resume")),
        ],
        attempt_plan=_attempt_plan(seed, chance),
        setup=_setup(chance),
        others=others,
        limit=LIMIT,
    )


def _setup(chance: random.Random) -> Setup:
    begin = chance.uniform(0, 150)
    outage = (begin, begin + chance.uniform(30, 250)) if chance.random() < 0.25 else None
    return Setup(skews=SKEWS, no_ticks=outage)


def _document(chance: random.Random) -> dict[str, Any]:
    fields = {**document(), **_schedule(chance), **_limits(chance)}
    if chance.random() < 0.15:
        fields |= {"delivery": "AT_MOST_ONCE", "max_retries": 0}
    else:
        fields["max_retries"] = chance.choice((0, 1, 2, 3))
        jitter, seconds = chance.random() < 0.5, chance.choice((1, 4, 9))
        fields["retry"] = {"backoff_seconds": seconds, "multiplier": 2, "jitter": jitter}
    if chance.random() < 0.3:
        fields["deadline_seconds"] = chance.choice((3, 15, 40))
    if chance.random() < 0.4:
        fields["payload"] = chance.choice(({"n": 1}, LARGE))
    if chance.random() < 0.2:
        fields["notify"] = HOOKS
    return fields


def _schedule(chance: random.Random) -> dict[str, Any]:
    kind = chance.choice(("INTERVAL", "INTERVAL", "INTERVAL", "COMPLETED", "CRON", "CRON", "ONCE"))
    if kind == "ONCE":
        seconds = chance.choice((None, 20, chance.uniform(2, 150)))
        if seconds is None:
            return {"schedule_type": "IMMEDIATE"}
        return {"schedule_type": "FUTURE", "in_seconds": seconds}
    end = at(chance.choice((60, 140, 200, chance.uniform(40, 200))))
    fields: dict[str, Any] = {"end_time": text(end)}
    if chance.random() < 0.3:
        fields["start_time"] = text(at(chance.choice((20, 40, 80))))
    if kind == "CRON":
        expression = chance.choice(("* * * * *", "*/20 * * * * *", "10-50/10 * * * * *"))
        return {"schedule_type": "CRON", "cron_expression": expression, **fields}
    seconds = chance.choice((5, 10, 20, chance.randint(3, 60)))
    fields |= {"schedule_type": "INTERVAL", "interval_seconds": seconds}
    if kind == "COMPLETED":
        fields["interval_from"] = "COMPLETED"
    return fields


def _limits(chance: random.Random) -> dict[str, Any]:
    return {
        "max_concurrency": chance.choice((1, 1, 1, 2, 3)),
        "overlap_policy": chance.choice(("QUEUE", "QUEUE", "SKIP", "REPLACE")),
        "max_waiting": chance.choice((1, 2, 100)),
        "misfire_policy": chance.choice(("RUN_ONCE", "RUN_ALL", "SKIP")),
        "misfire_grace_seconds": chance.choice((1, 5, 20, 60)),
        "max_runs": chance.choice((None, None, None, 1, 2, 4)),
        "jitter_seconds": chance.choice((0, 0, 0, 8, 40)),
    }


def _change(chance: random.Random) -> dict[str, Any]:
    kind = chance.random()
    if kind < 0.3:
        fields: dict[str, Any] = {"interval_from": None, "start_time": None, **_schedule(chance)}
        return fields
    if kind < 0.8:
        limits = _limits(chance)
        names = chance.sample(sorted(limits), chance.randint(1, 3))
        return {name: limits[name] for name in names}
    return {
        "payload": chance.choice((None, 7, LARGE)),
        "deadline_seconds": chance.choice((None, 9)),
    }


def _action(chance: random.Random, number: int) -> Action:
    calls: list[Callable[[], Any]] = [
        lambda: on_job("pause"),
        lambda: on_job("pause", None, None, at(40 + 20 * number), "a move"),
        lambda: on_job("resume", chance.choice((None, None, *MisfirePolicy))),
        lambda: on_job("resume"),
        lambda: change(**_change(chance)),
        lambda: change(**_change(chance)),
        lambda: change(**_change(chance)),
        lambda: run_now(chance.choice(("one key", f"key {number}"))),
        lambda: run_with(chance.choice((None, number, LARGE))),
        lambda: _on_some_run("cancel_run", chance.random()),
        lambda: _on_some_run("cancel_run", chance.random()),
        lambda: _on_some_run("retry", chance.random()),
        lambda: backfill(at(-80), at(chance.choice((-40, 0)))),
    ]
    if chance.random() < 0.05:
        calls = [lambda: on_job("cancel")]
    seconds_after_start = chance.choice((chance.uniform(2, 200), chance.randint(0, 10) * 20 + 0.5))
    return Action(max(2.0, seconds_after_start), f"action {number}", chance.choice(calls)())


def _on_some_run(method: str, share: float) -> Any:
    """Return a call on a random run that the client has seen, if any."""

    def call(jobs: Jobs, answers: dict[str, Any]) -> Any:
        key = job_id(answers)
        runs = answers["runs"](key)
        if not runs:
            return None
        return getattr(jobs, method)(TENANT, key, runs[int(share * len(runs))])

    return call


def _attempt_plan(seed: int, chance: random.Random) -> Callable[[Assignment], AttemptPlan]:
    longest = chance.choice((2, 20, 90))
    ends = chance.choice(("well", "well", "mixed"))

    def attempt_plan(assignment: Assignment) -> AttemptPlan:
        run = assignment.run
        chance_of_attempt = random.Random(f"{seed} {run.scheduled_at} {run.trigger} {run.attempt}")
        seconds = 0.3 * (longest / 0.3) ** chance_of_attempt.random()
        if ends == "well" or chance_of_attempt.random() < 0.5:
            return AttemptPlan(seconds)
        status = chance_of_attempt.choice((RunStatus.FAILED, RunStatus.TIMED_OUT))
        back = ReturnPlan(
            chance_of_attempt.random() < 0.4 or run.return_count > 3,
            waits=chance_of_attempt.random() < 0.4,
        )
        return chance_of_attempt.choice(
            (
                AttemptPlan(seconds, status),
                AttemptPlan(seconds, crashes=True),
                AttemptPlan(seconds, back=back),
            )
        )

    return attempt_plan
