"""Jobs that fire each second during updates."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from math import ceil

from tests.rehearsal.progress import Failed
from tests.support.acceptance.contract import EVERY_SECOND, Api, Json, eventually, instant, soon
from tests.support.acceptance.target import Target

SETTLE_SECONDS = 300.0  # seconds, because runs in a wait queue add up on a busy machine
MAX_CONCURRENCY = 4  # runs overlap on a busy machine, and none must wait long
LANES = {"quick": {"timeout_seconds": 60}, "long": {"timeout_seconds": 600}}
"""The timeout selects the lane."""


@dataclass(frozen=True)
class Ledger:
    """The outcomes of a job's occurrences, one each second."""

    job: str
    occurrences: int
    outcomes: Mapping[str, int]
    latest_ms: int

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {status}" for status, count in sorted(self.outcomes.items()))
        return (
            f"{self.job}: {self.occurrences} occurrences, each with one outcome ({outcomes}); "
            f"the latest pick-up was {self.latest_ms / 1000:.1f} s late"
        )


class Recurring:
    """Jobs of every kind that an update could affect: events, quick calls and long calls."""

    def __init__(self, api: Api, target: Target) -> None:
        self._api = api
        jobs: dict[str, Json] = {
            "event": {"type": "event"},
            **{lane: {**target.hold(0.2)} for lane in LANES},
        }
        self._jobs = {
            name: api.create(
                **EVERY_SECOND,
                name=name,
                task=task,
                max_concurrency=MAX_CONCURRENCY,
                max_waiting=1000,
                **LANES.get(name, {}),
            )["job_id"]
            for name, task in jobs.items()
        }

    def running(self) -> None:
        """Wait until each job has run."""
        for job_id in self._jobs.values():
            eventually(partial(self._api.runs, job_id, status="SUCCESS"), SETTLE_SECONDS)

    def end(self) -> list[Ledger]:
        """End all jobs, and return their outcomes. Each occurrence before the end must have one."""
        for job_id in self._jobs.values():
            answer = self._api("PATCH", f"/jobs/{job_id}", {"end_time": soon(5)})
            if answer.status_code != 200:
                raise Failed(f"a job could not be ended: {answer.text}")
        return [self._ledger(name, job_id) for name, job_id in self._jobs.items()]

    def _ledger(self, name: str, job_id: str) -> Ledger:
        job = eventually(partial(self._over, job_id), SETTLE_SECONDS)
        runs = self._api.runs(job_id, trigger="SCHEDULE")
        times = [instant(run["scheduled_time"]) for run in runs]
        # The end may have been in the past when it was set. Runs fired by then remain.
        until = max(instant(job["end_time"]), max(times) + timedelta(seconds=1))
        expected = ceil((until - min(times)).total_seconds())
        outcomes = Counter[str]()
        for run in runs:
            outcomes[run["status"]] += run["count"]
        if len(set(times)) != len(times) or outcomes.total() != expected:
            raise Failed(
                f"{name}: {expected} occurrences from {min(times)} on, but outcomes of "
                f"{outcomes.total()}: {dict(outcomes)}"
            )
        wrong = set(outcomes) - {"SUCCESS", "SKIPPED", "MISSED"}
        if wrong:
            raise Failed(f"{name}: runs that ended {', '.join(sorted(wrong))}: {dict(outcomes)}")
        late = max(run["lateness_ms"] or 0 for run in runs)
        return Ledger(name, expected, outcomes, late)

    def _over(self, job_id: str) -> Json:
        job = self._api.get(f"/jobs/{job_id}")
        return job if job["status"] == "COMPLETED" else None
