"""What goes in and out: receipts of requests, messages to executors, published events."""

from datetime import timedelta

from punctual.domain.job_state import Lane, Priority, Rules
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.run_queue import Message
from tests.support.aws.adapters import World
from tests.support.builders import JOB, NOON, RUN, a_head, a_receipt, a_run, after, an_id
from tests.support.ports import Ports

DAY = timedelta(hours=24)


def a_message(
    run_id: str = RUN, version: int = 2, lane: Lane = Lane.QUICK, job_id: str = JOB
) -> Message:
    return Message("acme", job_id, run_id, NOON, Priority.NORMAL, lane, version, "event")


def test_the_first_receipt_of_a_key_stands(ports: Ports) -> None:
    first, second = a_receipt(an_id(1)), a_receipt(an_id(2), "another body")
    assert list(ports.receipts.claim("acme", [("k", first)], NOON)) == [first]
    assert list(ports.receipts.claim("acme", [("k", second)], after(1))) == [first]


def test_a_receipt_stands_for_its_time_and_no_longer(ports: Ports) -> None:
    first = a_receipt(an_id(1), expires_at=NOON + DAY)
    second = a_receipt(an_id(2), created_at=NOON + DAY, expires_at=NOON + DAY * 2)
    ports.receipts.claim("acme", [("k", first)], NOON)
    last = NOON + DAY - timedelta(microseconds=1)
    assert list(ports.receipts.claim("acme", [("k", second)], last)) == [first]
    assert list(ports.receipts.claim("acme", [("k", second)], NOON + DAY)) == [second]
    assert list(ports.receipts.claim("acme", [("k", first)], NOON + DAY)) == [second]


def test_keys_of_tenants_never_meet(ports: Ports) -> None:
    pairs = [("acme", "k"), ("acme#", "k"), ("acme", "#k"), ("acme#k", ""), ("acme", "k/0")]
    for number, (tenant, key) in enumerate(pairs):
        mine = a_receipt(an_id(number))
        assert list(ports.receipts.claim(tenant, [(key or "x", mine)], NOON)) == [mine]


def test_a_key_twice_in_one_batch_is_one(ports: Ports) -> None:
    first, second = a_receipt(an_id(1)), a_receipt(an_id(2))
    assert list(ports.receipts.claim("acme", [("k", first), ("k", second)], NOON)) == [first] * 2


def test_a_large_batch_is_answered_in_order(ports: Ports) -> None:
    old = [(f"k/{n}", a_receipt(an_id(n))) for n in range(0, 150, 2)]
    ports.receipts.claim("acme", old, NOON)
    new = [(f"k/{n}", a_receipt(an_id(1_000 + n))) for n in range(150)]
    made = [receipt.created_id for receipt in ports.receipts.claim("acme", new, after(1))]
    assert made == [an_id(n if n % 2 == 0 else 1_000 + n) for n in range(150)]


def test_a_receipt_is_found_while_it_stands_and_none_is_made(ports: Ports) -> None:
    first = a_receipt(an_id(1), expires_at=NOON + DAY)
    ports.receipts.claim("acme", [("k", first)], NOON)
    assert ports.receipts.find("acme", ["k", "other"], after(1)) == {"k": first}
    assert ports.receipts.find("bcme", ["k"], after(1)) == {}
    assert ports.receipts.find("acme", ["k"], NOON + DAY) == {}
    assert ports.receipts.find("acme", [], NOON) == {}
    late = a_receipt(an_id(2), created_at=after(1))
    assert list(ports.receipts.claim("acme", [("other", late)], after(1))) == [late]


def test_no_receipts_are_claimed_for_nothing(ports: Ports) -> None:
    assert list(ports.receipts.claim("acme", [], NOON)) == []


def send(world: World, *messages: Message) -> list[bool]:
    """Send messages of runs that stand queued, as the swap before a message leaves them."""
    for message in messages:
        key = JobKey(message.tenant, message.job_id)
        standing = world.ports.job_states.load([key]).get(key)
        version = 0 if standing is None else standing.state.version
        rules = {1: Rules("1-body", NOON, "script", message.lane, message.priority)}
        run = a_run(message.run_id, due_at=message.due_at)
        head = a_head(message.job_id, version + 1, f"w{version}", rules=rules, runs=(run,))
        assert list(world.ports.job_states.swap([Swap(head, version)])) == [True]
    return list(world.ports.run_queue.send(messages))


def delivered(world: World) -> list[tuple[str, str]]:
    return [(message.job_id, message.run_id) for message in world.delivered(NOON)]


def test_messages_are_taken_and_delivered(world: World) -> None:
    sent = [
        a_message(an_id(n), job_id=an_id(n), lane=Lane.LONG if n % 5 == 0 else Lane.QUICK)
        for n in range(25)
    ]
    assert send(world, *sent) == [True] * 25
    assert sorted(delivered(world)) == sorted((an_id(n), an_id(n)) for n in range(25))


def test_a_message_sent_twice_is_delivered_at_least_once(world: World) -> None:
    assert send(world, a_message()) == [True]
    assert send(world, a_message()) == [True]
    assert set(delivered(world)) == {(JOB, RUN)}


def test_a_message_of_a_newer_version_is_another(world: World) -> None:
    """A look sends again what stands queued: the queue must not take it for the first."""
    assert send(world, a_message(version=2)) == [True]
    assert set(delivered(world)) == {(JOB, RUN)}
    assert send(world, a_message(version=3)) == [True]
    assert (JOB, RUN) in delivered(world)


def test_no_messages_are_no_answer(ports: Ports) -> None:
    assert list(ports.run_queue.send([])) == []


def test_each_event_gets_an_id_of_its_own(ports: Ports) -> None:
    events = [
        {"source": "punctual", "detail-type": "Job Run 🎉", "detail": {"n": n, "payload": None}}
        for n in range(25)
    ]
    ids = list(ports.feed.publish(events))
    more = list(ports.feed.publish(events[:1]))
    assert len({*ids, *more}) == 26
    assert all(ids)


def test_no_events_have_no_ids(ports: Ports) -> None:
    assert list(ports.feed.publish([])) == []
