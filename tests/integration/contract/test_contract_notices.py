"""Notices: what was taken is there to be told, once, whoever puts it how often."""

from punctual.domain.run import RunStatus
from punctual.engine.ports.notifications import Notification
from tests.support.aws.adapters import World
from tests.support.builders import JOB, NOON, RUN, an_id


def a_notice(
    run_id: str = RUN, entry: int = 0, occurrences: int = 1, tenant: str = "acme"
) -> Notification:
    return Notification(tenant, JOB, run_id, entry, RunStatus.FAILED, occurrences, 4, "RUNNING")


def test_what_is_put_is_there_as_it_was_put(world: World) -> None:
    wanted = [a_notice(an_id(1)), a_notice(an_id(2), 4), a_notice(an_id(3), 0, 1_000)]
    assert list(world.ports.notifications.put(wanted)) == [True] * 3
    assert sorted(world.told(NOON)) == wanted


def test_the_same_twice_is_one(world: World) -> None:
    notice = a_notice()
    world.ports.notifications.put([notice, notice])
    again = notice._replace(version=9, previous_status="")  # by a later look at the same head
    assert list(world.ports.notifications.put([again])) == [True]
    assert list(world.told(NOON)) == [notice]


def test_entries_and_bulk_entries_that_grew_are_told_apart(world: World) -> None:
    wanted = [a_notice(), a_notice(entry=1), a_notice(occurrences=2), a_notice(occurrences=3)]
    for notice in wanted:
        world.ports.notifications.put([notice])
    assert len(world.told(NOON)) == 4


def test_more_than_a_request_takes_are_taken(world: World) -> None:
    wanted = [a_notice(an_id(number)) for number in range(25)]
    assert all(world.ports.notifications.put(wanted))
    assert sorted(world.told(NOON)) == sorted(wanted)


def test_a_tenant_of_any_name_is_kept(world: World) -> None:
    notice = a_notice(tenant="ac/me # ☃ \ud7ff")
    world.ports.notifications.put([notice])
    assert list(world.told(NOON)) == [notice]
