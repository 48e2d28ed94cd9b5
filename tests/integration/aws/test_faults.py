"""Lost answers, refused calls and partial batches have the right result."""

from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from punctual.domain.errors import Unavailable
from punctual.domain.job_state import Lane, Priority
from punctual.domain.run import Lease
from punctual.engine.ports.job_states import LeaseRenewal, StoredState, Swap
from punctual.engine.ports.rows import JobKey, Receipt
from punctual.engine.ports.run_queue import Message
from punctual.engine.ports.timers import Timer
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.aws.moto_faults import (
    failed_entries,
    in_part,
    lost_answers,
    refused,
    sent_twice,
    unreached,
)
from tests.support.builders_jobs import JOB_ID, NOON, a_job, after

KEY = JobKey("t", JOB_ID)
RUN = "01900000-0000-7000-8000-0000000000aa"
HEAD = a_job(write_ids=("w1",))
NEXT = replace(HEAD, version=2, write_ids=("w1", "me"))
OTHER = replace(HEAD, version=2, write_ids=("w1", "another"))


@pytest.fixture
def aws() -> Iterator[Moto]:
    with moto(lambda: NOON) as aws:
        aws.ports.job_states.swap([Swap(HEAD, 0)])
        yield aws


@pytest.mark.parametrize("times", [1, 3, 4])
def test_swap_with_lost_answer_has_won(aws: Moto, times: int) -> None:
    """After four tries the adapter reads the row."""
    with lost_answers(aws.clients.dynamodb, "UpdateItem", times):
        assert aws.ports.job_states.swap([Swap(NEXT, 1)]) == [True]
    assert aws.ports.job_states.load([KEY]) == {KEY: StoredState(NEXT, {})}


def test_creation_with_lost_answer_has_won(aws: Moto) -> None:
    new = a_job(job_id="new", write_ids=("me",))
    with lost_answers(aws.clients.dynamodb, "PutItem", 1):
        assert aws.ports.job_states.swap([Swap(new, 0)]) == [True]


def test_swap_repeated_by_botocore_has_won(aws: Moto) -> None:
    with sent_twice(aws.clients.dynamodb, "UpdateItem"):
        assert aws.ports.job_states.swap([Swap(NEXT, 1)]) == [True]
    assert aws.slept == []


def test_swap_after_a_concurrent_swap_is_lost(aws: Moto) -> None:
    with unreached(aws.clients.dynamodb, "UpdateItem", 1):
        aws.clients.dynamodb.meta.events.register_last(
            "before-call.dynamodb.UpdateItem", _once(lambda: _write_as_another(aws))
        )
        assert aws.ports.job_states.swap([Swap(NEXT, 1)]) == [False]
    assert aws.ports.job_states.load([KEY]) == {KEY: StoredState(OTHER, {})}


def _once(work: Callable[[], None]) -> Callable[..., None]:
    left = [work]

    def handler(**_: object) -> None:
        if left:
            left.pop()()

    return handler


def _write_as_another(aws: Moto) -> None:
    assert aws.ports.job_states.swap([Swap(OTHER, 1)]) == [True]


@pytest.mark.parametrize(
    ("code", "status"),
    [("InternalServerError", 500), ("ProvisionedThroughputExceededException", 400)],
)
def test_swap_without_effect_is_unavailable_and_not_lost(aws: Moto, code: str, status: int) -> None:
    with (
        refused(aws.clients.dynamodb, "UpdateItem", 99, code, status),
        pytest.raises(Unavailable, match="did not answer while writing jobs"),
    ):
        aws.ports.job_states.swap([Swap(NEXT, 1)])
    assert len(aws.slept) == 3
    assert aws.ports.job_states.load([KEY]) == {KEY: StoredState(HEAD, {})}


def test_unanswered_swap_is_lost_if_row_has_newer_version(aws: Moto) -> None:
    aws.ports.job_states.swap([Swap(OTHER, 1)])
    with unreached(aws.clients.dynamodb, "UpdateItem", 99):
        assert aws.ports.job_states.swap([Swap(NEXT, 1)]) == [False]


def test_failed_swap_does_not_stop_other_swaps(aws: Moto) -> None:
    new = [a_job(job_id=f"j{n}", write_ids=("me",)) for n in range(3)]
    with (
        refused(aws.clients.dynamodb, "PutItem", 1, "AccessDeniedException"),
        pytest.raises(Unavailable, match="AccessDeniedException while writing jobs"),
    ):
        aws.ports.job_states.swap([Swap(head, 0) for head in new])
    assert set(aws.ports.job_states.load([JobKey("t", head.job_id) for head in new])) == {
        JobKey("t", "j1"),
        JobKey("t", "j2"),
    }


def test_renewal_with_lost_answer_has_renewed(aws: Moto) -> None:
    aws.ports.job_states.swap([Swap(NEXT, 1, {RUN: Lease(2, after(30))})])
    with lost_answers(aws.clients.dynamodb, "UpdateItem", 2):
        assert aws.ports.job_states.renew_leases([LeaseRenewal(KEY, RUN, 2, after(60))]) == [NEXT]


TIMERS = [Timer(NOON, 0, after(n), "t", f"j{n}", 1) for n in range(30)]


def due(aws: Moto) -> list[Timer]:
    return list(aws.ports.timers.due(NOON, 0, after(60), None, 100).timers)


def test_unprocessed_rows_of_a_batch_are_sent_again(aws: Moto) -> None:
    with in_part(aws.clients.dynamodb, "BatchWriteItem", 2, done=10) as sent:
        aws.ports.timers.put(TIMERS[:25])
    assert sent == [25, 15, 5]
    assert len(aws.slept) == 2
    assert due(aws) == TIMERS[:25]


def test_unprocessed_deletes_are_sent_again(aws: Moto) -> None:
    aws.ports.timers.put(TIMERS)
    with in_part(aws.clients.dynamodb, "BatchWriteItem", 1, done=1) as sent:
        aws.ports.timers.delete(TIMERS[:20])
    assert sent == [20, 19]
    assert due(aws) == TIMERS[20:]


def test_unprocessed_keys_are_read_again(aws: Moto) -> None:
    new = [a_job(job_id=f"j{n}", write_ids=("w",)) for n in range(12)]
    aws.ports.job_states.swap([Swap(head, 0) for head in new])
    with in_part(aws.clients.dynamodb, "BatchGetItem", 2, done=5) as asked:
        states = aws.ports.job_states.load([JobKey("t", head.job_id) for head in new])
    assert asked == [12, 7, 2]
    assert len(states) == 12


@pytest.mark.parametrize("reached", [True, False])
def test_batch_without_progress_is_unavailable(aws: Moto, reached: bool) -> None:
    client = aws.clients.dynamodb
    faults = (
        refused(client, "BatchWriteItem", 99, "ThrottlingException")
        if reached
        else unreached(client, "BatchWriteItem", 99)
    )
    with faults, pytest.raises(Unavailable, match="left 5 rows unprocessed while writing timers"):
        aws.ports.timers.put(TIMERS[:5])
    assert len(aws.slept) == 3
    assert sum(aws.slept) < 10


def test_batch_is_retried_after_lost_answer(aws: Moto) -> None:
    with lost_answers(aws.clients.dynamodb, "BatchWriteItem", 1):
        aws.ports.timers.put(TIMERS[:5])
    assert due(aws) == TIMERS[:5]


def test_refused_read_is_unavailable(aws: Moto) -> None:
    with (
        refused(aws.clients.dynamodb, "Query", 1, "ResourceNotFoundException"),
        pytest.raises(Unavailable, match="ResourceNotFoundException while reading timers"),
    ):
        due(aws)


def test_watermark_write_with_lost_answer_has_advanced(aws: Moto) -> None:
    with lost_answers(aws.clients.dynamodb, "PutItem", 1):
        assert aws.ports.partitions.advance_watermark(None, NOON)
    assert not aws.ports.partitions.advance_watermark(None, NOON)
    with sent_twice(aws.clients.dynamodb, "PutItem"):
        assert aws.ports.partitions.advance_watermark(NOON, after(60))
    assert aws.ports.partitions.watermark() == after(60)


def test_repeated_release_and_completion_of_partition_succeed(aws: Moto) -> None:
    buckets = aws.ports.partitions
    lease = buckets.acquire(NOON, 0, "me", NOON, after(60))
    assert lease is not None
    with lost_answers(aws.clients.dynamodb, "UpdateItem", 1):
        assert buckets.release(lease)
    assert not buckets.release(lease)
    with lost_answers(aws.clients.dynamodb, "UpdateItem", 1):
        lease = buckets.acquire(NOON, 0, "me", NOON, after(60))
    assert lease is not None
    assert lease.token == 3  # the lost answer used up a token, which only has to grow
    with lost_answers(aws.clients.dynamodb, "UpdateItem", 1):
        assert buckets.mark_done(lease)


def test_receipt_with_lost_answer_is_stored(aws: Moto) -> None:
    receipt = Receipt("print", "id", NOON, after(60))
    with lost_answers(aws.clients.dynamodb, "PutItem", 1):
        assert aws.ports.receipts.claim("t", [("k", receipt)], NOON) == [receipt]


MESSAGES = [Message("t", "j", f"r{n}", NOON, Priority.NORMAL, Lane.QUICK, 1) for n in range(12)]


def test_failed_messages_are_sent_once_more(aws: Moto) -> None:
    with failed_entries(aws.clients.sqs, "SendMessageBatch", 1, {0, 3}) as sent:
        assert aws.ports.run_queue.send(MESSAGES) == [True] * 12
    assert sent == [10, 2, 2]


def test_message_that_fails_twice_is_reported_unsent(aws: Moto) -> None:
    with failed_entries(aws.clients.sqs, "SendMessageBatch", 99, {0}) as sent:
        assert aws.ports.run_queue.send(MESSAGES[:3]) == [False, True, True]
    assert sent == [3, 1]


def test_invalid_message_is_not_sent_again(aws: Moto) -> None:
    with failed_entries(aws.clients.sqs, "SendMessageBatch", 1, {1}, sender_fault=True) as sent:
        assert aws.ports.run_queue.send(MESSAGES[:3]) == [True, False, True]
    assert sent == [3]


def test_failed_call_does_not_stop_other_messages(aws: Moto) -> None:
    with refused(aws.clients.sqs, "SendMessageBatch", 1, "RequestThrottled"):
        assert aws.ports.run_queue.send(MESSAGES) == [False] * 10 + [True] * 2


def test_queue_without_answer_is_unavailable(aws: Moto) -> None:
    with (
        refused(aws.clients.sqs, "SendMessageBatch", 99, "InternalError", 500),
        pytest.raises(Unavailable, match="while sending messages"),
    ):
        aws.ports.run_queue.send(MESSAGES)


def test_unsent_wake_up_is_unavailable(aws: Moto) -> None:
    with (
        failed_entries(aws.clients.sqs, "SendMessageBatch", 99, {0}),
        pytest.raises(Unavailable),
    ):
        aws.ports.wakeups.notify_new_timers(TIMERS[:1])


EVENTS = [{"source": "punctual", "detail-type": "x", "detail": {"n": n}} for n in range(3)]


def test_failed_events_are_published_again(aws: Moto) -> None:
    with failed_entries(aws.clients.events, "PutEvents", 2, {0}) as sent:
        ids = aws.ports.feed.publish(EVENTS)
    assert sent == [3, 1, 1]
    assert len(set(ids)) == 3
    assert all(ids)


def test_bus_that_refuses_events_is_unavailable(aws: Moto) -> None:
    with (
        failed_entries(aws.clients.events, "PutEvents", 99, {0}),
        pytest.raises(Unavailable, match="did not take 1 events"),
    ):
        aws.ports.feed.publish(EVENTS)


def test_failing_blob_store_is_unavailable(aws: Moto) -> None:
    blobs = aws.ports.blobs
    planned: list[tuple[str, Callable[[], object]]] = [
        ("PutObject", lambda: blobs.put("a", b"", "")),
        ("GetObject", lambda: blobs.get("a")),
        ("DeleteObjects", lambda: blobs.delete(["a"])),
    ]
    for operation, work in planned:
        with (
            refused(aws.clients.s3, operation, 99, "InternalError", 500),
            pytest.raises(Unavailable, match="AWS did not answer"),
        ):
            work()
