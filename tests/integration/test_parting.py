"""Rows that timers share are parted, so that a version that knows no others can take over."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from infra import parting
from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.timers.keys import is_shared
from punctual.aws.dynamodb.timers.timers import DynamoTimers
from punctual.aws.ports import aws_dynamo
from punctual.domain.identifiers import bucket_of
from punctual.engine.ports.timers import Timer
from tests.builders import NOON, a_timer, an_id
from tests.integration.moto_adapter import REGION, Moto, moto
from tests.integration.moto_faults import lost_answers
from tests.integration.timer_hands import FOREVER, another

TIMERS = keys.TIMERS.name
FAR = NOON + timedelta(days=30)


@pytest.fixture
def aws() -> Iterator[Moto]:
    with moto(lambda: NOON) as made:
        yield made


def some(at: Any, many: int = 45) -> list[Timer]:
    return [a_timer(at, an_id(n))._replace(bucket=bucket_of(at)) for n in range(many)]


def part(aws: Moto) -> parting.Parted:
    return parting.part(aws_dynamo(aws.clients), TIMERS, NOON)


def shared(aws: Moto) -> int:
    return sum(is_shared(row[keys.SK]["S"]) for row in aws.rows(TIMERS))


def due(aws: Moto, timers: DynamoTimers | None = None) -> list[Timer]:
    page = (timers or another(aws)).due(FAR, 0, FOREVER, None, 1_000)
    return sorted(page.timers)


def test_each_timer_of_a_shared_row_gets_one_of_its_own(aws: Moto) -> None:
    aws.ports.timers.put(some(FAR))
    alone = a_timer(FAR, an_id(99))._replace(bucket=FAR)
    aws.ports.timers.put([alone])
    assert part(aws) == parting.Parted(3, 0)
    assert shared(aws) == 0
    assert due(aws) == sorted([*some(FAR), alone])
    assert part(aws) == parting.Parted(0, 0)


def test_what_is_due_soon_is_left_to_whoever_holds_it(aws: Moto) -> None:
    near = some(NOON + timedelta(minutes=14), 20)
    aws.ports.timers.put(near)
    aws.ports.timers.put(some(FAR, 20))
    assert part(aws) == parting.Parted(1, 1)
    assert shared(aws) == 1


def test_a_parting_that_was_broken_off_is_done_again(aws: Moto) -> None:
    aws.ports.timers.put(some(FAR, 20))
    with lost_answers(aws.clients.dynamodb, "BatchWriteItem", 1):
        part(aws)
    assert due(aws) == some(FAR, 20)
    assert shared(aws) == 0


def test_who_knew_the_shared_row_deletes_what_stands_where_it_finds_it(aws: Moto) -> None:
    poller = another(aws)
    aws.ports.timers.put(some(FAR, 20))
    assert due(aws, poller) == some(FAR, 20)
    part(aws)
    poller.delete(some(FAR, 20)[:5])
    assert due(aws) == some(FAR, 20), "looks too many"
    fresh = another(aws)
    fresh.delete(due(aws, fresh))
    assert aws.rows(TIMERS) == []


@pytest.mark.parametrize(("writes", "code"), [(2, 1), (1, 0)])
def test_only_where_rows_are_not_shared_any_more(
    aws: Moto, writes: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    settings = replace(aws.settings, writes=writes)
    monkeypatch.setattr(parting, "settings_of", lambda *_: settings)
    monkeypatch.setattr(parting, "real_clock", lambda: NOON)
    aws.ports.timers.put(some(FAR, 20))
    assert parting.main(["dev"], Session(aws)) == code
    assert shared(aws) == writes - 1
    told = capsys.readouterr()
    assert ("set `writes` to 1" in told.err) is (writes == 2)
    assert ("1 rows parted, 0 left" in told.out) is (writes == 1)


def test_a_stage_is_to_be_named(capsys: Any) -> None:
    assert parting.main([]) == 1
    assert "say which stage" in capsys.readouterr().err


class Session:
    """What boto3's would answer."""

    region_name = REGION

    def __init__(self, aws: Moto) -> None:
        self._aws = aws

    def client(self, service: str, **_: Any) -> Any:
        return getattr(self._aws.clients, service) if service == "dynamodb" else self

    def get_caller_identity(self) -> dict[str, str]:
        return {"Account": "123456789012"}
