"""The rows of names: one writer wins, and a mark reaches only the row that was read."""

import pytest

from punctual.engine.ports.lists.job_names import NameKey, NameRow
from tests.support.builders import an_id
from tests.support.ports import Ports

# Every length and character that the API accepts fits into a key.
NAMES = ("report", "Bericht für München", "a b#c$d", "\U0001f600" * 256, " " * 256, "a#", "#")


def a_row(name: str = "report", job: int = 1, mark: str = "m1", tenant: str = "acme") -> NameRow:
    return NameRow(tenant, name, an_id(job), mark)


def found(ports: Ports, *rows: NameRow) -> list[NameRow | None]:
    by_key = ports.job_names.find([row.key for row in rows])
    return [by_key.get(row.key) for row in rows]


def test_first_row_of_a_name_stays(ports: Ports) -> None:
    first, second = a_row(job=1), a_row(job=2, mark="m2")
    assert list(ports.job_names.put([first])) == [None]
    assert list(ports.job_names.put([second])) == [first]
    assert found(ports, first) == [first]


def test_put_again_with_the_same_mark_has_won(ports: Ports) -> None:
    assert list(ports.job_names.put([a_row()])) == [None]
    assert list(ports.job_names.put([a_row()])) == [None]
    own_again = a_row(mark="m2")
    assert list(ports.job_names.put([own_again])) == [a_row()]


def test_row_is_replaced_by_its_mark(ports: Ports) -> None:
    first, second, third = a_row(), a_row(job=2, mark="m2"), a_row(job=3, mark="m3")
    ports.job_names.put([first])
    assert list(ports.job_names.replace([(first, second)])) == [True]
    assert list(ports.job_names.replace([(first, third)])) == [False]
    assert found(ports, first) == [second]
    # A retry of the adapter, after an answer that was lost, has won too.
    assert list(ports.job_names.replace([(first, second)])) == [True]


def test_missing_row_is_not_replaced(ports: Ports) -> None:
    assert list(ports.job_names.replace([(a_row(), a_row(job=2, mark="m2"))])) == [False]
    assert found(ports, a_row()) == [None]


def test_row_is_removed_by_its_mark(ports: Ports) -> None:
    first, second = a_row(), a_row(mark="m2")
    ports.job_names.put([first])
    ports.job_names.replace([(first, second)])
    ports.job_names.remove([first])
    assert found(ports, first) == [second]
    ports.job_names.remove([second, a_row("missing")])
    assert found(ports, first) == [None]
    assert list(ports.job_names.put([first])) == [None]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:8])
def test_every_name_has_a_row(ports: Ports, name: str) -> None:
    row = a_row(name)
    ports.job_names.put([row])
    assert found(ports, row) == [row]
    assert row in ports.job_states.walk(None, 1_000).names


def test_tenants_and_similar_names_stay_apart(ports: Ports) -> None:
    rows = [
        a_row(name, n, tenant=tenant)
        for n, (tenant, name) in enumerate(
            [("acme", "a"), ("acme", "A"), ("acme", "a "), ("bcme", "a"), ("acme#names", "a")]
        )
    ]
    assert list(ports.job_names.put(rows)) == [None] * len(rows)
    assert found(ports, *rows) == rows
    ports.job_names.remove([rows[0]])
    assert found(ports, *rows) == [None, *rows[1:]]
    assert ports.job_names.find([NameKey("ccme", "a")]) == {}


def test_walk_visits_each_row_once(ports: Ports) -> None:
    rows = [a_row(f"name {n}", n, tenant=f"t{n % 3}") for n in range(25)]
    ports.job_names.put(rows)
    visited: list[NameRow] = []
    cursor: str | None = None
    for _ in range(100):
        page = ports.job_states.walk(cursor, 4)
        visited += page.names
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(visited) == sorted(rows)
