"""Stores that go away at every call of every write: 503, nothing half done, and once more is one.

Each trial has a job of its own; AWS is there before it and after it.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

import pytest

from punctual.aws.dynamodb.keys import STATUS_ATTR
from punctual.aws.dynamodb.timers.rows import parse_row
from punctual.engine.ports.rows import JobKey
from punctual.web.contract import API_CALLS, WRITE_FUNCTION
from tests.support.aws.api_faults import KINDS, LOST, Away, is_refused
from tests.support.deployed.api import ADMIN, Answer, Api, an_api

Json = Any
DAILY = {"schedule_type": "CRON", "cron_expression": "0 0 * * *"}
HOURLY = {"schedule_type": "INTERVAL", "interval_seconds": 3600}
LARGE = {"text": "x" * 20_000}


class Trial:
    """A tenant of its own, with one job."""

    def __init__(self, api: Api, number: int) -> None:
        self.api = api
        self.tenant = f"tenant-{number}"
        self.caller = {"lambda": {**ADMIN["lambda"], "tenant": self.tenant}}
        self.name = "trial"
        self.sent: set[str] = set()

    def ask(self, method: str, path: str, body: Json = None) -> Answer:
        key = {"Idempotency-Key": "once"} if method == "POST" else {}
        return self.api(method, path, body, headers=key, authorizer=self.caller)

    def asked(self, method: str, path: str, body: Json = None) -> Answer:
        """Of what goes well, and without a key."""
        answer = self.api(method, path, body, authorizer=self.caller)
        assert answer.status < 300, answer.body
        return answer

    def a_job(self, **fields: Json) -> str:
        job = {"name": self.name, **DAILY, **fields}
        return str(self.asked("POST", "/jobs", job).json["job_id"])

    def a_run(self, job_id: str) -> str:
        return str(self.asked("POST", f"/jobs/{job_id}/runNow", {"payload": LARGE}).json["run_id"])

    def jobs(self) -> list[Json]:
        """Each that there is, whatever a list would say."""
        rows = self.api.store.rows("jobs")
        mine = [
            row
            for row in rows
            if STATUS_ATTR in row and row["pk"]["S"].startswith(self.tenant + "#")
        ]
        return [self.asked("GET", f"/jobs/{row['sk']['S']}").json for row in mine]

    def runs(self, job_id: str, query: str = "") -> list[Json]:
        return list(self.asked("GET", f"/jobs/{job_id}/runs?limit=200{query}").json["runs"])

    def is_whole(self, job_id: str) -> None:
        """Head, definition, and where anything is to come a timer, or the run's message."""
        key = JobKey(self.tenant, job_id)
        head = self.api.store.ports.job_states.load([key])[key].state
        ref = (key, head.current_rules.definition_ref)
        assert ref in self.api.store.ports.job_states.load_definitions([ref])
        standing = [one for row in self.api.store.rows("timers") for one in parse_row(row).timers]
        mine = any(timer.key == key for timer in standing)
        if not mine and (head.timer_at is not None or head.runs or head.wait_queue):
            self.sent |= {message.run_id for message in self.api.store.delivered()}
            assert head.timer_at is None, "its time will come, and nobody looks"
            assert {run.run_id for run in head.runs} <= self.sent, "queued, and nobody was told"


class Scene(NamedTuple):
    """A call, what must hold whether it was answered or not, and what when it has been."""

    rule: str
    prepare: Callable[[Trial], tuple[str, str, Json]]
    done: Callable[[Trial, Json], None]


def submit(**fields: Json) -> Callable[[Trial], tuple[str, str, Json]]:
    return lambda trial: ("POST", "/jobs", {"name": trial.name, **DAILY, **fields})


def one_job(trial: Trial, answer: Json) -> None:
    (job,) = trial.jobs()
    assert answer["job_id"] == job["job_id"]
    trial.is_whole(job["job_id"])


def one_job_that_runs(trial: Trial, answer: Json) -> None:
    one_job(trial, answer)
    assert len(trial.runs(answer["job_id"])) == 1


def a_batch(trial: Trial) -> tuple[str, str, Json]:
    jobs = [
        {"name": trial.name, **DAILY},
        {"name": trial.name, "schedule_type": "NEVER"},
        {"name": trial.name, "schedule_type": "IMMEDIATE"},
        {"name": trial.name, **DAILY, "payload": LARGE},
    ]
    return "POST", "/jobs/batch", {"jobs": jobs}


def three_of_four(trial: Trial, answer: Json) -> None:
    assert [one["status"] for one in answer["results"]] == [202, 422, 202, 202]
    made = {one["job_id"] for one in answer["results"] if one["status"] == 202}
    assert made == {job["job_id"] for job in trial.jobs()}
    for job_id in made:
        trial.is_whole(job_id)


def on_a_job(method: str, path: str, body: Json = None) -> Callable[[Trial], tuple[str, str, Json]]:
    return lambda trial: (method, f"/jobs/{trial.a_job()}{path}", body)


def on_a_paused_job(trial: Trial) -> tuple[str, str, Json]:
    job_id = trial.a_job()
    trial.asked("POST", f"/jobs/{job_id}/pause")
    return "POST", f"/jobs/{job_id}/resume", {"missed": "SKIP"}


def shows(**fields: Json) -> Callable[[Trial, Json], None]:
    def check(trial: Trial, answer: Json) -> None:
        (job,) = trial.jobs()
        assert {name: job[name] for name in fields} == fields
        assert {name: answer[name] for name in fields} == fields
        trial.is_whole(job["job_id"])

    return check


def one_run_now(trial: Trial, answer: Json) -> None:
    (run,) = trial.runs(answer["job_id"], "&trigger=RUN_NOW")
    assert answer["run_id"] == run["run_id"]
    path = f"/jobs/{answer['job_id']}/runs/{run['run_id']}"
    assert trial.asked("GET", path).json["payload"] == LARGE
    trial.is_whole(answer["job_id"])


def a_backfill(trial: Trial) -> tuple[str, str, Json]:
    job_id = trial.a_job(**HOURLY, cron_expression=None, start_time="2026-03-01T00:00:00Z")
    reach = {"from": "2026-03-01T00:00:00Z", "to": "2026-03-01T05:00:00Z"}
    return "POST", f"/jobs/{job_id}/backfill", reach


def five_runs(trial: Trial, _answer: Json) -> None:
    (job,) = trial.jobs()
    runs = trial.runs(job["job_id"], "&trigger=BACKFILL")
    assert len({run["scheduled_time"] for run in runs}) == len(runs) == 5
    trial.is_whole(job["job_id"])


def on_a_run(trial: Trial) -> tuple[str, str, Json]:
    job_id = trial.a_job()
    return "POST", f"/jobs/{job_id}/runs/{trial.a_run(job_id)}/cancel", None


def cancelled(trial: Trial, answer: Json) -> None:
    (run,) = trial.runs(trial.jobs()[0]["job_id"])
    assert run["status"] == "CANCELLED"
    assert answer.get("status") in ("CANCELLED", 409)  # a second time it has ended


def on_an_ended_run(trial: Trial) -> tuple[str, str, Json]:
    job_id = trial.a_job()
    run_id = trial.a_run(job_id)
    trial.asked("POST", f"/jobs/{job_id}/runs/{run_id}/cancel")
    return "POST", f"/jobs/{job_id}/runs/{run_id}/retry", None


def one_retry(trial: Trial, answer: Json) -> None:
    (run,) = trial.runs(answer["job_id"], "&trigger=RETRY")
    assert answer["run_id"] == run["run_id"]
    path = f"/jobs/{answer['job_id']}/runs/{run['run_id']}"
    assert trial.asked("GET", path).json["payload"] == LARGE


JOB, RUN = "/jobs/{job_id}", "/jobs/{job_id}/runs/{run_id}"
SCENES: dict[str, Scene] = {
    "a job to come": Scene("POST /jobs", submit(), one_job),
    "a job of now": Scene(
        "POST /jobs", submit(schedule_type="IMMEDIATE", cron_expression=None), one_job_that_runs
    ),
    "a large payload": Scene("POST /jobs", submit(payload=LARGE), one_job),
    "a batch": Scene("POST /jobs/batch", a_batch, three_of_four),
    "PATCH": Scene(f"PATCH {JOB}", on_a_job("PATCH", "", {"payload": LARGE}), shows(payload=LARGE)),
    "PUT": Scene(f"PUT {JOB}", on_a_job("PUT", "", {"priority": "LOW"}), shows(priority="LOW")),
    "DELETE": Scene(f"DELETE {JOB}", on_a_job("DELETE", ""), shows(status="CANCELLED")),
    "pause": Scene(f"POST {JOB}/pause", on_a_job("POST", "/pause"), shows(status="PAUSED")),
    "resume": Scene(f"POST {JOB}/resume", on_a_paused_job, shows(status="SCHEDULED")),
    "runNow": Scene(
        f"POST {JOB}/runNow", on_a_job("POST", "/runNow", {"payload": LARGE}), one_run_now
    ),
    "backfill": Scene(f"POST {JOB}/backfill", a_backfill, five_runs),
    "cancel": Scene(f"POST {RUN}/cancel", on_a_run, cancelled),
    "retry": Scene(f"POST {RUN}/retry", on_an_ended_run, one_retry),
}


@pytest.fixture
def api() -> Iterator[Api]:
    with an_api() as made:
        yield made


@pytest.fixture
def away(api: Api) -> Away:
    return Away(api.store)


_NUMBERS = count(1)


def test_every_call_that_writes_has_its_scene() -> None:
    missing = {
        f"{call.method} {call.path}" for call in API_CALLS if call.function == WRITE_FUNCTION
    }
    missing -= {scene.rule for scene in SCENES.values()}
    # Tokens have tests of their own; the read of the webhook secret writes one line of the audit.
    assert missing <= {"POST /tokens", "DELETE /tokens/{token_id}", "GET /webhook-secret"}


@pytest.mark.parametrize("once", [True, False], ids=["one call", "from there on"])
@pytest.mark.parametrize("name", sorted(SCENES))
def test_a_write_is_whole_or_not_there_wherever_the_stores_go_away(
    api: Api, away: Away, name: str, once: bool
) -> None:
    """The kinds of fault take turns; that of one call only, which is tried again, at each fifth."""
    scene = SCENES[name]
    refused = 0
    for first in count(len(name) % 5, 5) if once else count():
        trial = Trial(api, next(_NUMBERS))
        method, path, body = scene.prepare(trial)
        kind = KINDS[(first + len(name)) % len(KINDS)]
        with away.at(kind, first, once):
            answer = trial.ask(method, path, body)
        hit = away.hit
        if is_refused(answer):
            refused += 1
            for job in trial.jobs():
                trial.is_whole(job["job_id"])
        else:
            assert answer.status in (200, 202, 207), (kind, first, answer.body)
            scene.done(trial, answer.json)
        again = trial.ask(method, path, body)
        assert again.status in (200, 202, 207, 409), again.body
        scene.done(trial, again.json)
        if not hit:
            break
    assert first > 1
    assert once or refused > first // 2, "without its stores a call can hardly be answered"


def test_a_batch_some_of_which_is_known_to_stand_is_refused_whole_and_repeated_by_its_key(
    api: Api, away: Away
) -> None:
    """Nobody can tell what became of the rest: the same key finds it, or makes it."""
    trial = Trial(api, next(_NUMBERS))
    method, path, body = a_batch(trial)
    for first in range(2, 12):
        with away.at(LOST, first):
            answer = trial.ask(method, path, body)
        assert answer.status == 207 or is_refused(answer)
    again = trial.ask(method, path, body)
    three_of_four(trial, again.json)
