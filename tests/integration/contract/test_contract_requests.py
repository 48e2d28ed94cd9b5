"""Receipts of requests, messages to executors, and published events."""

from datetime import timedelta

from punctual.domain.job_state import Lane, Priority, Rules
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.run_queue import Message
from tests.support.aws.adapters import World
from tests.support.builders import JOB, NOON, RUN, a_job_state, a_receipt, a_run, after, an_id
from tests.support.ports import Ports

DAY = timedelta(hours=24)


def a_message(
    run_id: str = RUN, version: int = 2, lane: Lane = Lane.QUICK, job_id: str = JOB
) -> Message:
    return Message("acme", job_id, run_id, NOON, Priority.NORMAL, lane, version, "event")


def test_first_receipt_of_a_key_wins(ports: Ports) -> None:
    first, second = a_receipt(an_id(1)), a_receipt(an_id(2), "another body")
    assert list(ports.receipts.claim("acme", [("k", first)], NOON)) == [first]
    assert list(ports.receipts.claim("acme", [("k", second)], after(1))) == [first]


def test_receipt_is_valid_until_it_expires(ports: Ports) -> None:
    first = a_receipt(an_id(1), expires_at=NOON + DAY)
    second = a_receipt(an_id(2), created_at=NOON + DAY, expires_at=NOON + DAY * 2)
    ports.receipts.claim("acme", [("k", first)], NOON)
    last = NOON + DAY - timedelta(microseconds=1)
    assert list(ports.receipts.claim("acme", [("k", second)], last)) == [first]
    assert list(ports.receipts.claim("acme", [("k", second)], NOON + DAY)) == [second]
    assert list(ports.receipts.claim("acme", [("k", first)], NOON + DAY)) == [second]


def test_receipts_of_similar_tenants_and_keys_stay_apart(ports: Ports) -> None:
    pairs = [("acme", "k"), ("acme#", "k"), ("acme", "#k"), ("acme#k", ""), ("acme", "k/0")]
    for number, (tenant, key) in enumerate(pairs):
        new_receipt = a_receipt(an_id(number))
        assert list(ports.receipts.claim(tenant, [(key or "x", new_receipt)], NOON)) == [
            new_receipt
        ]


def test_key_twice_in_one_batch_has_one_receipt(ports: Ports) -> None:
    first, second = a_receipt(an_id(1)), a_receipt(an_id(2))
    assert list(ports.receipts.claim("acme", [("k", first), ("k", second)], NOON)) == [first] * 2


def test_large_batch_is_answered_in_order(ports: Ports) -> None:
    old = [(f"k/{n}", a_receipt(an_id(n))) for n in range(0, 150, 2)]
    ports.receipts.claim("acme", old, NOON)
    new = [(f"k/{n}", a_receipt(an_id(1_000 + n))) for n in range(150)]
    created_ids = [receipt.created_id for receipt in ports.receipts.claim("acme", new, after(1))]
    assert created_ids == [an_id(n if n % 2 == 0 else 1_000 + n) for n in range(150)]


def test_find_returns_valid_receipts_and_creates_none(ports: Ports) -> None:
    first = a_receipt(an_id(1), expires_at=NOON + DAY)
    ports.receipts.claim("acme", [("k", first)], NOON)
    assert ports.receipts.find("acme", ["k", "other"], after(1)) == {"k": first}
    assert ports.receipts.find("bcme", ["k"], after(1)) == {}
    assert ports.receipts.find("acme", ["k"], NOON + DAY) == {}
    assert ports.receipts.find("acme", [], NOON) == {}
    late = a_receipt(an_id(2), created_at=after(1))
    assert list(ports.receipts.claim("acme", [("other", late)], after(1))) == [late]


def test_claim_without_keys_returns_no_receipts(ports: Ports) -> None:
    assert list(ports.receipts.claim("acme", [], NOON)) == []


def send(world: World, *messages: Message) -> list[bool]:
    """Store the queued runs of these messages, and send the messages."""
    for message in messages:
        key = JobKey(message.tenant, message.job_id)
        stored = world.ports.job_states.load([key]).get(key)
        version = 0 if stored is None else stored.state.version
        rules = {1: Rules("1-body", NOON, "script", message.lane, message.priority)}
        run = a_run(message.run_id, due_at=message.due_at)
        head = a_job_state(message.job_id, version + 1, f"w{version}", rules=rules, runs=(run,))
        assert list(world.ports.job_states.swap([Swap(head, version)])) == [True]
    return list(world.ports.run_queue.send(messages))


def delivered_runs(world: World) -> list[tuple[str, str]]:
    return [(message.job_id, message.run_id) for message in world.delivered(NOON)]


def test_sent_messages_are_delivered(world: World) -> None:
    sent = [
        a_message(an_id(n), job_id=an_id(n), lane=Lane.LONG if n % 5 == 0 else Lane.QUICK)
        for n in range(25)
    ]
    assert send(world, *sent) == [True] * 25
    assert sorted(delivered_runs(world)) == sorted((an_id(n), an_id(n)) for n in range(25))


def test_message_sent_twice_is_delivered_at_least_once(world: World) -> None:
    assert send(world, a_message()) == [True]
    assert send(world, a_message()) == [True]
    assert set(delivered_runs(world)) == {(JOB, RUN)}


def test_message_of_a_newer_version_is_delivered_again(world: World) -> None:
    """An evaluation sends a queued run again. The queue must not treat it as a duplicate."""
    assert send(world, a_message(version=2)) == [True]
    assert set(delivered_runs(world)) == {(JOB, RUN)}
    assert send(world, a_message(version=3)) == [True]
    assert (JOB, RUN) in delivered_runs(world)


def test_send_without_messages_returns_nothing(ports: Ports) -> None:
    assert list(ports.run_queue.send([])) == []


def test_each_published_event_has_its_own_id(ports: Ports) -> None:
    events = [
        {"source": "punctual", "detail-type": "Job Run 🎉", "detail": {"n": n, "payload": None}}
        for n in range(25)
    ]
    ids = list(ports.feed.publish(events))
    more = list(ports.feed.publish(events[:1]))
    assert len({*ids, *more}) == 26
    assert all(ids)


def test_publish_without_events_returns_no_ids(ports: Ports) -> None:
    assert list(ports.feed.publish([])) == []
