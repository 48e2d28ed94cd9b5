"""Any request gets an answer of the contract, never a 500, and errors name fields."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from punctual.web.http.query import filter_parameters
from punctual.web.models.job import JobFields
from punctual.web.models.schedule_types import TYPES_OF_FIELD
from tests.support.examples import examples
from tests.support.web_client import Answer, Client

FUZZ_SETTINGS = settings(
    max_examples=examples(300),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TEXT = st.text(max_size=12)
EDGE_VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        1,
        1.0,
        0.5,
        2**63,
        -(2**64),
        10**400,
        1e308,
        "",
        "\0",
        "\x7f",
        "\ud800",
        "UTC",
        "Europe/Berlin",
        "2026-12-01T10:00:00Z",
        "2026-12-24",
        "0 0 * * *",
        "rate(5 minutes)",
        "at(2026-12-24T00:00:00)",
        "{{secret:a}}",
        "{{payload.x}}",
        "IMMEDIATE",
        "FUTURE",
        "CRON",
        "INTERVAL",
        "COMPLETED",
        "AT_MOST_ONCE",
        "event",
        "http",
        "script",
        "binary",
        "https://example.com/",
        [],
        {},
    ]
)
JSON = st.recursive(
    EDGE_VALUES
    | TEXT
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
TASK = st.fixed_dictionaries(
    {"type": st.sampled_from(["event", "http", "script", "container"]) | JSON},
    optional=dict.fromkeys(
        (
            "url",
            "method",
            "headers",
            "body",
            "expect_status",
            "runtime",
            "code",
            "args",
            "env",
            "resources",
            "artifact_id",
        ),
        JSON,
    ),
)
FIELDS = sorted(JobFields.model_fields)
JOB: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda base, more: {**base, **more},
    st.sampled_from(
        [
            {},
            {"name": "a", "schedule_type": "IMMEDIATE"},
            {"name": "a", "schedule_type": "CRON", "cron_expression": "0 0 * * *"},
            {"name": "a", "schedule_type": "INTERVAL", "interval_seconds": 60},
        ]
    ),
    st.dictionaries(st.sampled_from(FIELDS) | TEXT, JSON, max_size=4)
    | st.fixed_dictionaries({"task": TASK}),
)


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()


def check_answer(answer: Answer, *statuses: int) -> None:
    """Check that the status is one of `statuses`, and that an error is a problem document."""
    assert answer.status in statuses, answer
    if answer.status >= 400:
        problem = answer.json
        assert answer.headers["content-type"] == "application/problem+json"
        assert {"type", "title", "status", "detail", "code", "request_id"} <= problem.keys()
        if answer.status == 422:
            assert problem["errors"]
            assert all(error["message"] for error in problem["errors"])


@FUZZ_SETTINGS
@given(JOB)
def test_any_job_is_accepted_or_refused_by_its_fields(body: dict[str, Any]) -> None:
    client = Client()
    answer = client.call("POST", "/v1/jobs", encode(body))
    check_answer(answer, 202, 400, 422)
    assert len(client.world.stored_jobs) == (answer.status == 202)
    if answer.status == 202:
        job = client.get(answer.headers["location"]).json
        for name, value in body.items():
            if value is not None and name not in (*TYPES_OF_FIELD, "task", "retry"):
                assert job[name] == value
    elif answer.status == 422:
        top_fields = {field.split(".")[0] for field in answer.fields}
        required = {"name", "schedule_type", "schedule_time", "cron_expression"}
        sent_fields = {str(name).split(".")[0].replace("\0", "\\u0000")[:128] for name in body}
        assert top_fields <= sent_fields | required | {"interval_seconds", "body", ""}


@FUZZ_SETTINGS
@given(JOB)
def test_any_change_is_accepted_or_refused_and_leaves_a_valid_job(body: dict[str, Any]) -> None:
    client = Client()
    job = {"name": "a", "schedule_type": "CRON", "cron_expression": "0 0 * * *", "tags": {"a": "b"}}
    path = client.post("/v1/jobs", job).headers["location"]
    before = client.get(path).json
    answer = client.call("PATCH", path, encode(body))
    check_answer(answer, 200, 400, 422)
    after = client.get(path).json
    assert after == (answer.json if answer.status == 200 else before)
    assert after["version"] == (1 if after == before else 2)
    check_answer(client.call("PUT", path, b'{"name":"still valid"}'), 200)


@FUZZ_SETTINGS
@given(
    st.sampled_from(["runNow", "pause", "resume", "backfill"]),
    JSON | st.dictionaries(st.sampled_from(["payload", "missed", "from", "to", "dry_run"]), JSON),
)
def test_any_command_is_accepted_or_refused(call: str, body: Any) -> None:
    client = Client()
    job = {"name": "a", "schedule_type": "IMMEDIATE"}
    path = client.post("/v1/jobs", job).headers["location"]
    check_answer(client.call("POST", f"{path}/{call}", encode(body)), 200, 202, 400, 422)


@FUZZ_SETTINGS
@given(JOB, JSON, JSON)
def test_any_preview_is_answered_or_refused(body: dict[str, Any], start: Any, count: Any) -> None:
    schedule = {
        name: value for name, value in body.items() if name in (*TYPES_OF_FIELD, "schedule_type")
    }
    request_body = encode({**schedule, "from": start, "count": count})
    check_answer(Client().call("POST", "/v1/schedules/preview", request_body), 200, 400, 422)


@FUZZ_SETTINGS
@given(JSON | st.builds(lambda jobs: {"jobs": jobs}, st.lists(JOB | JSON, max_size=3)))
def test_any_batch_has_one_result_for_each_job(body: Any) -> None:
    answer = Client().call("POST", "/v1/jobs/batch", encode(body))
    check_answer(answer, 207, 400, 422)
    if answer.status == 207:
        results = answer.json["results"]
        assert len(results) == len(body["jobs"])
        assert {result["status"] for result in results} <= {202, 409, 422}


@FUZZ_SETTINGS
@given(st.binary(max_size=60), st.sampled_from(["/v1/jobs", "/v1/jobs/batch"]))
def test_any_body_of_bytes_is_refused(body: bytes, path: str) -> None:
    check_answer(Client().call("POST", path, body), 400, 422)


@FUZZ_SETTINGS
@given(
    st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "FOO"]),
    st.lists(
        st.sampled_from(["jobs", "runs", "batch", "pause", "logs", "health", "", ".", "..", "%2F"])
        | st.text(alphabet="ab%0f/?\xff;", max_size=5),
        max_size=6,
    ),
    st.text(alphabet="abcfromt=&%+0\xff:limitsau_x", max_size=30),
)
def test_any_path_is_answered(method: str, parts: list[str], query: str) -> None:
    answer = Client().call(method, "/v1/" + "/".join(parts) + "?" + query)
    assert answer.status in (200, 204, 400, 404, 405, 422)


@FUZZ_SETTINGS
@given(
    st.sampled_from(["/v1/jobs", "/v1/runs", "/v1/schedules/upcoming"]),
    st.lists(
        st.tuples(
            st.sampled_from(["limit", "status", "tag", "from", "to", "next_token", "x"]),
            st.sampled_from(["1", "0", "QUEUED", "a:b", "2026-12-01T10:00:00Z", "", "é", "AAAA"])
            | st.text(alphabet="aZ09%-_:+", max_size=8),
        ),
        max_size=4,
    ),
)
def test_any_query_is_answered_or_refused_by_parameter_names(path: str, pairs: Any) -> None:
    query = "&".join(f"{name}={value}" for name, value in pairs)
    answer = Client().call("GET", f"{path}?{query}")
    check_answer(answer, 200, 422)
    if answer.status == 422:
        assert set(answer.fields) <= {name for name, _ in pairs} | {"to", "query"}


@FUZZ_SETTINGS
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "host",
                "origin",
                "sec-fetch-site",
                "accept",
                "content-type",
                "content-length",
                "content-encoding",
                "if-match",
                "idempotency-key",
            ]
        ),
        st.text(alphabet=st.characters(max_codepoint=255), max_size=20)
        | st.sampled_from(['"1"', "*", "W/", "*/*;q=x", "localhost:8", "application/json"]),
        max_size=4,
    )
)
def test_any_header_is_answered(headers: dict[str, str]) -> None:
    body = b'{"name":"a","schedule_type":"IMMEDIATE"}'
    answer = Client().call("POST", "/v1/jobs", body, headers)
    check_answer(answer, 202, 400, 403, 406, 413, 415, 421, 422)


def test_filter_parameters_do_not_depend_on_their_order() -> None:
    assert filter_parameters("b=1&a=2&limit=3&a=1") == filter_parameters("a=1&next_token=x&a=2&b=1")
