"""Every error of the contract, from a node that requires tokens."""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import openapi_answers
from tests.support.fuzz import Node, a_node

CRON = {"name": "a", "schedule_type": "CRON", "cron_expression": "0 0 29 2 *"}
UNKNOWN_ID = "01a1f03d-b0dd-700e-a7ae-69bae6d94507"
JSON = {"content-type": "application/json"}


class Caller:
    """A caller that checks each response against the OpenAPI document."""

    def __init__(self, node: Node, token: str) -> None:
        self.node = node
        self._http = httpx.Client(
            headers={"authorization": f"Bearer {token}"} if token else {},
            trust_env=False,
            timeout=30,
        )

    def __call__(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {**(JSON if content is not None else {}), **(headers or {})}
        url = f"{self.node.address}{path}"
        answer = self._http.request(method, url, content=content, headers=sent)
        below = path.partition("?")[0]
        openapi_answers.check(method, below, answer.status_code, answer.headers, answer.content)
        return answer

    def close(self) -> None:
        self._http.close()


class Place:
    """A node, its folder, a job, and callers of each kind."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.node = node
        self.store = folder / "data" / "punctual.db"
        self.admin = Caller(node, node.token)
        self.nobody = Caller(node, "")
        self.stranger = Caller(node, "pnc_0000000000000000000000000000")
        self.viewer = Caller(node, self.token("viewer"))
        self.small = Caller(node, self.token("viewer", "small"))
        self.job = f"/jobs/{self.admin('POST', '/jobs', CRON).json()['job_id']}"

    def token(self, role: str, tenant: str = "local") -> str:
        body = {"name": role, "role": role, "tenant": tenant}
        token: str = self.admin("POST", "/tokens", body).json()["token"]
        return token

    def close(self) -> None:
        for caller in (self.admin, self.nobody, self.stranger, self.viewer, self.small):
            caller.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("node")
    (folder / "data").mkdir()
    limits = {"small": {"calls_per_second": 1, "burst": 2}}
    (folder / "data" / "limits.json").write_text(json.dumps(limits))
    with a_node(folder, "punctual.node") as node:
        place = Place(node, folder)
        yield place
        place.close()


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), answer.text
    assert problem["status"] == status
    assert problem["request_id"] == answer.headers["x-request-id"]
    return problem


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b'{"name": NaN}'])
def test_body_that_is_not_a_json_object_returns_400(place: Place, body: bytes) -> None:
    refused(place.admin("POST", "/jobs", body), 400, "BAD_REQUEST")


def test_missing_or_unknown_token_returns_401(place: Place) -> None:
    for caller in (place.nobody, place.stranger):
        for method, path in (("GET", "/jobs"), ("POST", "/jobs"), ("GET", place.job)):
            answer = caller(method, path)
            refused(answer, 401, "UNAUTHENTICATED")
            assert answer.headers["www-authenticate"].startswith("Bearer")


def test_health_and_openapi_need_no_token(place: Place) -> None:
    assert place.nobody("GET", "/health").status_code == 200
    assert place.nobody("GET", "/openapi.json").status_code == 200


def test_insufficient_role_or_cross_site_request_returns_403(place: Place) -> None:
    for method, path in (("POST", "/jobs"), ("DELETE", place.job), ("GET", "/tokens")):
        refused(place.viewer(method, path, {} if method == "POST" else None), 403, "FORBIDDEN")
    elsewhere = {"origin": "https://elsewhere.example"}
    refused(place.admin("GET", "/jobs", headers=elsewhere), 403, "FORBIDDEN")
    cross = {"sec-fetch-site": "cross-site"}
    refused(place.admin("GET", "/jobs", headers=cross), 403, "FORBIDDEN")


def test_all_unknown_jobs_return_the_same_404(place: Place) -> None:
    """A job that does not exist, a job of another tenant, and an invalid id."""
    details = {
        refused(caller("GET", path), 404, "NOT_FOUND")["detail"]
        for caller, path in (
            (place.admin, f"/jobs/{UNKNOWN_ID}"),
            (place.admin, "/jobs/no-id"),
            (place.small, place.job),
        )
    }
    assert len(details) == 1
    refused(place.admin("GET", "/nothing"), 404, "NOT_FOUND")


def test_unsupported_method_returns_405_with_the_allowed_ones(place: Place) -> None:
    answer = place.admin("DELETE", "/jobs")
    refused(answer, 405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS, POST"


def test_unsupported_accept_header_returns_406(place: Place) -> None:
    answer = place.admin("GET", "/jobs", headers={"accept": "text/html"})
    refused(answer, 406, "NOT_ACCEPTABLE")


def test_change_of_a_cancelled_job_returns_409(place: Place) -> None:
    job = f"/jobs/{place.admin('POST', '/jobs', CRON).json()['job_id']}"
    assert place.admin("DELETE", job).status_code == 200
    for method, path in (("PATCH", job), ("POST", f"{job}/pause"), ("POST", f"{job}/runNow")):
        refused(
            place.admin(method, path, {"name": "b"} if method == "PATCH" else {}), 409, "CONFLICT"
        )


def test_other_version_returns_412(place: Place) -> None:
    for tag in ('"7"', 'W/"1"'):
        answer = place.admin("PATCH", place.job, {"name": "b"}, {"if-match": tag})
        refused(answer, 412, "PRECONDITION_FAILED")


def test_too_long_body_returns_413(place: Place) -> None:
    refused(place.admin("POST", "/jobs", b" " * (512 * 1024 + 1)), 413, "TOO_LARGE")


def test_too_long_url_returns_414(place: Place) -> None:
    answer = place.admin("GET", f"/jobs?name_prefix={'a' * 9_000}")
    refused(answer, 414, "URI_TOO_LONG")


@pytest.mark.parametrize(
    "headers", [{"content-type": "text/plain"}, {"content-encoding": "gzip"}], ids=["type", "code"]
)
def test_body_of_another_type_returns_415(place: Place, headers: dict[str, str]) -> None:
    refused(place.admin("POST", "/jobs", CRON, headers), 415, "UNSUPPORTED_MEDIA_TYPE")


def test_foreign_host_returns_421(place: Place) -> None:
    answer = place.admin("GET", "/jobs", headers={"host": "punctual.example"})
    refused(answer, 421, "MISDIRECTED")


def test_wrong_fields_return_422(place: Place) -> None:
    wrong = {**CRON, "max_retries": "3", "tags": {"a:b": "c"}, "no_such_field": 1}
    problem = refused(place.admin("POST", "/jobs", wrong), 422, "INVALID")
    fields = {error["field"] for error in problem["errors"]}
    assert fields == {"max_retries", "tags.a:b", "no_such_field"}


def test_too_many_calls_of_a_tenant_return_429(place: Place) -> None:
    answers = [place.small("GET", "/jobs") for _ in range(20)]
    refusals = [answer for answer in answers if answer.status_code != 200]
    assert refusals
    for answer in refusals:
        refused(answer, 429, "LIMIT_EXCEEDED")
        assert int(answer.headers["retry-after"]) >= 1
    assert place.admin("GET", "/jobs").status_code == 200  # other tenants are not affected


def test_too_many_headers_return_431(place: Place) -> None:
    headers = {f"x-{number}": "a" for number in range(120)}
    refused(place.admin("GET", "/jobs", headers=headers), 431, "HEADERS_TOO_LARGE")


def test_locked_store_returns_503_and_changes_nothing(place: Place) -> None:
    before = place.admin("GET", "/jobs").json()
    with locked(place.store):
        answer = place.admin("POST", "/jobs", CRON)
        refused(answer, 503, "UNAVAILABLE")
        assert int(answer.headers["retry-after"]) >= 1
    assert place.admin("GET", "/jobs").json() == before


@contextmanager
def locked(store: Path) -> Iterator[None]:
    """Hold the write lock of the store in another connection."""
    other = sqlite3.connect(store, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
    finally:
        other.close()
