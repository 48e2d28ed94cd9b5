"""Ids of one process."""

from datetime import UTC, datetime

from punctual.identity import new_id

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


def test_ids_of_one_millisecond_rise_and_are_all_different() -> None:
    make = new_id(lambda: NOON)
    ids = [make() for _ in range(20_000)]
    assert ids == sorted(set(ids))


def test_two_processes_make_different_ids() -> None:
    one, other = new_id(lambda: NOON), new_id(lambda: NOON)
    assert not {one() for _ in range(1_000)} & {other() for _ in range(1_000)}
