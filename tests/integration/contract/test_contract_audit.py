"""The audit: what is noted is read, newest first, once, page by page, by its own tenant alone."""

from datetime import timedelta

import pytest

from punctual.domain.durations import HISTORY_RETENTION
from punctual.engine.commands.audit import TOKEN_CREATE, TOKEN_REVOKE
from punctual.engine.ports.audit_log import Actor, AuditFilters, Note
from tests.support.aws.adapters import World
from tests.support.builders import NOON, after
from tests.support.ports import Ports

ADA, BOB = Actor("ada", "t", "192.0.2.1", "r"), Actor("bob")
ALL = AuditFilters()


def noted(ports: Ports, number: int, seconds: float, tenant: str = "acme", **fields: str) -> str:
    action = fields.get("action", TOKEN_CREATE)
    who = BOB if fields.get("by") == "bob" else ADA
    name = f"token-{number}"
    ports.audit_log.add_note(tenant, Note(who, action, after(seconds), subject_token_id=name))
    return name


def page(
    world: World, filters: AuditFilters, limit: int, after: tuple[str, ...] | None
) -> tuple[list[str], tuple[str, ...] | None]:
    found = world.ports.audit_log.page("acme", filters, limit, after, world.clock())
    assert len(found.entries) <= limit
    return [entry.note.subject_token_id for entry in found.entries], found.next_cursor


def whole(world: World, filters: AuditFilters = ALL, limit: int = 50) -> list[str]:
    found, place = page(world, filters, limit, None)
    while place is not None:
        some, place = page(world, filters, limit, place)
        found += some
    return found


@pytest.mark.parametrize("limit", [1, 2, 7, 50])
def test_all_are_read_newest_first_and_once_however_long_a_page_is(
    world: World, limit: int
) -> None:
    names = [noted(world.ports, n, n * 1.7) for n in range(23)]
    world.clock.set(after(60))
    assert whole(world, limit=limit) == names[::-1]


@pytest.mark.parametrize("limit", [1, 3])
def test_what_is_added_while_pages_are_read_neither_doubles_nor_hides_any(
    world: World, limit: int
) -> None:
    names = [noted(world.ports, n, n * 0.9) for n in range(12)]
    world.clock.set(after(60))
    found, place = page(world, ALL, limit, None)
    number = 100
    while place is not None:
        noted(world.ports, number, 11 + number / 100)
        some, place = page(world, ALL, limit, place)
        found += some
        number += 1
    assert [name for name in found if name in names] == names[::-1]
    assert len(set(found)) == len(found)


def test_the_same_noted_twice_is_shown_once(world: World) -> None:
    for _ in range(2):
        noted(world.ports, 1, 0)
    assert len(set(whole(world))) == 1


def test_a_tenant_reads_its_own(world: World) -> None:
    noted(world.ports, 1, 0)
    noted(world.ports, 2, 0, tenant="acme#0")
    noted(world.ports, 3, 0, tenant="acm")
    assert whole(world) == ["token-1"]


def test_filters_hold_over_all_pages(world: World) -> None:
    ports = world.ports
    ours = [noted(ports, n, n, by="bob" if n % 3 else "ada") for n in range(12)]
    noted(ports, 20, 20, action=TOKEN_REVOKE)
    world.clock.set(after(60))
    bobs = [name for n, name in enumerate(ours) if n % 3][::-1]
    assert whole(world, AuditFilters(caller="bob"), limit=3) == bobs
    assert whole(world, AuditFilters(action=TOKEN_REVOKE)) == ["token-20"]
    between = AuditFilters(start=after(4), end=after(9))
    assert whole(world, between, limit=2) == ours[4:9][::-1]
    assert whole(world, AuditFilters(start=after(9), end=after(4))) == []
    assert whole(world, AuditFilters(job_id="none")) == []


def test_it_is_kept_as_long_as_runs_are(world: World) -> None:
    noted(world.ports, 1, 0)
    noted(world.ports, 2, 10)
    world.clock.set(NOON + HISTORY_RETENTION + timedelta(seconds=5))
    assert whole(world) == ["token-2"]
