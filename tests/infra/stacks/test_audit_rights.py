"""The audit has its own table, so that roles can separate writers from readers."""

import pytest

from infra.config.stage import FUNCTION_NAMES
from tests.infra.stacks.test_rights import granted
from tests.support.infra.synthesised import assembly

ADDS, READS = "dynamodb:PutItem", "dynamodb:Query"
MAY = {"status": {ADDS}, "job-service": {ADDS}, "job-search": {READS}}


@pytest.mark.parametrize("stage", ["dev", "prod"])
@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_audit_rows_are_added_by_writers_and_read_by_job_search_only(stage: str, name: str) -> None:
    """The code makes a put conditional. No role may change or delete a row."""
    found = {one.action for one in granted(assembly(stage), name) if "AuditTable" in one.resource}
    assert found == MAY.get(name, set())


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_no_right_reaches_all_tables(stage: str) -> None:
    for name in FUNCTION_NAMES:
        wide = [
            one
            for one in granted(assembly(stage), name)
            if one.action.startswith("dynamodb:") and one.resource in ("*", "table/*")
        ]
        assert {one.action for one in wide} <= {"dynamodb:ListStreams"}
