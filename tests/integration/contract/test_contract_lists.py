"""Bodies, and lists of heads: complete and without doubles while things are added."""

from typing import Any

import pytest
from msgspec.structs import replace

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.job_state import JobState, JobStatus, Rules
from punctual.domain.run import RunStatus, WaitingRun
from punctual.engine.changes.timer_placement import blank_state
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.rows import JobKey
from tests.support.aws.adapters import World
from tests.support.builders import JOB, NOON, a_body, a_head, a_run, an_id, key_of
from tests.support.ports import Ports


def accept(ports: Ports, *heads: JobState) -> None:
    bodies = [a_body(head.job_id, tenant=head.tenant, name=head.job_id) for head in heads]
    ports.job_states.put_definitions(bodies)
    assert all(ports.job_states.swap([Swap(head, 0) for head in heads]))


def read_all(world: World, tenant: str, limit: int) -> list[str]:
    """The job ids of all pages."""
    world.settle()
    found: list[str] = []
    before = None
    for _ in range(1_000):
        page = world.ports.job_states.page(tenant, before, limit)
        assert len(page.items) <= limit
        found += [head.job_id for head, _ in page.items]
        before = page.before
        if before is None:
            return found
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
def test_a_body_comes_back_as_it_was_written(ports: Ports, payload: Any) -> None:
    body = a_body(payload=payload, tags={"team": "Dàtà 🎉"}, name="Ночь ☾", created_by="ada")
    ports.job_states.put_definitions([body])
    wanted = (JobKey("acme", JOB), body.ref)
    assert dict(ports.job_states.load_definitions([wanted])) == {wanted: body}


def test_each_version_of_a_definition_stands(ports: Ports) -> None:
    bodies = [a_body(ref=f"{n}-x", edition=n, previous_ref=f"{n - 1}-x") for n in range(1, 4)]
    ports.job_states.put_definitions(bodies)
    wanted = [(JobKey("acme", JOB), body.ref) for body in bodies]
    assert list(ports.job_states.load_definitions(wanted).values()) == bodies


def test_a_body_put_twice_is_one(ports: Ports) -> None:
    body = a_body()
    ports.job_states.put_definitions([body, body])
    ports.job_states.put_definitions([body])
    wanted = (JobKey("acme", JOB), body.ref)
    assert ports.job_states.load_definitions([wanted])[wanted] == body


def test_bodies_that_are_not_there_are_left_out(ports: Ports) -> None:
    ports.job_states.put_definitions([a_body()])
    others = [
        (JobKey("acme", JOB), "2-body"),
        (JobKey("acme", an_id(2)), "1-body"),
        (JobKey("acme#", JOB), "1-body"),
    ]
    assert dict(ports.job_states.load_definitions(others)) == {}
    assert dict(ports.job_states.load_definitions([])) == {}


def test_many_bodies_at_once(ports: Ports) -> None:
    ports.job_states.put_definitions([])
    bodies = [a_body(an_id(n), name=f"job {n}") for n in range(230)]
    ports.job_states.put_definitions(bodies)
    wanted = [(JobKey("acme", body.job_id), body.ref) for body in bodies]
    found = ports.job_states.load_definitions(wanted)
    assert [found[one] for one in wanted] == bodies


def test_jobs_are_listed_newest_first(world: World) -> None:
    ids = [an_id(n) for n in (5, 1, 4, 2, 3)]
    accept(world.ports, *(a_head(job_id) for job_id in ids))
    assert read_all(world, "acme", 50) == sorted(ids, reverse=True)


@pytest.mark.parametrize("limit", [1, 7, 50, 200])
def test_pages_are_complete_and_without_doubles(world: World, limit: int) -> None:
    ids = [an_id(n) for n in range(60)]
    accept(world.ports, *(a_head(job_id) for job_id in ids))
    assert read_all(world, "acme", limit) == ids[::-1]


def test_what_is_added_between_pages_neither_doubles_nor_hides(world: World) -> None:
    ports = world.ports
    ids = [an_id(n) for n in range(20)]
    accept(ports, *(a_head(job_id) for job_id in ids))
    world.settle()
    first = ports.job_states.page("acme", None, 8)
    accept(ports, *(a_head(an_id(n)) for n in range(100, 110)))
    found = [head.job_id for head, _ in first.items]
    before = first.before
    while before is not None:
        page = ports.job_states.page("acme", before, 8)
        found += [head.job_id for head, _ in page.items]
        before = page.before
    assert found == ids[::-1]


def test_an_empty_list_is_one_empty_page(ports: Ports) -> None:
    page = ports.job_states.page("nobody", None, 10)
    assert (list(page.items), page.before) == ([], None)


def test_a_list_has_each_head_as_it_is_with_its_present_body(world: World) -> None:
    ports = world.ports
    head = a_head()
    accept(ports, head)
    body = a_body(ref="2-body", edition=2, name="renamed", payload={"big": "x" * 2_000})
    ports.job_states.put_definitions([body])
    rules = {1: head.rules[1], 2: Rules(definition_ref="2-body", effective_at=NOON)}
    newer = replace(head, version=2, edition=2, definition=2, rules=rules)
    ports.job_states.swap([Swap(newer, 1)])
    world.settle()
    ((listed, shown),) = ports.job_states.page("acme", None, 10).items
    assert listed == newer
    assert (shown.name, shown.edition) == (body.name, body.edition)


def test_a_list_holds_one_tenant_without_blank_and_expired_heads(world: World) -> None:
    ports = world.ports
    accept(ports, a_head(an_id(1)), a_head(an_id(2), tenant="acme#"), a_head(an_id(3), tenant="ac"))
    accept(ports, a_head(an_id(4), status=JobStatus.COMPLETED, ended_at=NOON))
    ports.job_states.swap([Swap(blank_state(JobKey("acme", an_id(5)), 1, "w", NOON), 0)])
    assert read_all(world, "acme", 10) == [an_id(4), an_id(1)]
    world.clock.set(NOON + HISTORY_RETENTION)
    assert read_all(world, "acme", 10) == [an_id(1)]


def test_busy_heads_are_those_with_runs_alive_in_line_or_unrecorded(world: World) -> None:
    ports = world.ports
    alive = a_head(an_id(1), runs=(a_run(),))
    in_line = a_head(an_id(2), wait_queue=(WaitingRun("r", 1, NOON, NOON, NOON),))
    ended = a_head(an_id(3), unrecorded=(a_run("e", RunStatus.SUCCESS, ended_at=NOON),))
    idle = a_head(an_id(4))
    other = a_head(an_id(5), tenant="other", runs=(a_run(),))
    accept(ports, alive, in_line, ended, idle, other)
    world.settle()
    found = sorted(ports.job_states.active_states("acme"), key=lambda head: head.job_id)
    assert found == [alive, in_line, ended]
    ports.job_states.swap([Swap(replace(alive, version=2, runs=()), 1)])
    world.settle()
    assert an_id(1) not in {head.job_id for head in ports.job_states.active_states("acme")}


@pytest.mark.parametrize("limit", [1, 10, 500])
def test_a_walk_meets_every_head_of_every_tenant_once(world: World, limit: int) -> None:
    ports = world.ports
    heads = [a_head(an_id(n), tenant=f"t{n % 3}#") for n in range(25)]
    accept(ports, *heads)
    world.settle()
    met: list[JobKey] = []
    cursor = None
    for _ in range(1_000):
        page = ports.job_states.walk(cursor, limit)
        met += [key_of(head) for head in page.states]
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(met) == sorted(key_of(head) for head in heads)


def test_a_walk_over_nothing_ends_at_once(ports: Ports) -> None:
    page = ports.job_states.walk(None, 10)
    assert list(page.states) == []
