"""Writes while a store fails at one of their calls.

A write is complete or answers 503 and leaves nothing partial. A repeat completes it once. Each
trial has its own tenant, and the stores answer before and after it.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

import pytest

from punctual.aws.dynamodb.client import key_of
from punctual.aws.dynamodb.keys import STATUS_ATTR, parse_state_key
from punctual.aws.dynamodb.timers.rows import parse_row
from punctual.engine.ports.rows import JobKey
from punctual.web.contract import API_CALLS, WRITE_FUNCTION
from tests.support.aws.api_faults import KINDS, LOST, Away, is_refused
from tests.support.deployed.drivers.api import ADMIN, Answer, Api, an_api

Json = Any
DAILY = {"schedule_type": "CRON", "cron_expression": "0 0 * * *"}
HOURLY = {"schedule_type": "INTERVAL", "interval_seconds": 3600}
LARGE = {"text": "x" * 20_000}


class Trial:
    """One trial, with its own tenant."""

    def __init__(self, api: Api, number: int) -> None:
        self.api = api
        self.tenant = f"tenant-{number}"
        self.caller = {"lambda": {**ADMIN["lambda"], "tenant": self.tenant}}
        self.name = "trial"
        self.sent: set[str] = set()

    def call_with_key(self, method: str, path: str, body: Json = None) -> Answer:
        key = {"Idempotency-Key": "once"} if method == "POST" else {}
        return self.api(method, path, body, headers=key, authorizer=self.caller)

    def call_ok(self, method: str, path: str, body: Json = None) -> Answer:
        """Return the answer of a call that succeeds. It has no idempotency key."""
        answer = self.api(method, path, body, authorizer=self.caller)
        assert answer.status < 300, answer.body
        return answer

    def a_job(self, **fields: Json) -> str:
        job = {"name": self.name, **DAILY, **fields}
        return str(self.call_ok("POST", "/jobs", job).json["job_id"])

    def a_run(self, job_id: str) -> str:
        return str(
            self.call_ok("POST", f"/jobs/{job_id}/runNow", {"payload": LARGE}).json["run_id"]
        )

    def jobs(self) -> list[Json]:
        """Return every stored job, found by its row and not by a list."""
        rows = self.api.store.rows("jobs")
        job_ids = [
            parse_state_key(key_of(row))[1]
            for row in rows
            if STATUS_ATTR in row and row["pk"]["S"].startswith(self.tenant + "#")
        ]
        return [self.call_ok("GET", f"/jobs/{job_id}").json for job_id in job_ids]

    def runs(self, job_id: str, query: str = "") -> list[Json]:
        return list(self.call_ok("GET", f"/jobs/{job_id}/runs?limit=200{query}").json["runs"])

    def assert_complete(self, job_id: str) -> None:
        """Check that the job has its state, its definition, and its timer or the run's message."""
        key = JobKey(self.tenant, job_id)
        state = self.api.store.ports.job_states.load([key])[key].state
        ref = (key, state.current_rules.definition_ref)
        assert ref in self.api.store.ports.job_states.load_definitions([ref])
        timers = [timer for row in self.api.store.rows("timers") for timer in parse_row(row).timers]
        has_timer = any(timer.key == key for timer in timers)
        if not has_timer and (state.timer_at is not None or state.runs or state.wait_queue):
            self.sent |= {message.run_id for message in self.api.store.delivered()}
            assert state.timer_at is None, "the next time of the job has no timer"
            assert {run.run_id for run in state.runs} <= self.sent, (
                "a queued run has neither a timer nor a message"
            )


class Scene(NamedTuple):
    """A call, how its trial is prepared, and the check after an answer."""

    rule: str
    prepare: Callable[[Trial], tuple[str, str, Json]]
    done: Callable[[Trial, Json], None]


def submit(**fields: Json) -> Callable[[Trial], tuple[str, str, Json]]:
    return lambda trial: ("POST", "/jobs", {"name": trial.name, **DAILY, **fields})


def has_one_job(trial: Trial, answer: Json) -> None:
    (job,) = trial.jobs()
    assert answer["job_id"] == job["job_id"]
    trial.assert_complete(job["job_id"])


def has_one_job_with_a_run(trial: Trial, answer: Json) -> None:
    has_one_job(trial, answer)
    assert len(trial.runs(answer["job_id"])) == 1


def a_batch(trial: Trial) -> tuple[str, str, Json]:
    jobs = [
        {"name": trial.name, **DAILY},
        {"name": trial.name, "schedule_type": "NEVER"},
        {"name": trial.name, "schedule_type": "IMMEDIATE"},
        {"name": f"large {trial.name}", **DAILY, "payload": LARGE},
    ]
    return "POST", "/jobs/batch", {"jobs": jobs}


def has_three_of_four_jobs(trial: Trial, answer: Json) -> None:
    results = answer["results"]
    assert [result["status"] for result in results] == [202, 422, 202, 202]
    accepted = {result["job_id"] for result in results if result["status"] == 202}
    assert accepted == {job["job_id"] for job in trial.jobs()}
    for job_id in accepted:
        trial.assert_complete(job_id)


def on_a_job(method: str, path: str, body: Json = None) -> Callable[[Trial], tuple[str, str, Json]]:
    return lambda trial: (method, f"/jobs/{trial.a_job()}{path}", body)


def on_a_paused_job(trial: Trial) -> tuple[str, str, Json]:
    job_id = trial.a_job()
    trial.call_ok("POST", f"/jobs/{job_id}/pause")
    return "POST", f"/jobs/{job_id}/resume", {"missed": "SKIP"}


def has_one_job_with(**fields: Json) -> Callable[[Trial, Json], None]:
    def check(trial: Trial, answer: Json) -> None:
        (job,) = trial.jobs()
        assert {name: job[name] for name in fields} == fields
        assert {name: answer[name] for name in fields} == fields
        trial.assert_complete(job["job_id"])

    return check


def has_one_requested_run(trial: Trial, answer: Json) -> None:
    (run,) = trial.runs(answer["job_id"], "&trigger=RUN_NOW")
    assert answer["run_id"] == run["run_id"]
    path = f"/jobs/{answer['job_id']}/runs/{run['run_id']}"
    assert trial.call_ok("GET", path).json["payload"] == LARGE
    trial.assert_complete(answer["job_id"])


def a_backfill(trial: Trial) -> tuple[str, str, Json]:
    job_id = trial.a_job(**HOURLY, cron_expression=None, start_time="2026-03-01T00:00:00Z")
    interval = {"from": "2026-03-01T00:00:00Z", "to": "2026-03-01T05:00:00Z"}
    return "POST", f"/jobs/{job_id}/backfill", interval


def has_five_backfilled_runs(trial: Trial, _answer: Json) -> None:
    (job,) = trial.jobs()
    runs = trial.runs(job["job_id"], "&trigger=BACKFILL")
    assert len({run["scheduled_time"] for run in runs}) == len(runs) == 5
    trial.assert_complete(job["job_id"])


def on_a_run(trial: Trial) -> tuple[str, str, Json]:
    job_id = trial.a_job()
    return "POST", f"/jobs/{job_id}/runs/{trial.a_run(job_id)}/cancel", None


def has_a_cancelled_run(trial: Trial, answer: Json) -> None:
    (run,) = trial.runs(trial.jobs()[0]["job_id"])
    assert run["status"] == "CANCELLED"
    assert answer.get("status") in ("CANCELLED", 409)  # a repeated call finds it ended


def on_an_ended_run(trial: Trial) -> tuple[str, str, Json]:
    job_id = trial.a_job()
    run_id = trial.a_run(job_id)
    trial.call_ok("POST", f"/jobs/{job_id}/runs/{run_id}/cancel")
    return "POST", f"/jobs/{job_id}/runs/{run_id}/retry", None


def has_one_retry(trial: Trial, answer: Json) -> None:
    (run,) = trial.runs(answer["job_id"], "&trigger=RETRY")
    assert answer["run_id"] == run["run_id"]
    path = f"/jobs/{answer['job_id']}/runs/{run['run_id']}"
    assert trial.call_ok("GET", path).json["payload"] == LARGE


JOB, RUN = "/jobs/{job_id}", "/jobs/{job_id}/runs/{run_id}"
SCENES: dict[str, Scene] = {
    "a future job": Scene("POST /jobs", submit(), has_one_job),
    "an immediate job": Scene(
        "POST /jobs",
        submit(schedule_type="IMMEDIATE", cron_expression=None),
        has_one_job_with_a_run,
    ),
    "a large payload": Scene("POST /jobs", submit(payload=LARGE), has_one_job),
    "a batch": Scene("POST /jobs/batch", a_batch, has_three_of_four_jobs),
    "PATCH": Scene(
        f"PATCH {JOB}", on_a_job("PATCH", "", {"payload": LARGE}), has_one_job_with(payload=LARGE)
    ),
    "PUT": Scene(
        f"PUT {JOB}", on_a_job("PUT", "", {"priority": "LOW"}), has_one_job_with(priority="LOW")
    ),
    "rename": Scene(
        f"PATCH {JOB}", on_a_job("PATCH", "", {"name": "new"}), has_one_job_with(name="new")
    ),
    "DELETE": Scene(f"DELETE {JOB}", on_a_job("DELETE", ""), has_one_job_with(status="CANCELLED")),
    "pause": Scene(
        f"POST {JOB}/pause", on_a_job("POST", "/pause"), has_one_job_with(status="PAUSED")
    ),
    "resume": Scene(f"POST {JOB}/resume", on_a_paused_job, has_one_job_with(status="SCHEDULED")),
    "runNow": Scene(
        f"POST {JOB}/runNow", on_a_job("POST", "/runNow", {"payload": LARGE}), has_one_requested_run
    ),
    "backfill": Scene(f"POST {JOB}/backfill", a_backfill, has_five_backfilled_runs),
    "cancel": Scene(f"POST {RUN}/cancel", on_a_run, has_a_cancelled_run),
    "retry": Scene(f"POST {RUN}/retry", on_an_ended_run, has_one_retry),
}


@pytest.fixture
def api() -> Iterator[Api]:
    with an_api() as driver:
        yield driver


@pytest.fixture
def away(api: Api) -> Away:
    return Away(api.store)


TRIAL_NUMBERS = count(1)


def test_every_writing_call_has_a_scene() -> None:
    missing = {
        f"{call.method} {call.path}" for call in API_CALLS if call.function == WRITE_FUNCTION
    }
    missing -= {scene.rule for scene in SCENES.values()}
    # Tokens, artifacts, secrets and failures have tests of their own. The read of the webhook
    # secret writes one line of the audit.
    secrets = {"GET /secrets", "PUT /secrets/{name}", "DELETE /secrets/{name}"}
    tokens = {"POST /tokens", "DELETE /tokens/{token_id}"}
    artifacts = {"POST /artifacts", "DELETE /artifacts/{artifact_id}"}
    others = {"GET /webhook-secret", "POST /failures/{failure_id}/acknowledge"}
    # The functions on AWS offer no operations yet, and answer without a store.
    others |= {"POST /jobs/bulk", "POST /operations/{operation_id}/cancel"}
    assert missing <= tokens | secrets | artifacts | others


@pytest.mark.parametrize("once", [True, False], ids=["one call", "from there on"])
@pytest.mark.parametrize("name", sorted(SCENES))
def test_write_is_complete_or_absent_at_each_failed_store_call(
    api: Api, away: Away, name: str, once: bool
) -> None:
    """The kinds of fault take turns. A fault of one call only is placed at each fifth call."""
    scene = SCENES[name]
    refused = 0
    for first in count(len(name) % 5, 5) if once else count():
        trial = Trial(api, next(TRIAL_NUMBERS))
        method, path, body = scene.prepare(trial)
        kind = KINDS[(first + len(name)) % len(KINDS)]
        with away.at(kind, first, once):
            answer = trial.call_with_key(method, path, body)
        hit = away.hit
        if is_refused(answer):
            refused += 1
            for job in trial.jobs():
                trial.assert_complete(job["job_id"])
        else:
            assert answer.status in (200, 202, 207), (kind, first, answer.body)
            scene.done(trial, answer.json)
        repeated = trial.call_with_key(method, path, body)
        assert repeated.status in (200, 202, 207, 409), repeated.body
        scene.done(trial, repeated.json)
        if not hit:
            break
    assert first > 1
    assert once or refused > first // 2, "most calls need their stores"


def test_batch_with_lost_answers_is_completed_by_its_key(api: Api, away: Away) -> None:
    """The same key finds each job with a lost answer, or creates it."""
    trial = Trial(api, next(TRIAL_NUMBERS))
    method, path, body = a_batch(trial)
    for first in range(2, 12):
        with away.at(LOST, first):
            answer = trial.call_with_key(method, path, body)
        assert answer.status == 207 or is_refused(answer)
    repeated = trial.call_with_key(method, path, body)
    has_three_of_four_jobs(trial, repeated.json)
