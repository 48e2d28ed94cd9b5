"""Ids that one process creates."""

from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID

from punctual.domain.identifiers import milliseconds
from punctual.identity import new_id

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


def test_ids_of_one_millisecond_rise_and_are_unique() -> None:
    new_identifier = new_id(lambda: NOON)
    ids = [new_identifier() for _ in range(20_000)]
    assert ids == sorted(set(ids))


def test_two_processes_make_different_ids() -> None:
    first, second = new_id(lambda: NOON), new_id(lambda: NOON)
    assert not {first() for _ in range(1_000)} & {second() for _ in range(1_000)}


def test_id_is_a_version_7_uuid_of_its_millisecond() -> None:
    at = NOON + timedelta(microseconds=123_999)
    clock = iter([at, NOON, at])
    new_identifier = new_id(lambda: next(clock))
    for time in (at, NOON, at):
        parsed = UUID(identifier := new_identifier())
        assert (str(parsed), parsed.version, parsed.variant) == (identifier, 7, RFC_4122)
        assert parsed.int >> 80 == milliseconds(time)
