"""The audit has its own table, so that roles can separate writers from readers."""

import pytest

from infra.config.stage import FUNCTION_NAMES
from tests.infra.stacks.test_rights import granted
from tests.support.infra.synthesis import assembly

ADDS, READS = "dynamodb:PutItem", "dynamodb:Query"
MAY = {"status": {ADDS}, "job-service": {ADDS}, "job-search": {READS}}


@pytest.mark.parametrize("stage", ["dev", "prod"])
@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_audit_rows_are_added_by_writers_and_read_by_job_search_only(stage: str, name: str) -> None:
    """The code makes a put conditional. No role may change or delete a row."""
    actions_found = {
        grant.action for grant in granted(assembly(stage), name) if "AuditTable" in grant.resource
    }
    assert actions_found == MAY.get(name, set())


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_no_right_reaches_all_tables(stage: str) -> None:
    for name in FUNCTION_NAMES:
        wide = [
            grant
            for grant in granted(assembly(stage), name)
            if grant.action.startswith("dynamodb:") and grant.resource in ("*", "table/*")
        ]
        assert {grant.action for grant in wide} <= {"dynamodb:ListStreams"}
