"""A stage with restored tables uses them everywhere."""

import json
import re
from typing import Any

import pytest

from infra.app import read_context
from infra.config.restored_tables import TABLE_NAMES
from infra.config.stage import WrongStage, read_stage
from tests.support.infra.observability import observed
from tests.support.infra.synthesis import Synthesis, assembly, functions, resources, synthesise

STREAM = "arn:aws:dynamodb:eu-central-1:123456789012:table/again-jobs/stream/2026-11-18T10:00:00.1"
NAMES = {name: f"again-{name}" for name in TABLE_NAMES}


@pytest.fixture(scope="module")
def synthesis() -> Synthesis:
    return synthesise("prod", restoredTables={**NAMES, "stream": STREAM})


def test_functions_use_restored_tables_and_have_rights_to_them(synthesis: Synthesis) -> None:
    used = set()
    for name, function in functions(synthesis).items():
        variables: dict[str, Any] = function.properties["Environment"]["Variables"]
        tables = {key: value for key, value in variables.items() if key.endswith("_TABLE")}
        assert set(tables.values()) <= set(NAMES.values()), name
        used |= set(tables.values())
    assert used == set(NAMES.values())
    granted = json.dumps(
        [role.properties.get("Policies") for role in resources(synthesis, "AWS::IAM::Role")]
    )
    assert set(re.findall(r":table/([\w-]+)", granted)) == set(NAMES.values())


def test_status_function_follows_the_restored_stream(synthesis: Synthesis) -> None:
    sources = resources(synthesis, "AWS::Lambda::EventSourceMapping")
    followed = [mapping for mapping in sources if "StartingPosition" in mapping.properties]
    assert [mapping.properties["EventSourceArn"] for mapping in followed] == [STREAM]


def test_alarms_watch_the_restored_tables(synthesis: Synthesis) -> None:
    text = json.dumps(observed(synthesis, "AWS::CloudWatch::Alarm"))
    assert set(re.findall(r'"TableName", "Value": "([\w-]+)"', text)) == set(NAMES.values())


def test_former_tables_leave_the_stack_and_remain_in_the_account(synthesis: Synthesis) -> None:
    former = resources(assembly("prod"), "AWS::DynamoDB::Table")
    assert len(former) == len(TABLE_NAMES)
    assert {table.body["DeletionPolicy"] for table in former} == {"RetainExceptOnCreate"}
    assert resources(synthesis, "AWS::DynamoDB::Table") == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({**NAMES, "stream": "arn"}, "`restoredTables.stream` must be the ARN"),
        ({**NAMES, "jobs": "a b", "stream": STREAM}, "`restoredTables.jobs` must be the name"),
        ({"jobs": "again", "stream": STREAM}, "`restoredTables.timers` is not set"),
        ({**NAMES, "stream": STREAM, "users": "u"}, "`restoredTables.users` is unknown"),
    ],
)
def test_incomplete_restored_tables_are_refused(value: dict[str, str], message: str) -> None:
    dev = {**read_context()["stages"]["dev"], "restoredTables": value}
    with pytest.raises(WrongStage, match=message):
        read_stage("dev", {"dev": dev})
