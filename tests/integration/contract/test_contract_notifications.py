"""Notifications: each stored one is delivered once, however often it is put."""

from punctual.domain.run import RunStatus
from punctual.engine.ports.notifications import Notification
from tests.support.aws.adapters import World
from tests.support.builders import JOB, NOON, RUN, an_id


def a_notification(
    run_id: str = RUN, entry: int = 0, occurrences: int = 1, tenant: str = "acme"
) -> Notification:
    return Notification(tenant, JOB, run_id, entry, RunStatus.FAILED, occurrences, 4, "RUNNING")


def test_notification_is_read_as_it_was_put(world: World) -> None:
    notifications = [
        a_notification(an_id(1)),
        a_notification(an_id(2), 4),
        a_notification(an_id(3), 0, 1_000),
    ]
    assert list(world.ports.notifications.put(notifications)) == [True] * 3
    assert sorted(world.notifications(NOON)) == notifications


def test_notification_put_twice_is_stored_once(world: World) -> None:
    notification = a_notification()
    world.ports.notifications.put([notification, notification])
    repeated = notification._replace(
        version=9, previous_status=""
    )  # by a later evaluation of the same state
    assert list(world.ports.notifications.put([repeated])) == [True]
    assert list(world.notifications(NOON)) == [notification]


def test_notifications_of_other_entries_and_counts_are_separate(world: World) -> None:
    notifications = [
        a_notification(),
        a_notification(entry=1),
        a_notification(occurrences=2),
        a_notification(occurrences=3),
    ]
    for notification in notifications:
        world.ports.notifications.put([notification])
    assert len(world.notifications(NOON)) == 4


def test_more_notifications_than_one_request_holds_are_stored(world: World) -> None:
    notifications = [a_notification(an_id(number)) for number in range(25)]
    assert all(world.ports.notifications.put(notifications))
    assert sorted(world.notifications(NOON)) == sorted(notifications)


def test_notification_of_any_tenant_name_is_stored(world: World) -> None:
    notification = a_notification(tenant="ac/me # ☃ \ud7ff")
    world.ports.notifications.put([notification])
    assert list(world.notifications(NOON)) == [notification]
