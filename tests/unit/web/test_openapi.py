"""The OpenAPI document matches the routes, and its files match the models."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from punctual.web.contract import API_CALLS
from punctual.web.http.problems import HTTP_STATUSES
from punctual.web.models.defaults import DEFAULTS
from punctual.web.models.schedule_types import TYPES_OF_FIELD
from punctual.web.openapi.__main__ import build_files
from punctual.web.openapi.document import build_document, recorded_examples
from punctual.web.openapi.operations import OPERATIONS
from punctual.web.routes.openapi import read_openapi_file
from tests.support.openapi_answers import closed
from tests.support.web_client import Client

ROOT = Path(__file__).parents[3]
LAYER = ROOT / "layers/core/python"
IN_NO_DOCUMENT = {500}  # an error of the server
CRON = {"name": "a", "schedule_type": "CRON", "cron_expression": "0 0 * * *"}


@pytest.fixture(scope="module")
def made() -> Any:
    return build_document()


def operations(made: Any) -> dict[tuple[str, str], Any]:
    return {
        (method.upper(), path): operation
        for path, methods in made["paths"].items()
        for method, operation in methods.items()
    }


def test_it_is_openapi_3_1(made: Any) -> None:
    assert [error.message for error in OpenAPIV31SpecValidator(made).iter_errors()] == []
    assert made["openapi"].startswith("3.1.")


@pytest.mark.parametrize("path", list(build_files()), ids=lambda path: path.name)
def test_the_files_are_what_make_openapi_writes(path: Path) -> None:
    assert (ROOT / path).read_text() == build_files()[path], "run `make openapi`"


def test_it_has_each_call_of_the_contract_and_none_besides(made: Any) -> None:
    assert set(operations(made)) == {(call.method, call.path) for call in API_CALLS}


def test_each_operation_has_a_name_of_its_own_for_generated_code(made: Any) -> None:
    names = Counter(one["operationId"] for one in operations(made).values())
    assert max(names.values()) == 1
    assert all(name.isidentifier() and name[0].islower() for name in names)


def test_each_operation_says_which_role_it_needs_or_that_it_needs_no_token(made: Any) -> None:
    for call in API_CALLS:
        operation = operations(made)[call.method, call.path]
        words = "Needs no token." if call.is_public else f"Needs the role {call.role.label}."
        assert operation["description"].endswith(words)
        assert (operation.get("security") == []) is call.is_public
        assert ("401" in operation["responses"]) is not call.is_public


def test_each_name_in_an_address_is_a_parameter(made: Any) -> None:
    for (_, path), operation in operations(made).items():
        named = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"}
        assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}


def test_each_status_that_a_problem_can_have_is_told(made: Any) -> None:
    told = {int(s) for one in operations(made).values() for s in one["responses"] if s >= "400"}
    apart = {405}  # no operation answers it
    assert told | apart == set(HTTP_STATUSES.values()) - IN_NO_DOCUMENT
    assert "Allow" in made["components"]["responses"]["MethodNotAllowed"]["headers"]


def test_each_link_leads_to_an_operation_with_such_parameters(made: Any) -> None:
    by_id = {one["operationId"]: one for one in operations(made).values()}
    linked = set()
    for operation in by_id.values():
        for answer in operation["responses"].values():
            for link in answer.get("links", {}).values():
                wanted = by_id[link["operationId"]]
                known = {one["name"] for one in wanted["parameters"]}
                assert set(link["parameters"]) <= known
                linked.add(link["operationId"])
    assert {"getJob", "cancelJob", "getRun", "retryRun", "getToken", "revokeToken"} <= linked


def test_the_defaults_are_those_that_a_job_shows() -> None:
    shown = Client().post("/v1/jobs", CRON).json
    for name, value in DEFAULTS.items():
        if value is None or "CRON" not in TYPES_OF_FIELD.get(name, ("CRON",)):
            continue
        assert (value.items() <= shown[name].items()) if name == "task" else shown[name] == value


@pytest.mark.parametrize(
    ("fields", "right"),
    [
        (CRON, True),
        ({**CRON, "schedule_time": None, "tags": None, "task": None}, True),
        ({**CRON, "schedule_time": "2026-12-01T10:00:00Z"}, False),
        ({**CRON, "interval_seconds": 5}, False),
        ({**CRON, "cron_expression": None}, False),
        ({**CRON, "max_retries": 3, "delivery": "AT_MOST_ONCE"}, False),
        ({**CRON, "max_retries": 0, "delivery": "AT_MOST_ONCE"}, True),
        ({**CRON, "timeout_seconds": 901}, False),
        ({**CRON, "timeout_seconds": 901, "task": {"type": "container", "image": "x"}}, True),
        ({**CRON, "task": {"type": "script", "runtime": "bash"}}, False),
        ({**CRON, "task": {"type": "script", "runtime": "bash", "code": "true"}}, True),
        ({**CRON, "tags": {"a:b": "c"}}, False),
        ({**CRON, "name": "a\nb"}, False),
        ({**CRON, "no_such_field": 1}, False),
        ({"name": "a", "schedule_type": "IMMEDIATE", "exclude": []}, True),
        ({"name": "a", "schedule_type": "IMMEDIATE", "exclude": ["2026-12-24"]}, False),
        ({"name": "a", "schedule_type": "INTERVAL", "interval_seconds": 1}, True),
        (
            {
                "name": "a",
                "schedule_type": "INTERVAL",
                "interval_seconds": 1,
                "interval_from": "COMPLETED",
                "max_concurrency": 2,
            },
            False,
        ),
    ],
)
def test_the_schema_of_a_job_knows_what_belongs_together(fields: Any, right: bool) -> None:
    assert closed("NewJob").is_valid(fields) is right


def test_it_is_served_to_anybody_with_its_mark() -> None:
    answer = Client().get("/v1/openapi.json")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert json.loads(answer.body) == build_document()
    assert answer.headers["etag"] == read_openapi_file().tag


def test_each_operation_but_this_document_itself_has_an_example(made: Any) -> None:
    assert set(recorded_examples()) == {one.id for one in OPERATIONS.values()} - {"getOpenApi"}
