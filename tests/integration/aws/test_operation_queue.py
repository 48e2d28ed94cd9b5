"""Messages of operations: their contents, their batches, and the failures of SQS."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from punctual.aws.sqs.operation_queue import OperationMessage, parse_operation_message, to_body
from punctual.domain.errors import Invalid, Unavailable
from punctual.engine.ports.lists.operations import OperationKey
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.aws.moto_faults import failed_entries, lost_answers, refused, unreached
from tests.support.builders_jobs import NOON

OPERATION = "01900000-0000-7000-8000-000000000001"


@pytest.fixture
def aws() -> Iterator[Moto]:
    with moto(lambda: NOON) as aws:
        yield aws


def a_message(number: int = 0, revision: int = 1, tries: int = 0) -> OperationMessage:
    return OperationMessage(OperationKey("té\uffff#", f"{OPERATION}{number}"), revision, tries)


def received(aws: Moto) -> list[OperationMessage]:
    messages: list[OperationMessage] = []
    while batch := aws.messages(aws.settings.operation_queue):
        messages += [parse_operation_message(message["Body"]) for message in batch]
    return messages


def watched_delays(aws: Moto) -> list[int]:
    delays: list[int] = []

    def note(params: dict[str, Sequence[dict[str, Any]]], **_: object) -> None:
        delays.extend(entry["DelaySeconds"] for entry in params["Entries"])

    aws.clients.sqs.meta.events.register("provide-client-params.sqs.SendMessageBatch", note)
    return delays


def test_operation_message_is_received_as_it_was_sent(aws: Moto) -> None:
    message = a_message(revision=7, tries=3)
    aws.ports.operation_queue.send([message])
    assert received(aws) == [message]
    assert to_body(message).isascii()


def test_operation_message_ignores_unknown_fields() -> None:
    later = {**json.loads(to_body(a_message())), "h": [2]}
    assert parse_operation_message(json.dumps(later)) == a_message()


def test_operation_messages_are_sent_ten_at_a_time(aws: Moto) -> None:
    messages = [a_message(number) for number in range(26)]
    spent = aws.spend(lambda: aws.ports.operation_queue.send(messages))
    assert spent == {"SendMessageBatch": 3}
    assert sorted(received(aws)) == sorted(messages)
    assert aws.spend(lambda: aws.ports.operation_queue.send([])) == {}


def test_equal_operation_messages_are_sent_once(aws: Moto) -> None:
    aws.ports.operation_queue.send([a_message(), a_message(), a_message(revision=2)])
    assert sorted(received(aws)) == [a_message(), a_message(revision=2)]


@pytest.mark.parametrize(
    ("seconds", "delay"), [(0, 0), (-1, 0), (0.001, 1), (30.2, 31), (3_600, 900)]
)
def test_operation_delay_is_rounded_up_and_bounded(aws: Moto, seconds: float, delay: int) -> None:
    delays = watched_delays(aws)
    aws.ports.operation_queue.send([a_message()], seconds)
    assert delays == [delay]


@pytest.mark.parametrize(
    "body",
    [
        *("", "[]", "{}", "null", '"x"', "{"),
        '{"f":1,"tenant":"t","operation_id":"o","revision":null,"tries":0}',
        '{"f":2,"tenant":"t","operation_id":"o","revision":1,"tries":0}',
    ],
)
def test_unreadable_operation_message_is_refused(body: str) -> None:
    with pytest.raises(Invalid, match="not a message of an operation, or a later version"):
        parse_operation_message(body)


def test_partly_accepted_batch_is_completed_by_a_second_send(aws: Moto) -> None:
    messages = [a_message(number) for number in range(12)]
    with failed_entries(aws.clients.sqs, "SendMessageBatch", 1, {0, 4}) as sizes:
        aws.ports.operation_queue.send(messages)
    assert sizes == [10, 2, 2]
    assert set(received(aws)) == set(messages)


def test_message_that_sqs_keeps_failing_is_reported(aws: Moto) -> None:
    with (
        failed_entries(aws.clients.sqs, "SendMessageBatch", 2, {0}),
        pytest.raises(Unavailable, match="could not be sent"),
    ):
        aws.ports.operation_queue.send([a_message(number) for number in range(3)])


def test_operation_messages_are_not_lost_in_silence(aws: Moto) -> None:
    """A lost answer, an unreached queue and a refusal raise. Botocore retries before."""
    send = aws.ports.operation_queue.send
    sqs = aws.clients.sqs
    with lost_answers(sqs, "SendMessageBatch", 9), pytest.raises(Unavailable):
        send([a_message()])
    assert set(received(aws)) == {a_message()}  # the call took effect: it may be repeated
    with unreached(sqs, "SendMessageBatch", 9), pytest.raises(Unavailable):
        send([a_message()])
    with refused(sqs, "SendMessageBatch", 1, "AccessDenied"), pytest.raises(Unavailable):
        send([a_message()])
    assert received(aws) == []
