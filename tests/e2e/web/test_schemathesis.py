"""A bounded part of the campaign: generated calls to a node of its own, over all operations."""

import pytest

from tests.support.fuzz import Campaign, campaign

BOUNDED = ("--max-examples", "15", "--seed", "4", "--no-color")
MANY = 5_000


@pytest.fixture(scope="module")
def done() -> Campaign:
    return campaign(BOUNDED)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_answer_to_generated_calls_is_one_of_the_documents(done: Campaign) -> None:
    assert done.code == 0, done.said[-8_000:]
    assert done.cases >= MANY


@pytest.mark.slow
def test_no_generated_call_finds_a_fault_inside(done: Campaign) -> None:
    assert done.faults == []


@pytest.mark.slow
def test_all_operations_and_phases_take_part(done: Campaign) -> None:
    for phase in ("Examples", "Coverage", "Fuzzing", "Stateful"):
        assert f"✅ {phase}" in " ".join(done.said.split()), done.said[-3_000:]
