"""Refused requests: methods, types, hosts, origins, sizes and malformed input."""

import json
import socket
from typing import Any

import pytest

from tests.support.acceptance.contract import (
    NEVER_SOON,
    Api,
    Json,
    eventually,
    fields_of,
    unique,
)

BODY = json.dumps({"name": unique("n"), **NEVER_SOON}).encode()
UNKNOWN_ID = "01890000-0000-7000-8000-000000000000"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/jobs", {"GET", "POST"}),
        ("POST", f"/jobs/{UNKNOWN_ID}", {"GET", "PUT", "PATCH", "DELETE"}),
        ("GET", f"/jobs/{UNKNOWN_ID}/pause", {"POST"}),
        ("GET", "/jobs/x/runNow", {"POST"}),
        ("PUT", "/runs", {"GET"}),
        ("POST", "/health", {"GET"}),
        ("GET", "/schedules/preview", {"POST"}),
        ("PATCH", f"/jobs/{UNKNOWN_ID}/runs/{UNKNOWN_ID}/output", {"GET"}),
    ],
)
def test_unsupported_method_lists_the_allowed_methods(
    api: Api, method: str, path: str, allowed: set[str]
) -> None:
    answer = api(method, path, {} if method in ("POST", "PUT", "PATCH") else None)
    assert answer.status_code == 405
    named = {name.strip() for name in answer.headers["Allow"].split(",")}
    assert named - {"HEAD", "OPTIONS"} == allowed


@pytest.mark.parametrize("path", ["/nothing", "/", "/jobs/x/y/z", "/jobs//runs", "/.git"])
def test_unknown_path_returns_404(api: Api, path: str) -> None:
    assert api("GET", path).status_code == 404


def test_unsupported_accept_header_returns_406(api: Api) -> None:
    assert api("GET", "/jobs", headers={"Accept": "text/html"}).status_code == 406
    for accepted in (
        "*/*",
        "application/*",
        "text/html, application/json;q=0.5",
        "application/json",
    ):
        assert api("GET", "/jobs", headers={"Accept": accepted}).status_code == 200
    assert api("GET", "/jobs", headers={"Accept": "application/json;q=0"}).status_code == 406


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx", "junk"]
)
def test_body_of_another_content_type_returns_415(api: Api, kind: str) -> None:
    answer = api("POST", "/jobs", content=BODY, headers={"Content-Type": kind})
    assert answer.status_code == 415


@pytest.mark.parametrize(
    "kind",
    ["application/json; charset=utf-8", "Application/JSON", "application/json;charset=UTF-8"],
)
def test_json_content_type_is_accepted_in_all_spellings(api: Api, kind: str) -> None:
    answer = api("POST", "/jobs", content=BODY, headers={"Content-Type": kind})
    assert answer.status_code == 202
    api.made.append(answer.json()["job_id"])


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "a b", ""])
def test_foreign_host_header_returns_421(api: Api, host: str) -> None:
    if api.is_local:
        status = api("GET", "/jobs", headers={"Host": host}).status_code
        assert status == 421 or (status == 400 and host in ("", "a b"))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:80", "LOCALHOST:8080"])
def test_loopback_host_header_is_accepted(api: Api, host: str) -> None:
    if api.is_local:
        assert api("GET", "/health", headers={"Host": host}).status_code in (200, 503)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://localhost.evil.example"},
    ],
    ids=str,
)
def test_cross_site_request_returns_403(api: Api, headers: dict[str, str]) -> None:
    if api.is_local:
        for method, path, body in (("POST", "/jobs", BODY), ("GET", "/jobs", None)):
            assert api(method, path, content=body, headers=headers).status_code == 403


def test_same_origin_request_is_accepted(api: Api) -> None:
    own = {"Origin": api.url.removesuffix("/v1"), "Sec-Fetch-Site": "same-origin"}
    assert api("GET", "/jobs", headers=own).status_code == 200


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b" ", b"{", b"nul", b"{'a': 1}", b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 01}'),
        *(b"\xff\xfe", b'{"a": "\\ud800"}', b"[" * 200_000, b'{"a":' * 50_000),
        *(b'{"name": "a\x00b"}', b"{}{}", b'{"a": 1,}', BODY + b"x", b"\xef\xbb\xbf" + BODY),
    ],
    ids=lambda text: repr(text[:12]),
)
def test_invalid_json_returns_400(api: Api, text: bytes) -> None:
    for path in ("/jobs", "/jobs/batch", "/schedules/preview"):
        assert api("POST", path, content=text).status_code == 400, path


@pytest.mark.parametrize("text", [b'"\\ud800"', b'"\\ude00x"', b'["\\ud83d\\u0041"]'], ids=repr)
def test_lone_surrogate_is_named_in_the_error(api: Api, text: bytes) -> None:
    answer = api("POST", "/jobs", content=BODY[:-1] + b', "payload": ' + text + b"}")
    assert answer.status_code == 400
    assert "surrogate" in answer.json()["detail"]


@pytest.mark.parametrize("digits", [b"1" * 5_000, b"-" + b"9" * 5_000])
def test_too_long_number_is_refused_with_its_field(api: Api, digits: bytes) -> None:
    answer = api("POST", "/jobs", content=BODY[:-1] + b', "max_retries": ' + digits + b"}")
    assert fields_of(answer) == {"max_retries"}


@pytest.mark.parametrize(
    "request_line",
    [b"FOO /v1/jobs HTTP/1.1\r\n", b"GET /v1/jobs HTTP/1.1\r\nContent-Length: -1\r\n", b"\x00\r\n"],
    ids=repr,
)
def test_malformed_http_request_returns_a_400_problem(api: Api, request_line: bytes) -> None:
    if not api.is_local:
        pytest.skip("a gateway before us has words of its own")
    url = api.http.base_url
    with socket.create_connection((url.host, url.port or 80), timeout=30) as connection:
        connection.sendall(request_line + b"Host: localhost\r\n\r\n")
        with connection.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json" in head.lower()
    problem = json.loads(body)
    assert (problem["status"], problem["code"]) == (400, "BAD_REQUEST")
    assert problem["request_id"].encode() in head


def test_unknown_query_parameter_is_refused_with_its_name(api: Api) -> None:
    job_before = api.create(**NEVER_SOON)
    job_id = job_before["job_id"]
    run = api.ended(api.run_now(job_id))
    path, job = f"/jobs/{job_id}", {"name": unique("n"), **NEVER_SOON}
    reach = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
    of_run = f"{path}/runs/{run['run_id']}"
    calls: list[tuple[str, str, Json]] = [
        *(
            ("GET", call_path, None)
            for call_path in ("/jobs", "/runs", "/audit", "/stats", "/whoami", path)
        ),
        *(("GET", f"{path}/{resource}", None) for resource in ("status", "runs", "explain")),
        *(("GET", target, None) for target in (of_run, f"{of_run}/output", "/schedules/upcoming")),
        *(("POST", "/jobs", job), ("POST", "/jobs/batch", {"jobs": [job]})),
        *(("PUT", path, {"name": "b"}), ("PATCH", path, {"name": "b"}), ("DELETE", path, None)),
        *(("POST", f"{path}/{command}", {}) for command in ("pause", "resume", "runNow")),
        *(("POST", f"{of_run}/{command}", {}) for command in ("cancel", "retry")),
        *(("POST", f"{path}/backfill", reach), ("POST", "/schedules/preview", NEVER_SOON)),
    ]
    for method, target, body in calls:
        answer = api(method, target, body, colour="red")
        assert "colour" in fields_of(answer), (method, target)
    job_after = api.get(path)
    assert (job_after["name"], job_after["status"], job_after["version"]) == (
        job_before["name"],
        "SCHEDULED",
        1,
    )
    assert len(api.runs(job_id)) == 1


def test_health_and_openapi_accept_unknown_query_parameters(api: Api) -> None:
    assert api("GET", "/health", probe="1").status_code in (200, 503)
    assert api("GET", "/openapi.json", v="2").status_code == 200


def test_body_that_is_not_utf_8_is_refused(api: Api) -> None:
    """A gateway may replace the wrong bytes before they reach us."""
    expected = (400,) if api.is_local else (400, 422)
    assert api("POST", "/jobs", content=b'{"a": "\xff"}').status_code in expected


@pytest.mark.parametrize("text", [b"[]", b"1", b'"x"', b"null", b"true"])
def test_body_that_is_not_an_object_is_refused(api: Api, text: bytes) -> None:
    assert api("POST", "/jobs", content=text).status_code in (400, 422)


@pytest.mark.parametrize(
    "payload",
    [
        *(b"1e400", b"-1e400", b"1" + b"0" * 400, b"0.1e-999", b"-0", b"9007199254740993"),
        *(
            b'{"a":1,"a":2}',
            b'"\\u0000"',
            b'"\\ud83e\\udd80"',
            b'{"":{"":[]}}',
            b"[" * 63 + b"]" * 63,
        ),
    ],
    ids=lambda text: repr(text[:12]),
)
def test_unusual_json_is_kept_or_refused_with_its_field(api: Api, payload: bytes) -> None:
    text = BODY[:-1] + b', "payload": ' + payload + b"}"
    answer = api("POST", "/jobs", content=text)
    assert answer.status_code in (202, 400, 422)
    if answer.status_code == 422:
        assert fields_of(answer) == {"payload"}
    if answer.status_code == 202:
        api.made.append(answer.json()["job_id"])
        payload_after = api("GET", f"/jobs/{answer.json()['job_id']}").json()["payload"]
        assert payload_after == json.loads(payload)


JUNK: list[Any] = [
    *(None, True, 0, -1, 1.5, 10**40, "", "x", "\x7f", "\u2028", "\U0010ffff", "x" * 5_000),
    *([], [[]], [None], {}, {"": ""}, {"a": {"b": {}}}, [{}] * 400, "{{payload.a}}", "2026-01-01"),
]
FIELDS = [
    *("name", "schedule_type", "schedule_time", "cron_expression", "timezone", "dst_gap"),
    *("interval_seconds", "interval_from", "start_time", "end_time", "max_runs", "exclude"),
    *("jitter_seconds", "misfire_policy", "misfire_grace_seconds", "task", "priority", "tags"),
    *("max_concurrency", "overlap_policy", "max_waiting", "timeout_seconds", "max_retries"),
    *("retry", "deadline_seconds", "delivery", "notify", "", "\u0000", "é", "__class__"),
]


@pytest.mark.parametrize("junk", JUNK, ids=lambda junk: repr(junk)[:12])
def test_junk_in_any_field_causes_no_server_error(api: Api, junk: Json) -> None:
    bases: list[Json] = [NEVER_SOON, {"schedule_type": "INTERVAL", "interval_seconds": 9_000}]
    jobs = [{"name": unique("junk"), **base, field: junk} for base in bases for field in FIELDS]
    answer = api("POST", "/jobs/batch", {"jobs": jobs})
    assert answer.status_code == 207
    for job, result in zip(jobs, answer.json()["results"], strict=True):
        assert result["status"] in (202, 409, 422), (job, result)
        if result["status"] == 202:
            api.made.append(result["job_id"])
            assert api("GET", f"/jobs/{result['job_id']}").status_code == 200
        elif result["status"] == 409:  # both jobs of the batch have the junk as their name
            assert (job["name"], result["problem"]["code"]) == (junk, "NAME_TAKEN")
        else:
            assert result["problem"]["errors"], job
    for path in ("/jobs", "/schedules/preview", "/jobs/batch"):
        assert api("POST", path, {"jobs": junk, "name": junk}).status_code in (207, 422)
    for key in ("url", "method", "headers", "body", "expect_status", "follow_redirects"):
        task = {"type": "http", "url": "http://127.0.0.1:9/", key: junk}
        answer = api("POST", "/jobs", {"name": unique("junk"), **NEVER_SOON, "task": task})
        assert answer.status_code in (202, 422)
    for key in ("runtime", "code", "args", "env", "resources", "artifact_id"):
        task = {"type": "script", "runtime": "bash", "code": "true", key: junk}
        answer = api("POST", "/jobs", {"name": unique("junk"), **NEVER_SOON, "task": task})
        assert answer.status_code in (202, 422)


@pytest.mark.parametrize(
    "query",
    [
        *("%", "%zz", "a=%00", "limit=%F0%9F%A6%80", "from=%", "next_token=" + "A" * 4_000),
        *(
            "status=",
            "limit=1&limit=2",
            "tag=:",
            "tag=a:",
            "at=2026",
            "=",
            "&&&",
            "limit=" + "9" * 99,
        ),
    ],
)
def test_unusual_queries_cause_no_server_error(api: Api, query: str) -> None:
    for path in (
        "/jobs",
        "/runs",
        "/schedules/upcoming",
        "/stats",
        "/health",
        f"/jobs/{UNKNOWN_ID}",
    ):
        status = api("GET", f"{path}?{query}").status_code
        assert status in (200, 400, 404, 414, 422) or (path, status) == ("/health", 503), path


def test_too_large_body_returns_413(api: Api) -> None:
    name = unique("large")
    job = {"name": name, **NEVER_SOON, "payload": "x" * (600 * 1024)}
    assert api("POST", "/jobs", job).status_code == 413
    jobs = {"jobs": [{"name": name, **NEVER_SOON, "payload": "x" * 200_000}] * 27}
    assert api("POST", "/jobs/batch", jobs).status_code == 413
    assert api.get("/jobs", name_prefix=name)["jobs"] == []


def test_batch_of_nearly_5_mib_is_accepted(api: Api) -> None:
    name = unique("near")
    jobs = {
        "jobs": [{"name": f"{name}-{n}", **NEVER_SOON, "payload": "x" * 250_000} for n in range(20)]
    }
    answer = api("POST", "/jobs/batch", jobs)
    assert answer.status_code == 207
    api.made += [result["job_id"] for result in answer.json()["results"]]
    eventually(lambda: len(api.get("/jobs", name_prefix=name)["jobs"]) == 20)


def test_payload_of_512_kib_of_escapes_is_measured_as_json(api: Api) -> None:
    text = BODY[:-1] + b', "payload": "' + b"\\u0041" * 60_000 + b'"}'
    answer = api("POST", "/jobs", content=text)
    assert answer.status_code in (202, 422)
    api.made += [answer.json()["job_id"]] if answer.status_code == 202 else []


def test_head_response_has_no_body(api: Api) -> None:
    answer = api("HEAD", "/jobs")
    assert answer.status_code in (200, 405)
    assert answer.content == b""


def test_each_response_has_its_own_request_id(api: Api) -> None:
    ids = {api("GET", "/nothing").json()["request_id"] for _ in range(3)}
    assert len(ids) == 3
