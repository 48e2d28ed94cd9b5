from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from punctual.domain.errors import Unavailable
from punctual.tasks.contract import Attempt, BadTask
from punctual.tasks.placeholders import (
    SecretMissing,
    expand,
    has_placeholders,
    no_secrets,
    placeholder_problems,
)

PAYLOAD = {
    "n": 3,
    "yes": True,
    "nothing": None,
    "text": "a b/c?&=#ü",
    "deep": {"er": [{"x": "found"}, 1.5]},
    "trap": "{{secret:key}} {{run_id}}",
    "dots": "..",
}


def an_attempt(task: dict[str, Any], payload: Any = PAYLOAD) -> Attempt:
    return Attempt(
        tenant="local",
        job_id="job-1",
        run_id="run-1",
        name="A job",
        attempt_number=2,
        scheduled_at=datetime(2026, 12, 1, 10, tzinfo=UTC),
        task=task,
        payload=payload,
        timeout=timedelta(seconds=5),
        token=7,
    )


def expand_field(value: Any, field: str = "body", payload: Any = PAYLOAD) -> Any:
    return expand(an_attempt({"type": "http", field: value}, payload), no_secrets).task[field]


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{{run_id}}", "run-1"),
        ("{{job_id}}", "job-1"),
        ("{{attempt}}", 2),
        ("{{scheduled_time}}", "2026-12-01T10:00:00.000Z"),
        ("{{ attempt }}", 2),
        ("{{payload.n}}", 3),
        ("{{payload.yes}}", True),
        ("{{payload.nothing}}", None),
        ("{{payload.deep.er.0.x}}", "found"),
        ("{{payload.deep.er.1}}", 1.5),
        ("{{payload.deep}}", {"er": [{"x": "found"}, 1.5]}),
        ("{{payload}}", PAYLOAD),
        ("a {{attempt}} b {{payload.n}}", "a 2 b 3"),
        ("{{payload.yes}} {{payload.nothing}}", "true null"),
        ("is {{payload.deep.er}}", 'is [{"x":"found"},1.5]'),
        ("{{{attempt}}}", "{2}"),
        (["{{attempt}}", {"k": "{{run_id}}"}], [2, {"k": "run-1"}]),
        ("{{unclosed", "{{unclosed"),
        ("{ {attempt} }", "{ {attempt} }"),
        ("{{}}", "{{}}"),
        (5, 5),
    ],
)
def test_placeholder_is_replaced_by_its_value(template: Any, value: Any) -> None:
    assert expand_field(template) == value


def test_single_placeholder_keeps_the_json_type() -> None:
    assert expand_field("{{payload.yes}}") is True
    assert isinstance(expand_field("{{payload.n}}"), int)
    assert expand_field(" {{payload.n}}") == " 3"


def test_keys_code_and_type_are_not_expanded() -> None:
    task = {"type": "{{run_id}}", "code": "echo {{run_id}}", "env": {"{{run_id}}": "{{attempt}}"}}
    assert expand(an_attempt(task), no_secrets).task == task | {"env": {"{{run_id}}": 2}}


@pytest.mark.parametrize(
    ("template", "missing"),
    [
        ("{{payload.none}}", "'none'"),
        ("x{{payload.deep.none.x}}", "'deep.none'"),
        ("{{payload.deep.er.2}}", "'deep.er.2'"),
        ("{{payload.deep.er.-1}}", "'deep.er.-1'"),
        ("{{payload.deep.er.٠}}", "'deep.er.٠'"),
        ("{{payload.deep.er.%s}}" % ("9" * 5000), "'deep.er.9"),
        ("{{payload.n.x}}", "'n.x'"),
        ("{{payload.text.0}}", "'text.0'"),
    ],
)
def test_missing_payload_key_is_named(template: str, missing: str) -> None:
    with pytest.raises(BadTask, match="The payload has no") as failure:
        expand_field(template)
    assert missing in str(failure.value)


@pytest.mark.parametrize(
    "name", ["nope", "runid", "payload..a", "payload.", "secret:", "secret:a b"]
)
def test_unknown_placeholder_fails_and_validation_names_it(name: str) -> None:
    template = f"x {{{{{name}}}}}"
    with pytest.raises(BadTask, match="is not a placeholder"):
        expand_field(template)
    ((field, message),) = placeholder_problems({"type": "http", "headers": {"X-A": template}})
    assert field == "headers.X-A"
    assert name in message


def test_validation_accepts_known_placeholders() -> None:
    task = {"type": "script", "code": "{{nope}}", "args": ["{{payload.a.0}}", "{{secret:a/b}}"]}
    assert placeholder_problems(task) == ()
    assert has_placeholders(task["args"])


def test_task_without_placeholders_is_the_same_object() -> None:
    attempt = an_attempt({"type": "http", "url": "https://example.com"})
    assert expand(attempt, no_secrets) is attempt


def test_values_in_a_url_are_percent_encoded() -> None:
    url = "https://x.example/{{payload.text}}?n={{payload.n}}&d={{payload.deep.er}}"
    assert expand_field(url, "url") == (
        "https://x.example/a%20b%2Fc%3F%26%3D%23%C3%BC?n=3"
        "&d=%5B%7B%22x%22%3A%22found%22%7D%2C1.5%5D"
    )


def test_url_of_one_placeholder_is_used_unencoded() -> None:
    assert (
        expand_field("{{payload}}", "url", "https://x.example/a?b=c") == "https://x.example/a?b=c"
    )


@pytest.mark.parametrize("step", [".", ".."])
def test_dot_segment_in_a_url_is_refused(step: str) -> None:
    with pytest.raises(BadTask, match="may not stand in a URL"):
        expand_field("https://x.example/users/{{payload}}/keys", "url", step)


@pytest.mark.parametrize(
    "url",
    [
        "https://{{payload.host}}/x",
        "https://{{secret:key}}.evil.example/x",
        "https://api.example{{payload.rest}}",
        "https://user:{{secret:key}}@api.example/",
        "https://api.example:{{payload.port}}/x",
        "{{payload.scheme}}://api.example/x",
        "{{payload.base}}/x",
        "https:{{payload.rest}}",
    ],
)
def test_placeholder_in_the_server_of_a_url_is_refused(url: str) -> None:
    task = {"type": "http", "url": url}
    assert placeholder_problems(task) == (
        ("url", "a placeholder must come after the host: begin with https://host/"),
    )
    # A job that was accepted before this rule fails at its run.
    with pytest.raises(BadTask, match="must come after the host"):
        expand(an_attempt(task), lambda *_: "s3cret")


def test_payload_does_not_choose_the_server_that_gets_a_secret() -> None:
    headers = {"Authorization": "Bearer {{secret:key}}"}
    task = {"type": "http", "url": "{{payload.url}}", "headers": headers}
    assert [field for field, _ in placeholder_problems(task)] == ["url"]
    with pytest.raises(BadTask, match="must not take its whole URL"):
        expand(an_attempt(task), lambda *_: "s3cret")
    assert placeholder_problems({"type": "http", "url": "{{payload.url}}"}) == ()
    assert (
        placeholder_problems({"type": "http", "url": "{{secret:webhook}}", "headers": headers})
        == ()
    )


def test_empty_value_in_a_path_is_refused() -> None:
    with pytest.raises(BadTask, match="is empty, which may not stand in the path of a URL"):
        expand_field("https://x.example/users/{{payload}}/keys", "url", "")
    assert expand_field("https://x.example/users?name={{payload}}", "url", "") == (
        "https://x.example/users?name="
    )


def test_lone_surrogate_in_a_url_is_refused() -> None:
    with pytest.raises(BadTask, match="not valid Unicode"):
        expand_field("https://x.example/{{payload}}", "url", "\ud800")


def test_expanded_values_are_not_expanded_again() -> None:
    def secrets(_tenant: str, name: str) -> str:
        return "{{payload.n}} {{secret:other}}"

    task = {"type": "http", "body": ["{{payload.trap}}", "<{{payload.trap}}>", "{{secret:a}}"]}
    expanded = expand(an_attempt(task), secrets)

    assert expanded.task["body"] == [
        PAYLOAD["trap"],
        f"<{PAYLOAD['trap']}>",
        "{{payload.n}} {{secret:other}}",
    ]
    assert expanded.secrets == {"{{payload.n}} {{secret:other}}"}


def test_secrets_are_read_once_and_listed_for_redaction() -> None:
    read_names: list[str] = []

    def secrets(_tenant: str, name: str) -> str:
        read_names.append(name)
        return f"value of {name}"

    task = {
        "type": "http",
        "url": "https://x.example/?k={{secret:url/key}}",
        "headers": {"Authorization": "Bearer {{secret:api}}", "X-Again": "{{secret:api}}"},
    }
    expanded = expand(an_attempt(task), secrets)

    assert read_names == ["url/key", "api"]
    assert expanded.secrets == {"value of url/key", "value of api"}
    assert expanded.task["url"] == "https://x.example/?k=value%20of%20url%2Fkey"
    assert expanded.task["headers"]["Authorization"] == "Bearer value of api"
    assert "value of" not in repr(expanded)


def test_missing_secret_is_named() -> None:
    def secrets(_tenant: str, name: str) -> str:
        raise KeyError(name)

    for source in (secrets, no_secrets):
        with pytest.raises(SecretMissing, match="no secret named 'api'"):
            expand(an_attempt({"type": "http", "body": "{{secret:api}}"}), source)


def test_unavailable_store_of_secrets_is_not_a_missing_secret() -> None:
    def secrets(_tenant: str, name: str) -> str:
        raise Unavailable("no answer")

    with pytest.raises(Unavailable):
        expand(an_attempt({"type": "http", "body": "{{secret:api}}"}), secrets)


@pytest.mark.parametrize("body", ["{{payload}}" * 200, ["{{ payload.x }}"] * 200])
def test_expanded_task_over_the_size_limit_is_refused(body: Any) -> None:
    """A payload of 256 KB in 20,000 places would take all memory of an executor."""
    attempt = an_attempt(
        {"type": "http", "url": "https://a.test", "body": body}, {"x": "y" * 50_000}
    )
    with pytest.raises(BadTask, match="have over 4,194,304 characters"):
        expand(attempt, no_secrets)


def test_largest_payload_fits_ten_times() -> None:
    payload = "y" * 262_000
    attempt = an_attempt({"type": "http", "body": ["{{payload}}"] * 10}, payload)
    assert expand(attempt, no_secrets).task["body"] == [payload] * 10
