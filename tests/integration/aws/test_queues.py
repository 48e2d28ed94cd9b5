"""Messages, wake-ups and events: their contents and their queues."""

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, cast

import pytest

from punctual.aws.event_bus import MAX_EVENT_BYTES_PER_PUT
from punctual.aws.sqs.run_queue import parse_message, to_body
from punctual.aws.sqs.sender import SqsBatchSender
from punctual.aws.sqs.wakeups import SqsWakeUps, parse_wake_up
from punctual.domain.errors import Invalid
from punctual.domain.job_state import Lane, Priority
from punctual.engine.dispatch.on_demand.wakeup_times import BURST_TIMERS
from punctual.engine.ports.partitions import TimerPartition
from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.run_queue import Message
from punctual.engine.ports.timers import Timer
from tests.support.aws.moto_adapter import BUS, Moto, moto
from tests.support.builders_jobs import NOON, after

JOB = "01900000-0000-7000-8000-000000000001"
RUN = "01900000-0000-7000-8000-0000000000a%d"
MINUTE = timedelta(minutes=1)


@pytest.fixture
def aws() -> Iterator[Moto]:
    with moto(lambda: NOON) as aws:
        aws.ports.run_queue.send([])  # the dispatch switch is read once in thirty seconds
        yield aws


@pytest.fixture
def wake_ups(aws: Moto) -> list[tuple[list[TimerPartition], int]]:
    """The sent wake-ups: their partitions, and their delays in seconds."""
    sent: list[tuple[list[TimerPartition], int]] = []

    def note(params: dict[str, Any], **_: object) -> None:
        sent.extend(
            (parse_wake_up(entry["MessageBody"]), entry["DelaySeconds"])
            for entry in params["Entries"]
        )

    aws.clients.sqs.meta.events.register("provide-client-params.sqs.SendMessageBatch", note)
    return sent


def a_message(run: int = 1, **fields: object) -> Message:
    message = Message(
        "té\uffff#", JOB, RUN % run, after(0.25), Priority.NORMAL, Lane.QUICK, 7, "http"
    )
    return message._replace(**fields)  # type: ignore[arg-type]


def test_message_is_received_as_it_was_sent(aws: Moto) -> None:
    message = a_message()
    assert aws.ports.run_queue.send([message]) == [True]
    (received,) = aws.messages(aws.settings.queues["quick-normal"])
    assert parse_message(received["Body"]) == message
    assert received["Body"].isascii()
    assert len(received["Body"]) < 300


def test_message_ignores_unknown_fields() -> None:
    values = json.loads(to_body(a_message()))
    assert parse_message(json.dumps({**values, "h": [2, {"version": 8}]})) == a_message()


def test_each_message_has_its_own_group(aws: Moto) -> None:
    """Two runs of a job have different groups, and so have two messages of one run."""
    aws.ports.run_queue.send([a_message(1), a_message(2), a_message(1, version=8)])
    received = aws.messages(aws.settings.queues["quick-normal"])
    groups = [message["Attributes"]["MessageGroupId"] for message in received]
    assert sorted(groups) == [f"{JOB}/{RUN % 1}/7", f"{JOB}/{RUN % 1}/8", f"{JOB}/{RUN % 2}/7"]
    assert all(len(group) <= 128 for group in groups)


def test_message_of_later_version_is_not_deduplicated(aws: Moto) -> None:
    messages = [a_message(), a_message(), a_message(version=8)]
    assert aws.ports.run_queue.send(messages) == [True, True, True]
    received = aws.messages(aws.settings.queues["quick-normal"])
    marks = [message["Attributes"]["MessageDeduplicationId"] for message in received]
    assert sorted(marks) == [f"{JOB}/{RUN % 1}/7", f"{JOB}/{RUN % 1}/8"]


def test_message_is_sent_to_queue_of_its_lane_and_priority(aws: Moto) -> None:
    wanted = {
        (Lane.QUICK, Priority.HIGH): "quick-high",
        (Lane.QUICK, Priority.LOW): "quick-low",
        (Lane.LONG, Priority.HIGH): "long",
        (Lane.LONG, Priority.LOW): "long",
    }
    messages = [
        a_message(n, lane=lane, priority=priority) for n, (lane, priority) in enumerate(wanted)
    ]
    assert aws.spend(lambda: aws.ports.run_queue.send(messages)) == {"SendMessageBatch": 3}
    for name in ("quick-high", "quick-low", "long"):
        received = aws.messages(aws.settings.queues[name])
        parsed = {parse_message(message["Body"]) for message in received}
        assert parsed == {m for m in messages if wanted[m.lane, m.priority] == name}


def test_messages_are_sent_ten_at_a_time(aws: Moto) -> None:
    messages = [a_message(n, priority=Priority(n % 2)) for n in range(26)]
    taken: list[bool] = []
    spent = aws.spend(lambda: taken.extend(aws.ports.run_queue.send(messages)))
    assert spent == {"SendMessageBatch": 4}
    assert taken == [True] * 26
    assert aws.spend(lambda: aws.ports.run_queue.send([])) == {}


@pytest.mark.parametrize("body", ["", "[]", "{}", "null", '{"f":2}', '"x"', "{"])
def test_unreadable_message_body_is_refused(body: str) -> None:
    with pytest.raises(Invalid, match="not a message"):
        parse_message(body)
    with pytest.raises(Invalid, match="not a wake-up"):
        parse_wake_up(body)


def test_message_of_newer_format_is_refused() -> None:
    later = {**json.loads(to_body(a_message())), "f": 2}
    with pytest.raises(Invalid, match="later version"):
        parse_message(json.dumps(later))


def a_timer(minutes: int, shard: int = 0, job_id: str = "j") -> Timer:
    return Timer(NOON + minutes * MINUTE, shard, after(60 * minutes), "t", job_id, 1)


def test_near_minutes_of_timer_batch_get_one_wake_up_each(
    aws: Moto, wake_ups: list[tuple[list[TimerPartition], int]]
) -> None:
    timers = [a_timer(0), a_timer(0, job_id="k"), a_timer(0, 1), a_timer(2), a_timer(90)]
    assert aws.spend(lambda: aws.ports.wakeups.notify_new_timers(timers)) == {"SendMessageBatch": 1}
    assert wake_ups == [
        ([TimerPartition(NOON, 0), TimerPartition(NOON, 1)], 0),
        (
            [TimerPartition(NOON + 2 * MINUTE, 0)],
            118,
        ),  # two minutes, less the start of a poller
    ]


def test_later_timers_need_no_second_wake_up(
    aws: Moto, wake_ups: list[tuple[list[TimerPartition], int]]
) -> None:
    nudge = aws.ports.wakeups.notify_new_timers
    nudge([a_timer(1)])
    assert aws.spend(lambda: nudge([a_timer(1, job_id="k"), a_timer(90)])) == {}
    later = a_timer(1, job_id="l")
    nudge([later._replace(at=later.at + timedelta(seconds=40))])
    assert [seconds for _, seconds in wake_ups] == [58]
    sooner = Timer(NOON, 0, after(30), "t", "m", 1)
    nudge([sooner])
    nudge([sooner._replace(at=after(20))])
    assert [seconds for _, seconds in wake_ups] == [58, 28, 18]


def test_many_timers_wake_poller_a_minute_before(
    aws: Moto, wake_ups: list[tuple[list[TimerPartition], int]]
) -> None:
    aws.ports.wakeups.notify_new_timers(
        [a_timer(2, job_id=f"j{n}") for n in range(BURST_TIMERS - 1)]
    )
    aws.ports.wakeups.notify_new_timers([a_timer(2)])
    aws.ports.wakeups.notify_new_timers([a_timer(2, job_id="one more")])
    assert [seconds for _, seconds in wake_ups] == [116, 60]


@pytest.mark.parametrize("before", ["another place of its minute", "a minute early, for many"])
def test_wake_up_sent_before_a_new_timer_is_sent_again(aws: Moto, before: str) -> None:
    """The poller that received the first wake-up did not see the later timer."""
    now = [NOON]
    sent: list[list[TimerPartition]] = []

    class RecordingSender:
        def send(self, _url: str, entries: Sequence[dict[str, Any]]) -> list[bool]:
            sent.extend(parse_wake_up(entry["MessageBody"]) for entry in entries)
            return [True] * len(entries)

    wake = SqsWakeUps(cast(SqsBatchSender, RecordingSender()), "", lambda: now[0])
    late = Timer(NOON, 1, after(50), "t", "j", 1)
    if before.startswith("another"):
        wake.notify_new_timers([Timer(NOON, 0, after(20), "t", "j", 1), late])
    else:
        wake.notify_new_timers([late._replace(job_id=f"j{n}") for n in range(BURST_TIMERS)])
    now[0] = after(25)
    wake.notify_new_timers([Timer(NOON, 1, after(55), "t", "later", 1)])
    assert [TimerPartition(NOON, 1) in places for places in sent] == [True, True]


def test_timers_of_distant_minutes_need_no_wake_up(aws: Moto) -> None:
    assert aws.spend(lambda: aws.ports.wakeups.notify_new_timers([a_timer(4), a_timer(600)])) == {}
    assert aws.spend(lambda: aws.ports.wakeups.notify_new_timers([])) == {}


@pytest.mark.parametrize(("seconds", "delay"), [(30.9, 30), (-5, 0), (3_600, 900)])
def test_wake_up_delay_is_rounded_down_and_bounded(aws: Moto, seconds: float, delay: int) -> None:
    sent: list[int] = []

    def note(params: dict[str, list[dict[str, int]]], **_: object) -> None:
        sent.extend(entry["DelaySeconds"] for entry in params["Entries"])

    aws.clients.sqs.meta.events.register("provide-client-params.sqs.SendMessageBatch", note)
    aws.ports.wakeups.send_wake_up([TimerPartition(NOON, 0)], after(seconds))
    assert sent == [delay]


def test_stop_request_makes_no_call(aws: Moto) -> None:
    assert aws.spend(lambda: aws.ports.wakeups.request_stop(JobKey("t", "j"), ["r"])) == {}


def an_event(size: int = 1) -> dict[str, object]:
    return {"source": "punctual", "detail-type": "Job Run", "detail": {"payload": "é" * size}}


def test_events_are_published_ten_at_a_time(aws: Moto) -> None:
    ids: list[str] = []
    events = [an_event(n) for n in range(12)]
    assert aws.spend(lambda: ids.extend(aws.ports.feed.publish(events))) == {"PutEvents": 2}
    assert len(set(ids)) == 12
    assert aws.spend(lambda: aws.ports.feed.publish([])) == {}


def test_large_events_are_published_in_several_calls(aws: Moto) -> None:
    events = [an_event(60_000) for _ in range(5)]
    assert aws.spend(lambda: aws.ports.feed.publish(events)) == {"PutEvents": 3}


def test_event_over_size_limit_is_refused_with_its_limit(aws: Moto) -> None:
    with pytest.raises(Invalid, match=f"at most {MAX_EVENT_BYTES_PER_PUT} bytes"):
        aws.ports.feed.publish([an_event(MAX_EVENT_BYTES_PER_PUT)])


def test_event_names_its_bus(aws: Moto) -> None:
    entries: list[dict[str, str]] = []

    def note(params: dict[str, list[dict[str, str]]], **_: object) -> None:
        entries.extend(params["Entries"])

    aws.clients.events.meta.events.register("provide-client-params.eventbridge.PutEvents", note)
    aws.ports.feed.publish([an_event()])
    assert entries == [
        {
            "Source": "punctual",
            "DetailType": "Job Run",
            "Detail": '{"payload":"é"}',
            "EventBusName": BUS,
        }
    ]
