"""A client of the API that checks every answer against the contract."""

import hashlib
import json
import os
import re
import ssl
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import httpx

from tests.support import openapi_answers

Json = Any
Seen = TypeVar("Seen")
Key = TypeVar("Key")

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
ENDED = {"SUCCESS", "FAILED", "TIMED_OUT", "CANCELLED", "SKIPPED", "MISSED"}
EVERY_SECOND = {"schedule_type": "CRON", "cron_expression": "* * * * * *"}
MAX_SCRIPT_SECONDS = 86_400
NEVER_SOON = {"schedule_type": "CRON", "cron_expression": "0 0 29 2 *"}


def iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def instant(text: str) -> datetime:
    assert TIME.fullmatch(text), text
    return datetime.fromisoformat(text)


def soon(seconds: float) -> str:
    return iso(datetime.now(UTC) + timedelta(seconds=seconds))


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def script(code: str, **fields: Json) -> Json:
    return {"type": "script", "runtime": "bash", "code": code, **fields}


# How many times slower than the local node the installation may be. It may be an emulator of AWS on
# shared cores, or a remote host.
PATIENCE = float(os.environ.get("PUNCTUAL_PATIENCE") or 1)
POLL_SECONDS = min(0.03 * PATIENCE, 0.1)  # seconds


def eventually(condition: Callable[[], Seen], within: float = 15) -> Seen:
    """Call `look` until its result is true, and return that result."""
    until = time.monotonic() + within * PATIENCE
    while not (result := condition()):
        assert time.monotonic() < until, f"it did not come about: {result!r}"
        time.sleep(POLL_SECONDS)
    return result


def fields_of(answer: httpx.Response) -> set[str]:
    assert answer.status_code == 422, (answer.status_code, answer.text[:500])
    return {error["field"] for error in answer.json().get("errors", [])}


def trusted() -> ssl.SSLContext:
    """Return a TLS context.

    PUNCTUAL_AUTHORITY names the certificate file of the installation's CA.
    """
    return ssl.create_default_context(cafile=os.environ.get("PUNCTUAL_AUTHORITY"))


def a_client(url: str, token: str | None) -> httpx.Client:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(
        base_url=url,
        headers=headers,
        timeout=max(30, 5 * PATIENCE),
        trust_env=False,
        verify=trusted(),
    )


class Api:
    """One caller. It cancels its jobs when the test ends."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http
        self.url = str(http.base_url).rstrip("/")
        self.made: list[str] = []

    @property
    def is_local(self) -> bool:
        """Return True if the node answers directly, without a proxy or gateway."""
        url = self.http.base_url
        return url.scheme == "http" and url.host in ("127.0.0.1", "localhost")

    def clear(self) -> None:
        for job_id in self.made:
            eventually(partial(self._cancelled, job_id))
        self.made.clear()

    def _cancelled(self, job_id: str) -> bool:
        """Cancel a job. Return False if a busy job answers 503 and the client must try again.

        The node has one thread, so it never answers this.
        """
        answer = self.http.delete(f"/jobs/{job_id}")
        if answer.status_code == 503 and not self.is_local:
            return False
        check_answer(answer)
        return True

    def __call__(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
        **params: Any,
    ) -> httpx.Response:
        sent = dict(headers or {})
        if body is not None:
            content = json.dumps(body).encode()
        if content is not None:
            sent.setdefault("Content-Type", "application/json")
        query = {name.rstrip("_"): value for name, value in params.items()}
        answer = self.http.request(method, path, content=content, headers=sent, params=query)
        check_answer(answer)
        self._check_by_the_document(answer)
        return answer

    def _check_by_the_document(self, answer: httpx.Response) -> None:
        request = answer.request
        root = self.http.base_url.raw_path.decode().rstrip("/")
        path = request.url.raw_path.decode().partition("?")[0].removeprefix(root)
        about = request.method, path, answer.status_code
        openapi_answers.check(*about, answer.headers, answer.content)
        openapi_answers.check_sent(*about, request.content)

    def get(self, path: str, **params: Any) -> Json:
        answer = self("GET", path, **params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def create(self, headers: dict[str, str] | None = None, /, **fields: Json) -> Json:
        answer = self(
            "POST",
            "/jobs",
            {"name": unique("acceptance"), **fields},
            headers=headers,
        )
        assert answer.status_code == 202, answer.text
        job = answer.json()
        self.made.append(job["job_id"])
        return job

    def order(self, job_id: str, action: str, body: Json = None) -> Json:
        answer = self("POST", f"/jobs/{job_id}/{action}", {} if body is None else body)
        assert answer.status_code in (200, 202), answer.text
        return answer.json()

    def run_now(self, job_id: str, **body: Json) -> Json:
        return self.order(job_id, "runNow", body)

    def run(self, job_id: str, run_id: str) -> Json:
        run = self.get(f"/jobs/{job_id}/runs/{run_id}")
        check_run(run)
        return run

    def runs(self, job_id: str, **filters: Any) -> list[Json]:
        """Return all runs, the oldest first."""
        return list(reversed(list(self.pages(f"/jobs/{job_id}/runs", "runs", **filters))))

    def pages(self, path: str, items: str, **filters: Any) -> Iterable[Json]:
        page = self.get(path, **filters)
        yield from page[items]
        while page["next_token"] is not None:
            page = self.get(path, **filters, next_token=page["next_token"])
            yield from page[items]

    def ended(self, run: Json, within: float = 20) -> Json:
        def load() -> Json:
            current = self.run(run["job_id"], run["run_id"])
            return current if current["status"] in ENDED else None

        return eventually(load, within)

    def in_status(self, run: Json, *statuses: str, within: float = 20) -> Json:
        def load() -> Json:
            current = self.run(run["job_id"], run["run_id"])
            return current if current["status"] in statuses else None

        return eventually(load, within)

    def first_run(self, job_id: str, **filters: Any) -> Json:
        return eventually(lambda: self.runs(job_id, **filters))[0]

    def only_run(self, job_id: str, within: float = 20) -> Json:
        """Return the only run of a job after its end."""
        run = self.ended(self.first_run(job_id), within)
        assert [other["run_id"] for other in self.runs(job_id)] == [run["run_id"]]
        return run

    def results(self, jobs: Mapping[Key, Json], at_once: int = 6) -> dict[Key, Json]:
        """Create one-time jobs, and return their runs after the ends. A few run beside each other.

        More would take too long on a machine that also runs an emulator of AWS.
        """
        started: dict[Key, str] = {}
        ended: dict[Key, Json] = {}
        for key, fields in jobs.items():
            while len(started) >= at_once:
                first = next(iter(started))
                ended[first] = self.only_run(started.pop(first))
            started[key] = self.create(schedule_type="IMMEDIATE", **fields)["job_id"]
        return ended | {key: self.only_run(job_id) for key, job_id in started.items()}

    def job_in(self, job_id: str, status: str) -> Json:
        def load() -> Json:
            job = self.get(f"/jobs/{job_id}")
            return job if job["status"] == status else None

        return eventually(load)

    def upload(self, data: bytes, name: str = "artifact") -> str:
        """Upload a file, and return the id of its artifact."""
        digest = hashlib.sha256(data).hexdigest()
        answer = self("POST", "/artifacts", {"sha256": digest, "size": len(data), "name": name})
        assert answer.status_code in (200, 201), answer.text
        artifact = answer.json()
        if artifact.get("upload_url"):
            sent = httpx.put(
                artifact["upload_url"],
                content=data,
                headers=artifact["upload_headers"],
                timeout=30,
                verify=trusted(),
                trust_env=False,
            )
            assert sent.status_code in (200, 201, 204), sent.text
        return str(artifact["artifact_id"])

    def output(self, run: Json, kind: str = "output", **params: Any) -> bytes:
        answer = self("GET", f"/jobs/{run['job_id']}/runs/{run['run_id']}/{kind}", **params)
        if answer.status_code == 302:
            answer = httpx.get(answer.headers["Location"], timeout=30, verify=trusted())
        assert answer.status_code == 200, answer.text
        return answer.content

    def log(self, run: Json) -> bytes:
        """Return the whole log so far, which may come in several pieces, or b"" without one."""
        path, log = f"/jobs/{run['job_id']}/runs/{run['run_id']}/logs", b""
        while (answer := self("GET", path, after=len(log))).status_code == 200 and answer.content:
            log += answer.content
        assert answer.status_code == 200 or not log, answer.text
        return log


def check_answer(answer: httpx.Response) -> None:
    """Check that an answer is not a 500, and that every error is a complete problem document."""
    probes = ("/health", "/health/live", "/health/ready")
    if answer.request.url.path.endswith(probes) and answer.status_code in (200, 503):
        # an installation may be late or new
        assert answer.json()["status"] in ("ok", "late", "down")
        return
    assert answer.status_code < 500, answer.text
    if answer.status_code < 400 or answer.request.method == "HEAD":
        return
    assert answer.headers["Content-Type"].startswith("application/problem+json"), answer.headers
    problem = answer.json()
    assert {"type", "title", "status", "detail", "code", "request_id"} <= set(problem), problem
    assert problem["status"] == answer.status_code
    assert "Traceback" not in answer.text
    for error in problem.get("errors", []):
        assert set(error) == {"field", "message"}
        assert error["message"]


def check_run(run: Json) -> None:
    """Check the invariants of a single run at any time."""
    for name in ("scheduled_time", "due_time", "created_at", "modified_time"):
        instant(run[name])
    if run["start_time"] is not None and run["lateness_ms"] is not None:
        late = instant(run["start_time"]) - instant(run["due_time"])
        first = run["attempts"][0]["start_time"] if run["attempts"] else None
        if first == run["start_time"]:
            assert abs(late / timedelta(milliseconds=1) - run["lateness_ms"]) <= 2
    if run["end_time"] is not None:
        assert run["status"] in ENDED
        if run["start_time"] is not None:
            assert instant(run["start_time"]) <= instant(run["end_time"])
    numbers = [attempt["attempt_number"] for attempt in run["attempts"]]
    assert numbers == sorted(set(numbers))
    if run["status"] in ("SKIPPED", "MISSED"):
        assert run["reason"]["code"]
        assert run["reason"]["text"]
        assert run["start_time"] is None


def runs_on_node(api: Api) -> bool:
    """Return whether scripts run on the node itself, which then names their sandbox."""
    return api.get("/health").get("sandbox") is not None


def longest_script_seconds(api: Api) -> int:
    """Return the longest timeout of a script. Without containers, functions run all scripts."""
    return MAX_SCRIPT_SECONDS if runs_on_node(api) or has_long_scripts(api) else 840


def has_long_scripts(api: Api) -> bool:
    """Return whether a deployment runs scripts that are too long for a function."""
    fields = {"task": script("true"), "timeout_seconds": MAX_SCRIPT_SECONDS, **NEVER_SOON}
    answer = api("POST", "/jobs", {"name": unique("acceptance"), **fields})
    if answer.status_code == 422:
        return False
    api.made.append(answer.json()["job_id"])
    return True
