"""Ids that one process creates."""

from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID

from punctual.domain.identifiers import milliseconds
from punctual.identity import new_id

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


def test_ids_of_one_millisecond_rise_and_are_all_different() -> None:
    make = new_id(lambda: NOON)
    ids = [make() for _ in range(20_000)]
    assert ids == sorted(set(ids))


def test_two_processes_make_different_ids() -> None:
    one, other = new_id(lambda: NOON), new_id(lambda: NOON)
    assert not {one() for _ in range(1_000)} & {other() for _ in range(1_000)}


def test_an_id_is_a_version_7_uuid_of_its_millisecond() -> None:
    at = NOON + timedelta(microseconds=123_999)
    clock = iter([at, NOON, at])
    make = new_id(lambda: next(clock))
    for moment in (at, NOON, at):
        found = UUID(made := make())
        assert (str(found), found.version, found.variant) == (made, 7, RFC_4122)
        assert found.int >> 80 == milliseconds(moment)
