"""Secrets of any installation: set, listed, used by runs, deleted, and answered by no call."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.acceptance.contract import Api, eventually, fields_of, instant, script, unique

NOW = {"schedule_type": "IMMEDIATE"}
VALUE = "correct horse battery"


@pytest.fixture
def name(api: Api) -> Iterator[str]:
    """Yield a name that no other test uses. Its secret is deleted after the test."""
    name = unique("acceptance")
    yield name
    assert api("DELETE", f"/secrets/{name}").status_code in (204, 404)


def put(api: Api, name: str, value: Any = VALUE) -> None:
    answer = api("PUT", f"/secrets/{name}", {"value": value})
    assert (answer.status_code, answer.content) == (204, b"")


def listed(api: Api, name: str) -> dict[str, Any] | None:
    secrets: list[dict[str, Any]] = api.get("/secrets")["secrets"]
    assert [secret["name"] for secret in secrets] == sorted(secret["name"] for secret in secrets)
    return next((secret for secret in secrets if secret["name"] == name), None)


def test_secret_is_listed_changed_and_deleted(api: Api, name: str) -> None:
    caller = api.get("/whoami")["name"]
    assert listed(api, name) is None
    put(api, name)
    first = listed(api, name)
    assert first is not None
    assert set(first) == {"name", "created_at", "updated_at", "updated_by"}
    assert first["updated_by"] == caller
    put(api, name, "changed")
    second = listed(api, name)
    assert second is not None
    assert second["created_at"] == first["created_at"]
    assert instant(second["updated_at"]) >= instant(first["updated_at"])
    assert api("DELETE", f"/secrets/{name}").status_code == 204
    assert listed(api, name) is None
    assert api("DELETE", f"/secrets/{name}").status_code == 404


def test_value_is_in_no_answer(api: Api, name: str) -> None:
    put(api, name)
    answers = [
        api("GET", "/secrets"),
        api("GET", "/audit", action="secret.set", limit=200),
        api("GET", f"/secrets/{name}"),
        api("PUT", f"/secrets/{name}", {"value": VALUE, "also": 1}),
        api("PUT", f"/secrets/{name}", {"value": VALUE * 200}),
        api("PUT", f"/secrets/{name}", {"value": [VALUE]}),
        api("DELETE", f"/secrets/{name}"),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 405, 422, 422, 422, 204]
    assert [answer.url for answer in answers if VALUE in answer.text] == []


def test_changes_are_audited_by_name(api: Api, name: str) -> None:
    put(api, name)
    assert api("DELETE", f"/secrets/{name}").status_code == 204

    def noted(action: str) -> bool:
        entries = api.get("/audit", action=action, limit=200)["entries"]
        return {"secret": name} in [entry["before"] or entry["after"] for entry in entries]

    assert eventually(lambda: noted("secret.set") and noted("secret.delete"))


@pytest.mark.parametrize("wrong", ["a b", "a:b", "x" * 65, "\u00e9", "a+b"])
def test_other_names_are_invalid(api: Api, wrong: str) -> None:
    assert fields_of(api("PUT", f"/secrets/{wrong}", {"value": "x"})) == {"name"}
    assert api("DELETE", f"/secrets/{wrong}").status_code == 404


@pytest.mark.parametrize("value", [None, "", 1, "x" * 4_097, "a{{b}}c", "\0", ["x"]])
def test_other_values_are_invalid(api: Api, name: str, value: Any) -> None:
    assert fields_of(api("PUT", f"/secrets/{name}", {"value": value})) == {"value"}
    assert listed(api, name) is None


def test_longest_value_is_stored(api: Api, name: str) -> None:
    put(api, name, "\u00e9" * 2_048)
    assert listed(api, name)


@pytest.mark.needs("script")
def test_script_gets_the_secret_and_its_output_hides_it(api: Api, name: str) -> None:
    put(api, name)
    code = 'printf "%s" "$KEY" | wc -c; echo "is $KEY $1"; printf "%s" "$KEY" | base64 >&2'
    reference = f"{{{{secret:{name}}}}}"
    task = script(code, env={"KEY": reference}, args=[f"<{reference}>"])
    run = api.only_run(api.create(**NOW, task=task, max_retries=0)["job_id"])
    assert run["status"] == "SUCCESS"
    assert api.output(run).split() == [b"21", b"is", b"[secret]", b"<[secret]>"]
    logs = api.output(run, "logs")
    assert VALUE.encode() not in logs
    assert logs.count(b"[secret]") == 3


@pytest.mark.needs("http")
def test_missing_secret_fails_the_run_without_a_retry(api: Api) -> None:
    name = unique("missing")
    task = {"type": "http", "url": "https://example.com/", "body": f"{{{{secret:{name}}}}}"}
    run = api.only_run(api.create(**NOW, task=task, max_retries=3)["job_id"])
    assert (run["status"], run["attempt_number"]) == ("FAILED", 1)
    assert run["error_message"] == f"There is no secret named {name!r}"
