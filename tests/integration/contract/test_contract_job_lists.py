"""Definitions, and lists of job states that stay complete while jobs are added."""

from typing import Any

import pytest
from msgspec.structs import replace

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.job_state import JobState, JobStatus, Rules
from punctual.engine.changes.timer_placement import blank_state
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.rows import JobKey
from tests.support.aws.adapters import World
from tests.support.builders import JOB, NOON, a_definition_row, a_job_state, an_id, key_of
from tests.support.ports import Ports


def accept(ports: Ports, *states: JobState) -> None:
    definitions = [
        a_definition_row(state.job_id, tenant=state.tenant, name=state.job_id) for state in states
    ]
    ports.job_states.put_definitions(definitions)
    assert all(ports.job_states.swap([Swap(state, 0) for state in states]))


def read_all(world: World, tenant: str, limit: int) -> list[str]:
    """Return the job ids of all pages."""
    world.settle()
    job_ids: list[str] = []
    before = None
    for _ in range(1_000):
        page = world.ports.job_states.page(tenant, before, limit)
        assert len(page.items) <= limit
        job_ids += [state.job_id for state, _ in page.items]
        before = page.before
        if before is None:
            return job_ids
    raise AssertionError("the list does not end")


@pytest.mark.parametrize(
    "payload",
    [
        {"a": [1, 2.5, None, True, "é\u0301"], "": {}},
        "x" * 262_144,
        ["🕰" * 1_000, "שלום", "\u202e", "a\\b\"c'd"],
        -(2**53),
        [[[[[]]]]],
        0.1,
        "",
    ],
)
def test_definition_is_read_as_it_was_written(ports: Ports, payload: Any) -> None:
    row = a_definition_row(
        payload=payload, tags={"team": "Dàtà 🎉"}, name="Ночь ☾", created_by="ada"
    )
    ports.job_states.put_definitions([row])
    refs = (JobKey("acme", JOB), row.ref)
    assert dict(ports.job_states.load_definitions([refs])) == {refs: row}


def test_all_versions_of_a_definition_are_kept(ports: Ports) -> None:
    definitions = [
        a_definition_row(ref=f"{n}-x", edition=n, previous_ref=f"{n - 1}-x") for n in range(1, 4)
    ]
    ports.job_states.put_definitions(definitions)
    refs = [(JobKey("acme", JOB), row.ref) for row in definitions]
    assert list(ports.job_states.load_definitions(refs).values()) == definitions


def test_definition_put_twice_is_stored_once(ports: Ports) -> None:
    row = a_definition_row()
    ports.job_states.put_definitions([row, row])
    ports.job_states.put_definitions([row])
    refs = (JobKey("acme", JOB), row.ref)
    assert ports.job_states.load_definitions([refs])[refs] == row


def test_missing_definitions_are_left_out(ports: Ports) -> None:
    ports.job_states.put_definitions([a_definition_row()])
    others = [
        (JobKey("acme", JOB), "2-body"),
        (JobKey("acme", an_id(2)), "1-body"),
        (JobKey("acme#", JOB), "1-body"),
    ]
    assert dict(ports.job_states.load_definitions(others)) == {}
    assert dict(ports.job_states.load_definitions([])) == {}


def test_many_definitions_are_loaded_at_once(ports: Ports) -> None:
    ports.job_states.put_definitions([])
    definitions = [a_definition_row(an_id(n), name=f"job {n}") for n in range(230)]
    ports.job_states.put_definitions(definitions)
    refs = [(JobKey("acme", row.job_id), row.ref) for row in definitions]
    loaded = ports.job_states.load_definitions(refs)
    assert [loaded[wanted_key] for wanted_key in refs] == definitions


def test_jobs_are_listed_newest_first(world: World) -> None:
    ids = [an_id(n) for n in (5, 1, 4, 2, 3)]
    accept(world.ports, *(a_job_state(job_id) for job_id in ids))
    assert read_all(world, "acme", 50) == sorted(ids, reverse=True)


@pytest.mark.parametrize("limit", [1, 7, 50, 200])
def test_pages_are_complete_and_without_duplicates(world: World, limit: int) -> None:
    ids = [an_id(n) for n in range(60)]
    accept(world.ports, *(a_job_state(job_id) for job_id in ids))
    assert read_all(world, "acme", limit) == ids[::-1]


def test_jobs_added_between_pages_neither_repeat_nor_hide_others(world: World) -> None:
    ports = world.ports
    ids = [an_id(n) for n in range(20)]
    accept(ports, *(a_job_state(job_id) for job_id in ids))
    world.settle()
    first = ports.job_states.page("acme", None, 8)
    accept(ports, *(a_job_state(an_id(n)) for n in range(100, 110)))
    job_ids = [state.job_id for state, _ in first.items]
    before = first.before
    while before is not None:
        page = ports.job_states.page("acme", before, 8)
        job_ids += [state.job_id for state, _ in page.items]
        before = page.before
    assert job_ids == ids[::-1]


def test_empty_list_is_one_empty_page(ports: Ports) -> None:
    page = ports.job_states.page("unknown", None, 10)
    assert (list(page.items), page.before) == ([], None)


def test_list_has_each_state_with_its_present_definition(world: World) -> None:
    ports = world.ports
    state = a_job_state()
    accept(ports, state)
    row = a_definition_row(ref="2-body", edition=2, name="renamed", payload={"big": "x" * 2_000})
    ports.job_states.put_definitions([row])
    rules = {1: state.rules[1], 2: Rules(definition_ref="2-body", effective_at=NOON)}
    newer = replace(state, version=2, edition=2, definition=2, rules=rules)
    ports.job_states.swap([Swap(newer, 1)])
    world.settle()
    ((listed, listed_definition),) = ports.job_states.page("acme", None, 10).items
    assert listed == newer
    assert (listed_definition.name, listed_definition.edition) == (row.name, row.edition)


def test_list_has_one_tenant_without_blank_and_expired_states(world: World) -> None:
    ports = world.ports
    accept(
        ports,
        a_job_state(an_id(1)),
        a_job_state(an_id(2), tenant="acme#"),
        a_job_state(an_id(3), tenant="ac"),
    )
    accept(ports, a_job_state(an_id(4), status=JobStatus.COMPLETED, ended_at=NOON))
    ports.job_states.swap([Swap(blank_state(JobKey("acme", an_id(5)), 1, "w", NOON), 0)])
    assert read_all(world, "acme", 10) == [an_id(4), an_id(1)]
    world.clock.set(NOON + HISTORY_RETENTION)
    assert read_all(world, "acme", 10) == [an_id(1)]


@pytest.mark.parametrize("limit", [1, 10, 500])
def test_walk_returns_each_state_of_each_tenant_once(world: World, limit: int) -> None:
    ports = world.ports
    states = [a_job_state(an_id(n), tenant=f"t{n % 3}#") for n in range(25)]
    accept(ports, *states)
    world.settle()
    keys: list[JobKey] = []
    cursor = None
    for _ in range(1_000):
        page = ports.job_states.walk(cursor, limit)
        keys += [key_of(state) for state in page.states]
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(keys) == sorted(key_of(state) for state in states)


def test_walk_over_no_states_ends_at_once(ports: Ports) -> None:
    page = ports.job_states.walk(None, 10)
    assert list(page.states) == []
