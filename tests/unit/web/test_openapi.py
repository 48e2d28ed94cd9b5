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
UNDOCUMENTED = {500}  # an error of the server
CRON = {"name": "a", "schedule_type": "CRON", "cron_expression": "0 0 * * *"}


@pytest.fixture(scope="module")
def document() -> Any:
    return build_document()


def operations(document: Any) -> dict[tuple[str, str], Any]:
    return {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_document_is_valid_openapi_3_1(document: Any) -> None:
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []
    assert document["openapi"].startswith("3.1.")


@pytest.mark.parametrize("path", list(build_files()), ids=lambda path: path.name)
def test_openapi_files_are_up_to_date(path: Path) -> None:
    assert (ROOT / path).read_text() == build_files()[path], "run `make openapi`"


def test_document_has_exactly_the_calls_of_the_contract(document: Any) -> None:
    assert set(operations(document)) == {(call.method, call.path) for call in API_CALLS}


def test_operation_ids_are_unique_identifiers(document: Any) -> None:
    names = Counter(item["operationId"] for item in operations(document).values())
    assert max(names.values()) == 1
    assert all(name.isidentifier() and name[0].islower() for name in names)


def test_operation_states_the_role_that_it_needs(document: Any) -> None:
    for call in API_CALLS:
        operation = operations(document)[call.method, call.path]
        sentence = "Needs no token." if call.is_public else f"Needs the role {call.role.label}."
        assert operation["description"].endswith(sentence)
        assert (operation.get("security") == []) is call.is_public
        assert ("401" in operation["responses"]) is not call.is_public


def test_names_in_a_path_are_its_parameters(document: Any) -> None:
    for (_, path), operation in operations(document).items():
        parameters = {
            item["name"] for item in operation.get("parameters", ()) if item["in"] == "path"
        }
        assert parameters == {part[1:-1] for part in path.split("/") if part.startswith("{")}


def test_document_has_every_status_of_a_problem(document: Any) -> None:
    documented = {
        int(status)
        for item in operations(document).values()
        for status in item["responses"]
        if status >= "400"
    }
    unanswered = {405}  # no operation answers it
    assert documented | unanswered == set(HTTP_STATUSES.values()) - UNDOCUMENTED
    assert "Allow" in document["components"]["responses"]["MethodNotAllowed"]["headers"]


def test_link_leads_to_an_operation_with_its_parameters(document: Any) -> None:
    by_id = {item["operationId"]: item for item in operations(document).values()}
    linked = set()
    for operation in by_id.values():
        for answer in operation["responses"].values():
            for link in answer.get("links", {}).values():
                target = by_id[link["operationId"]]
                parameters = {item["name"] for item in target["parameters"]}
                assert set(link["parameters"]) <= parameters
                linked.add(link["operationId"])
    assert {"getJob", "cancelJob", "getRun", "retryRun", "getToken", "revokeToken"} <= linked


def test_documented_defaults_equal_those_of_a_job() -> None:
    job = Client().post("/v1/jobs", CRON).json
    for name, value in DEFAULTS.items():
        if value is None or "CRON" not in TYPES_OF_FIELD.get(name, ("CRON",)):
            continue
        assert (value.items() <= job[name].items()) if name == "task" else job[name] == value


@pytest.mark.parametrize(
    ("fields", "is_valid"),
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
def test_job_schema_accepts_only_consistent_fields(fields: Any, is_valid: bool) -> None:
    assert closed("NewJob").is_valid(fields) is is_valid


def test_document_is_public_and_has_an_etag() -> None:
    answer = Client().get("/v1/openapi.json")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert json.loads(answer.body) == build_document()
    assert answer.headers["etag"] == read_openapi_file().tag


def test_every_operation_except_the_document_has_an_example(document: Any) -> None:
    assert set(recorded_examples()) == {item.id for item in OPERATIONS.values()} - {"getOpenApi"}
