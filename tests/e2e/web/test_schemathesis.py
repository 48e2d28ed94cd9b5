"""A bounded campaign of generated calls to a node, over all operations."""

import pytest

from tests.support.fuzz import Campaign, campaign

BOUNDED = ("--max-examples", "15", "--seed", "4", "--no-color")
MANY = 5_000


@pytest.fixture(scope="module")
def done() -> Campaign:
    return campaign(BOUNDED)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_response_to_generated_calls_matches_the_openapi_document(done: Campaign) -> None:
    assert done.code == 0, done.output[-8_000:]
    assert done.cases >= MANY


@pytest.mark.slow
def test_generated_calls_cause_no_server_error(done: Campaign) -> None:
    assert done.faults == []


@pytest.mark.slow
def test_all_operations_and_phases_are_tested(done: Campaign) -> None:
    for phase in ("Examples", "Coverage", "Fuzzing", "Stateful"):
        assert f"✅ {phase}" in " ".join(done.output.split()), done.output[-3_000:]
