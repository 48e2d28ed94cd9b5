"""The example calls of the OpenAPI document, sent to a whole node with a stopped clock.

`python -m tests.support.openapi_scene` records the calls and answers for the document. A test
repeats the calls and compares the answers.
"""

import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

from punctual.auth.claim_tokens import ClaimTokens
from punctual.domain.identifiers import sortable_id
from punctual.domain.job_state import Lane
from punctual.domain.tenants.webhooks import format_secret
from punctual.engine.commands.failures import FailureCommands
from punctual.engine.commands.jobs import Submission
from punctual.engine.commands.secrets import Secrets
from punctual.engine.commands.tokens import Tokens
from punctual.node.files.process_groups import GroupFiles
from punctual.node.http.application import Application, build_application, node_services
from punctual.node.http.claims import node_claims
from punctual.node.node import Node
from punctual.node.sqlite.store import Store
from punctual.node.workers import Workers
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Attempt, Outcome, Recorder, StopRequest
from punctual.web.openapi.document import EXAMPLES_FILE
from tests.support.builders import ManualClock
from tests.support.claims.outside import claim_new_run
from tests.support.web_client import Answer, ApplicationClient

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
REPORT = {
    "name": "Daily report",
    "schedule_type": "CRON",
    "cron_expression": "30 2 * * *",
    "timezone": "Europe/Berlin",
    "task": {"type": "http", "url": "https://reports.example/run"},
    "payload": {"kind": "daily"},
    "tags": {"team": "data"},
}
HELLO = {
    "name": "Say hello",
    "schedule_type": "IMMEDIATE",
    "task": {"type": "script", "runtime": "bash", "code": "echo hello"},
}
BACK_UP: dict[str, Any] = {
    "name": "Back up",
    "schedule_type": "IMMEDIATE",
    "task": {"type": "script", "runtime": "bash", "code": "cp -r /data /backup"},
    "max_retries": 0,
}
NEW_YEAR = {
    "name": "New year",
    "schedule_type": "FUTURE",
    "schedule_time": "2027-01-01T00:00:00+01:00",
}
WRONG = {
    "name": "Two mistakes",
    "schedule_type": "CRON",
    "cron_expression": "0 25 * * *",
    "retry": {"multiplier": 0},
}


class PrintingTask:
    """A task that prints a fixed text, or fails if its code says so."""

    def run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder, /) -> Outcome:
        if attempt.task.get("code") == BACK_UP["task"]["code"]:
            return Outcome("FAILED", "cp: no space left on /backup", exit_code=1)
        recorder.log(b"hello\n")
        return Outcome("SUCCESS", output=b"hello\n", output_type="text/plain", exit_code=0)


class Scene(ApplicationClient):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.recorded: dict[str, dict[str, Any]] = {}
        self.clock = ManualClock(NOON)
        self._numbers = count(1)
        self._woken = threading.Event()
        self.store = Store.open(folder, self.clock, upload_key=b"the key of the examples alone")
        self.workers = {name.value: Workers(name.value, 1) for name in (Lane.QUICK, Lane.LONG)}
        self.node = Node(
            self.store,
            AttemptRunner({"http": PrintingTask(), "script": PrintingTask()}),
            GroupFiles(folder / "groups"),
            self.clock,
            self.clock.monotonic,
            self.new_id,
            self.log,
            self.workers,
            self._woken.set,
            executor_id="node-1",
            script_memory_mb=8_192,
        )
        self.tokens = Tokens(
            self.store.tokens,
            lambda: b"a key of the examples, for no token",
            self.clock,
            self.new_id,
            bytes,
            "local",
            self.store.audit,
        )
        self.claim_tokens = ClaimTokens(lambda: b"another key of the examples")
        self.node.start()
        self.node.step()

    @cached_property
    def application(self) -> Application:
        return build_application(
            node_services(
                self.node.jobs,
                self.node.search,
                self.tokens,
                clock=self.clock,
                webhook_secret=lambda *_: format_secret(b"the secret of the examples alone"),
                artifacts=self.node.artifacts,
                failures=FailureCommands(
                    self.store.failures, self.store.job_states, self.store.audit
                ),
                operations=self.node.operations,
                claims=node_claims(
                    self.store, self.node.executor, self.claim_tokens, self.clock, self.log
                ),
                secrets=Secrets(self.store.secrets, self.store.audit),
            ),
            self._perform,
            self.log,
            new_id=self.new_id,
        )

    def new_id(self) -> str:
        return sortable_id(self.clock.now, next(self._numbers).to_bytes(10, "big"))

    async def _perform(self, request: Callable[[], Any]) -> Any:
        (answer,) = self.node.perform([request])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def send(
        self,
        operation: str,
        name: str,
        target: str,
        body: Any = None,
        **headers: str,
    ) -> Any:
        """Send a call that the document shows, and return its answer."""
        method, _, path = target.partition(" ")
        sent = None if body is None else json.dumps(body).encode()
        answer = self.call(method, f"/v1{path}", sent, headers)
        example: dict[str, Any] = {"target": f"{method} /v1{path}", "status": answer.status}
        if headers:
            example["headers"] = {
                header.replace("_", "-"): text for header, text in headers.items()
            }
        if body is not None:
            example["body"] = body
        example["answer"] = _shown(answer)
        self.recorded.setdefault(operation, {})[name] = example
        return example["answer"]

    def upload(self, upload_url: str, content: bytes) -> None:
        """Store the content, as a PUT to the address of an upload does."""
        blobs = self.store.blobs
        ticket = blobs.read_upload_link(upload_url.rpartition("/")[2])
        assert ticket is not None
        file = blobs.open_upload(ticket)
        file.write(content)
        file.finish()
        file.close()

    def settle(self) -> None:
        """Step until no worker holds a run and all outcomes are stored."""
        for _ in range(100):
            self.node.step()
            if not len(self.node.running_tasks):
                return
            assert self._woken.wait(10), "a task did not end"
            self._woken.clear()
        raise AssertionError("there is no end to what runs")

    def later(self, **by: float) -> None:
        end = self.clock.now + timedelta(**by)
        for _ in range(1_000):
            at = self.node.next_step_steady()
            if at > self.clock.monotonic() + (end - self.clock.now).total_seconds():
                break
            self.clock.advance_to_steady(at)
            self.settle()
        self.clock.set(end)
        self.settle()

    def close(self) -> None:
        for workers in self.workers.values():
            workers.close(10)
        self.store.close()


def _shown(answer: Answer) -> Any:
    if answer.status == 204:
        return None
    return answer.json if answer.headers["content-type"].endswith("json") else answer.body.decode()


@contextmanager
def a_scene() -> Iterator[Scene]:
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(Path(folder))
        try:
            yield scene
        finally:
            scene.close()


def play() -> dict[str, dict[str, Any]]:
    """Return all examples by operation and name."""
    with a_scene() as scene:
        _jobs(scene)
        return scene.recorded


def _jobs(scene: Scene) -> None:
    send = scene.send
    cursor = send("listChanges", "the_cursor_of_now", "GET /changes")["next_cursor"]
    report = send("createJob", "a_report_each_night", "POST /jobs", REPORT)
    job = f"/jobs/{report['job_id']}"
    hello = send("createJob", "a_script_at_once", "POST /jobs", HELLO, idempotency_key="hello-1")
    send("createJob", "two_mistakes", "POST /jobs", WRONG)
    send("createJob", "a_name_that_is_taken", "POST /jobs", REPORT)
    send("createJobs", "one_right_one_wrong", "POST /jobs/batch", {"jobs": [NEW_YEAR, WRONG]})
    scene.later(seconds=1)
    send("listChanges", "since_the_cursor", f"GET /changes?after={cursor}&job_id={hello['job_id']}")
    send("listJobs", "of_a_team", "GET /jobs?tag=team:data&status=SCHEDULED&limit=10")
    send("getJob", "the_report", f"GET {job}")
    send("changeJob", "an_hour_later", f"PATCH {job}", {"cron_expression": "30 3 * * *"})
    put = {"priority": "HIGH", "max_retries": 5}
    send("replaceJob", "if_it_is_version_2", f"PUT {job}", put, if_match='"2"')
    send("replaceJob", "if_it_were_version_1", f"PUT {job}", put, if_match='"1"')
    send(
        "pauseJob",
        "the_report",
        f"POST {job}/pause",
        {"until": "2026-11-18T18:00:00Z", "note": "The warehouse moves."},
    )
    send("resumeJob", "without_what_was_missed", f"POST {job}/resume", {"missed": "SKIP"})
    send("getJobStatus", "the_report", f"GET {job}/status")
    at = "2026-11-19T02:30:00Z"
    send("explainJob", "tomorrow", f"GET {job}/explain?at={at}")
    send("listJobVersions", "the_last_one", f"GET {job}/versions?limit=1")
    _runs(scene, job, hello)
    _artifacts(scene)
    _failures(scene)
    _operations(scene)
    _rest(scene, report["job_id"])
    send("cancelJob", "the_report", f"DELETE {job}")
    send("runJobNow", "of_a_cancelled_job", f"POST {job}/runNow", {})
    send("listAudit", "of_the_report", f"GET /audit?job_id={report['job_id']}&limit=2")
    _claims(scene)


def _runs(scene: Scene, job: str, hello: Any) -> None:
    send = scene.send
    run = send("runJobNow", "of_another_payload", f"POST {job}/runNow", {"payload": {"kind": "x"}})
    run_path = f"{job}/runs/{run['run_id']}"
    scene.settle()
    send("getRun", "one_that_has_ended", f"GET {run_path}")
    send("cancelRun", "one_that_has_ended", f"POST {run_path}/cancel", {})
    send("retryRun", "once_more", f"POST {run_path}/retry", {}, idempotency_key="again-1")
    waiting = send("runJobNow", "as_it_is", f"POST {job}/runNow", {})
    send("cancelRun", "one_that_waits", f"POST {job}/runs/{waiting['run_id']}/cancel", {})
    scene.settle()
    done = f"/jobs/{hello['job_id']}/runs"
    (printed_run,) = scene.get(f"/v1{done}").json["runs"]
    send("listRunsOfJob", "those_that_succeeded", f"GET {done}?status=SUCCESS")
    send("getRunOutput", "what_it_printed", f"GET {done}/{printed_run['run_id']}/output")
    send("getRunLogs", "from_the_third_byte", f"GET {done}/{printed_run['run_id']}/logs?after=2")
    send("listRuns", "the_latest", "GET /runs?limit=1")
    week = {"from": "2026-11-11T00:00:00Z", "to": "2026-11-14T00:00:00Z"}
    send("backfillJob", "what_would_run", f"POST {job}/backfill", {**week, "dry_run": True})
    send("backfillJob", "three_days", f"POST {job}/backfill", week)
    scene.settle()


def _operations(scene: Scene) -> None:
    send = scene.send
    bulk = {
        "action": "pause",
        "filter": {"tag": ["team:data"]},
        "until": "2026-11-18T20:00:00Z",
        "note": "The warehouse moves.",
    }
    preview = {**bulk, "dry_run": True}
    send("beginOperation", "what_it_would_pause", "POST /jobs/bulk", preview)
    operation = send(
        "beginOperation", "pause_a_team", "POST /jobs/bulk", bulk, idempotency_key="bulk-1"
    )
    path = f"/operations/{operation['operation_id']}"
    scene.later(seconds=1)
    send("getOperation", "one_that_is_done", f"GET {path}")
    send("listOperations", "the_latest", "GET /operations?limit=1")
    send("cancelOperation", "one_that_has_ended", f"POST {path}/cancel")


def _artifacts(scene: Scene) -> None:
    send = scene.send
    content = b"print('hello')"
    fields = {"sha256": sha256(content).hexdigest(), "size": len(content), "name": "main.py"}
    created = send("createArtifact", "a_script", "POST /artifacts", fields)
    scene.upload(created["upload_url"], content)
    send("createArtifact", "content_that_is_stored", "POST /artifacts", fields)
    task = {"type": "script", "runtime": "python", "artifact_id": created["artifact_id"]}
    daily = {"name": "hello", "schedule_type": "CRON", "cron_expression": "0 9 * * *"}
    job = send("createJob", "of_an_artifact", "POST /jobs", {**daily, "task": task})
    send("listArtifacts", "all", "GET /artifacts")
    path = f"/artifacts/{created['artifact_id']}"
    send("getArtifact", "one_that_a_job_uses", f"GET {path}")
    send("deleteArtifact", "one_that_a_job_uses", f"DELETE {path}")
    assert scene.call("DELETE", f"/v1/jobs/{job['job_id']}").status == 200
    send("deleteArtifact", "one_that_no_job_uses", f"DELETE {path}")


def _failures(scene: Scene) -> None:
    send = scene.send
    send("createJob", "that_will_fail", "POST /jobs", BACK_UP)
    scene.settle()
    (failure,) = send("listFailures", "all", "GET /failures")["failures"]
    path = f"/failures/{failure['failure_id']}/acknowledge"
    send("getOverview", "a_failure", "GET /overview")
    send("acknowledgeFailure", "with_a_note", f"POST {path}", {"note": "A disk is on its way."})


def _claims(scene: Scene) -> None:
    send, jobs = scene.send, scene.node.jobs
    document = {"name": "Outside", "schedule_type": "IMMEDIATE"}
    claim = claim_new_run(
        scene.node,
        scene.claim_tokens,
        lambda: jobs.submit("local", "local", [Submission(document)]),
    )
    held = {"claim": claim, "runner_id": "r-4711", "log": "2 of 3 rows\n", "log_offset": 0}
    started = {**held, "started_at": "2026-11-18T12:00:01Z", "progress": {"percent": 66}}
    renewals = {"claims": [started, {"claim": "one-of-another-installation"}]}
    send("renewClaims", "one_held_and_one_lost", "POST /claims/renew", renewals)
    upload = {"claim": claim, "size": 1_000_000, "content_type": "text/csv"}
    send("uploadByClaim", "a_file", "POST /claims/upload", upload)
    end = {**held, "status": "SUCCESS", "output": {"rows": 3}, "log": "done\n", "log_offset": 12}
    send("finishClaims", "with_a_small_output", "POST /claims/finish", {"claims": [end]})
    send("uploadByClaim", "after_the_end", "POST /claims/upload", upload)


def _rest(scene: Scene, job_id: str) -> None:
    send = scene.send
    night = {
        "schedule_type": "CRON",
        "cron_expression": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "from": "2027-03-27T00:00:00Z",
        "count": 3,
    }
    send("previewSchedule", "over_a_clock_change", "POST /schedules/preview", night)
    berlin = {name: night[name] for name in ("schedule_type", "timezone", "cron_expression")}
    change = {"before": berlin, "after": {**berlin, "cron_expression": "30 3 * * *"}, "days": 2}
    send(
        "diffSchedules", "an_hour_later", "POST /schedules/diff", {**change, "from": night["from"]}
    )
    send("getForecast", "of_an_hour", "GET /forecast?hours=1")
    send("listUpcoming", "the_next", "GET /schedules/upcoming?limit=2")
    send("listUpcoming", "of_one_job", f"GET /schedules/upcoming?job_id={job_id}&limit=1")
    new_token = {"name": "deploy", "role": "operator", "expires_at": "2027-11-18T00:00:00Z"}
    token = send("createToken", "for_a_pipeline", "POST /tokens", new_token)
    token_path = f"/tokens/{token['token_id']}"
    send("listTokens", "all", "GET /tokens")
    send("getToken", "one", f"GET {token_path}")
    send("revokeToken", "one", f"DELETE {token_path}")
    send("getWebhookSecret", "of_the_tenant", "GET /webhook-secret")
    send("setSecret", "for_an_api", "PUT /secrets/bank", {"value": "the-token-of-the-bank"})
    send("setSecret", "in_double_braces", "PUT /secrets/bank", {"value": "{{other}}"})
    send("listSecrets", "all", "GET /secrets")
    send("deleteSecret", "one", "DELETE /secrets/bank")
    send("whoami", "on_a_node_without_tokens", "GET /whoami")
    send("getStats", "of_one_node", "GET /stats")
    send("getHealth", "of_one_node", "GET /health")
    send("getLiveness", "of_one_node", "GET /health/live")
    send("getReadiness", "of_one_node", "GET /health/ready")


def text() -> str:
    return json.dumps(play(), ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    EXAMPLES_FILE.write_text(text())
