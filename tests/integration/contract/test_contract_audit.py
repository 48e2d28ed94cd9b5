"""The audit: entries are read newest first, once, page by page, and only by their tenant."""

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


def add_note(ports: Ports, number: int, seconds: float, tenant: str = "acme", **fields: str) -> str:
    action = fields.get("action", TOKEN_CREATE)
    actor = BOB if fields.get("by") == "bob" else ADA
    name = f"token-{number}"
    ports.audit_log.add_note(tenant, Note(actor, action, after(seconds), subject_token_id=name))
    return name


def page(
    world: World, filters: AuditFilters, limit: int, after: tuple[str, ...] | None
) -> tuple[list[str], tuple[str, ...] | None]:
    audit_page = world.ports.audit_log.page("acme", filters, limit, after, world.clock())
    assert len(audit_page.entries) <= limit
    return [entry.note.subject_token_id for entry in audit_page.entries], audit_page.next_cursor


def read_all(world: World, filters: AuditFilters = ALL, limit: int = 50) -> list[str]:
    names, cursor = page(world, filters, limit, None)
    while cursor is not None:
        page_names, cursor = page(world, filters, limit, cursor)
        names += page_names
    return names


@pytest.mark.parametrize("limit", [1, 2, 7, 50])
def test_entries_are_read_once_and_newest_first_at_any_page_size(world: World, limit: int) -> None:
    names = [add_note(world.ports, n, n * 1.7) for n in range(23)]
    world.clock.set(after(60))
    assert read_all(world, limit=limit) == names[::-1]


@pytest.mark.parametrize("limit", [1, 3])
def test_entries_added_between_pages_neither_repeat_nor_hide_others(
    world: World, limit: int
) -> None:
    names = [add_note(world.ports, n, n * 0.9) for n in range(12)]
    world.clock.set(after(60))
    read_names, cursor = page(world, ALL, limit, None)
    number = 100
    while cursor is not None:
        add_note(world.ports, number, 11 + number / 100)
        page_names, cursor = page(world, ALL, limit, cursor)
        read_names += page_names
        number += 1
    assert [name for name in read_names if name in names] == names[::-1]
    assert len(set(read_names)) == len(read_names)


def test_entry_added_twice_is_listed_once(world: World) -> None:
    for _ in range(2):
        add_note(world.ports, 1, 0)
    assert len(set(read_all(world))) == 1


def test_tenant_reads_only_its_own_entries(world: World) -> None:
    add_note(world.ports, 1, 0)
    add_note(world.ports, 2, 0, tenant="acme#0")
    add_note(world.ports, 3, 0, tenant="acm")
    assert read_all(world) == ["token-1"]


def test_filters_apply_to_all_pages(world: World) -> None:
    ports = world.ports
    ours = [add_note(ports, n, n, by="bob" if n % 3 else "ada") for n in range(12)]
    add_note(ports, 20, 20, action=TOKEN_REVOKE)
    world.clock.set(after(60))
    bobs = [name for n, name in enumerate(ours) if n % 3][::-1]
    assert read_all(world, AuditFilters(caller="bob"), limit=3) == bobs
    assert read_all(world, AuditFilters(action=TOKEN_REVOKE)) == ["token-20"]
    between = AuditFilters(start=after(4), end=after(9))
    assert read_all(world, between, limit=2) == ours[4:9][::-1]
    assert read_all(world, AuditFilters(start=after(9), end=after(4))) == []
    assert read_all(world, AuditFilters(job_id="none")) == []


def test_entries_expire_with_the_history(world: World) -> None:
    add_note(world.ports, 1, 0)
    add_note(world.ports, 2, 10)
    world.clock.set(NOON + HISTORY_RETENTION + timedelta(seconds=5))
    assert read_all(world) == ["token-2"]
