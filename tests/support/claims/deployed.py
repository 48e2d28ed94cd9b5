"""An external executor of a deployment: it gets a claim from an executor, and calls the API."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import requests

from punctual.domain.claims import ClaimIdentity
from punctual.engine.changes.effects import message_of
from punctual.engine.ports.rows import JobKey
from tests.support.deployed.gateway import Answer, Gateway
from tests.support.deployed.interrupted_work import queue_fields, without_executors
from tests.support.deployed.observations import runs_of
from tests.support.deployed.scenes import submit_job
from tests.support.deployed.world import MINUTE, SECOND, World

TENANT = "default"
START_LEASE = timedelta(seconds=75)
AT_ONCE = {"schedule_type": "IMMEDIATE", "task": {"type": "event"}, "payload": None}


class OutsideExecutor:
    """Calls the API without a token."""

    def __init__(self, world: World, api: Gateway) -> None:
        self._world = world
        self.api = api
        self._gateway = Gateway(world, "")

    def start_run(self, **fields: Any) -> str:
        """Submit a job, and return the claim that an executor of the deployment hands out."""
        with without_executors(self._world):
            job = submit_job(self.api, **{**AT_ONCE, **fields})
            return self._hand_out(job)

    def _hand_out(self, job: str) -> str:
        world, name = self._world, self._world.name("executor-quick")
        runtime = world.runtime("executor-quick", world.deployed.functions[name].env)
        key = JobKey(TENANT, job)
        (stored,) = runtime.ports.job_states.load([key]).values()
        (run,) = stored.state.runs
        with world.meter.as_role(name):
            (claimed,) = runtime.executor.claim([message_of(key, run, stored.state)]).claimed
            run = claimed.run
            claim = (key, run.run_id, run.token)
            runtime.executor.renew([claim], is_first=True, lease=START_LEASE)
        # The test itself reads the key, because not each executor may.
        return runtime.claim_tokens.sign(ClaimIdentity(*key, run.run_id, run.attempt, run.token))

    def renew(self, *claims: Mapping[str, Any]) -> list[str]:
        return _statuses(self._gateway.post("/claims/renew", {"claims": claims}))

    def finish(self, *claims: Mapping[str, Any]) -> list[str]:
        return _statuses(self._gateway.post("/claims/finish", {"claims": claims}))

    def upload(self, claim: str, data: bytes, content_type: str) -> str:
        """Send an output to the address that the API returns, and return what names it."""
        link = self.upload_link(claim, len(data), content_type)
        assert self.put(link, data) == 200
        return str(link["output_upload"])

    def upload_link(self, claim: str, size: int, content_type: str) -> Any:
        body = {"claim": claim, "size": size, "content_type": content_type}
        answer = self._gateway.post("/claims/upload", body)
        assert answer.status == 200, answer
        return answer.json

    def put(self, link: Any, data: bytes) -> int:
        """Send an output to the address of an upload. Return the status of the answer."""
        headers = link["upload_headers"]
        return requests.put(link["upload_url"], data=data, headers=headers, timeout=5).status_code

    def release_and_claim_again(self, claim: str) -> str:
        """Return the run, and the claim of the same attempt that is handed out next."""
        with without_executors(self._world):
            assert self.finish({"claim": claim, "status": "RELEASED"}) == ["OK"]
            return self._hand_out(self._identity(claim).job_id)

    def shown_run(self, claim: str) -> Any:
        """Return the run of the claim, with all its fields."""
        _, job, run_id = self._identity(claim)[:3]
        return self.api.get(f"/jobs/{job}/runs/{run_id}").json

    def post(self, target: str, value: Any) -> Answer:
        return self._gateway.post(target, value)

    def run_of(self, claim: str) -> dict[str, Any]:
        """Return the only run of the claim's job, as the API shows it."""
        (run,) = runs_of(self.api, self._identity(claim).job_id)
        return dict(run)

    def output_of(self, claim: str) -> bytes:
        return self.api.output(*self._identity(claim)[1:3])

    def log_of(self, claim: str, after: int = 0) -> str:
        _, job, run_id = self._identity(claim)[:3]
        answer = self.api.get(f"/jobs/{job}/runs/{run_id}/logs?after={after}")
        assert answer.status == 200, answer
        return answer.body

    def _identity(self, claim: str) -> ClaimIdentity:
        world = self._world
        env = world.deployed.functions[world.name("claims")].env
        identity = world.runtime("claims", env).claim_tokens.read(claim)
        assert identity is not None
        return identity


def _statuses(answer: Answer) -> list[str]:
    assert answer.status == 200, answer
    return [result["status"] for result in answer.json["results"]]


def play_claims(world: World, api: Gateway) -> None:
    """Use every right of the claims function: renew, log, upload, finish and release."""
    outside = OutsideExecutor(world, api)
    claim = outside.start_run()
    started = {"claim": claim, "runner_id": "r", "started_at": "2026-03-02T12:00:00Z"}
    assert outside.renew({**started, "log": "one\n"}) == ["OK"]
    assert outside.log_of(claim) == "one\n"
    output_upload = outside.upload(claim, b"a,b\n", "text/csv")
    end = {"claim": claim, "runner_id": "r", "status": "SUCCESS", "output_upload": output_upload}
    assert outside.finish({**end, "log": "two\n", "log_offset": 4}) == ["OK"]
    world.run(5 * SECOND)
    assert outside.finish(end) == ["OK"], "the same end again"
    assert outside.run_of(claim)["status"] == "SUCCESS"
    discarding = outside.start_run(output="discard")
    output_upload = outside.upload(discarding, b"a,b\n", "text/csv")
    discarded = {"claim": discarding, "status": "SUCCESS", "output_upload": output_upload}
    assert outside.finish(discarded) == ["OK"]
    small = outside.start_run()
    assert outside.finish({"claim": small, "status": "SUCCESS", "output": {"rows": 1}}) == ["OK"]
    for fields in queue_fields(world):
        released = outside.start_run(**fields)
        assert outside.finish({"claim": released, "status": "RELEASED"}) == ["OK"]
    failed = outside.start_run(retry={"backoff_seconds": 1})
    assert outside.finish({"claim": failed, "status": "FAILED"}) == ["OK"]
    world.run(MINUTE)
    assert outside.finish({"claim": failed, "status": "FAILED"}) == ["OK"]
    assert outside.renew({"claim": failed}, {"claim": released}) == ["LOST", "LOST"]
    world.run(MINUTE)
