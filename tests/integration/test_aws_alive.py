"""The index of heads that live for more than a moment: who is in it, and who is read by it."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.aws import heads as module
from punctual.aws.heads import MOST_ALIVE, REMEMBERED, DynamoHeads
from punctual.aws.keys import RowKey
from punctual.aws.tallies import Tallies
from punctual.domain.head import Head, Lane, Rules
from punctual.domain.run import Lease, Reason, Status, Waiting
from punctual.engine.ports import Beat, Key, Swap
from punctual.serverless.monitoring import DeployedMonitor
from tests.builders import NOON, a_body, a_head, a_run, after, an_id
from tests.integration.moto_adapter import Moto, moto
from tests.integration.test_aws_heads import Clock

LONG = {1: Rules(body="1-body", since_at=NOON, lane=Lane.LONG)}
HELD = a_run("r", Status.RUNNING, token=3, claimer="e1")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def aws(clock: Clock) -> Iterator[Moto]:
    with moto(clock) as found:
        yield found


def stored(aws: Moto, *heads: Head) -> None:
    aws.ports.heads.put_bodies([a_body(head.job_id) for head in heads])
    assert all(aws.ports.heads.swap([Swap(head, head.version - 1) for head in heads]))


def indexed(aws: Moto) -> list[str]:
    return sorted(key.job_id for key in aws.ports.heads.alive("acme", MOST_ALIVE))


def test_who_waits_was_not_taken_at_once_or_is_long_work_is_in_it(aws: Moto) -> None:
    heads = {
        "idle": a_head(an_id(1)),
        "ahead": a_head(an_id(2), runs=(a_run(sends=1),)),
        "quick": a_head(an_id(3), runs=(HELD,)),
        "over": a_head(an_id(4), ended=(a_run("e", Status.SUCCESS, ended_at=NOON),)),
        "again": a_head(an_id(5), runs=(a_run(sends=2),)),
        "backoff": a_head(an_id(6), runs=(a_run("b", Status.WAITING, reason=Reason.BACKOFF),)),
        "line": a_head(an_id(7), line=(Waiting("w", 1, NOON, NOON, NOON),)),
        "long": a_head(an_id(8), runs=(HELD,), rules=LONG),
    }
    stored(aws, *heads.values())
    found = {name for name, head in heads.items() if head.job_id in indexed(aws)}
    assert found == {"again", "backoff", "line", "long"}


def test_quick_work_is_in_it_from_its_first_beat_until_it_ends(aws: Moto) -> None:
    head = a_head(an_id(1), version=1, runs=(HELD,))
    stored(aws, head)
    (beaten,) = aws.ports.heads.beat([Beat(Key("acme", an_id(1)), "r", 3, after(20))])
    assert beaten is None, "there is no lease"
    assert indexed(aws) == []
    claimed = replace(head, version=2, writers=("w", "c"))
    assert aws.ports.heads.swap([Swap(claimed, 1, {"r": Lease(3, after(20))})]) == [True]
    aws.ports.heads.beat([Beat(Key("acme", an_id(1)), "r", 3, after(24))])
    assert indexed(aws) == [an_id(1)]
    cancelling = replace(claimed, version=3, writers=("w", "c", "d"))
    assert aws.ports.heads.swap([Swap(cancelling, 2)]) == [True]
    assert indexed(aws) == [an_id(1)], "who changes the job knows nothing of beats"
    over = replace(cancelling, version=4, runs=(), writers=("w", "c", "d", "e"))
    assert aws.ports.heads.swap([Swap(over, 3, {"r": None})]) == [True]
    assert indexed(aws) == []


def test_another_tenant_s_are_not_in_it(aws: Moto) -> None:
    stored(aws, replace(a_head(an_id(1), rules=LONG, runs=(HELD,)), tenant="other"))
    assert indexed(aws) == []


@pytest.fixture
def crowd(aws: Moto, monkeypatch: pytest.MonkeyPatch) -> DynamoHeads:
    """A tenant with more heads than are walked over: two pages of three in each of the slots."""
    monkeypatch.setattr(module, "ALL", 3)
    monkeypatch.setattr(module, "WALKED", 2)
    stored(aws, *[a_head(an_id(n)) for n in range(1, 181)])
    stored(aws, *[a_head(an_id(n), runs=(a_run(f"r{n}", sends=2),)) for n in range(201, 221)])
    stored(aws, *[a_head(an_id(n), runs=(a_run(f"r{n}", sends=1),)) for n in range(301, 306)])
    return aws.ports.heads


def test_a_crowd_is_not_walked_over_but_those_are_found_that_live_on(
    crowd: DynamoHeads, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sorted(head.job_id for head in crowd.busy("acme")) == [an_id(n) for n in range(201, 221)]
    crowd._many_until.clear()
    monkeypatch.setattr(module, "WALKED", 100)
    assert len(crowd.busy("acme")) == 25, "where all may be read"


def test_that_a_tenant_is_a_crowd_is_remembered_for_a_while(
    aws: Moto, crowd: DynamoHeads, clock: Clock
) -> None:
    first = aws.spend(lambda: crowd.busy("acme"))
    assert first["Query"] > 2 * 16
    assert aws.spend(lambda: crowd.busy("acme")) == {"Query": 16, "BatchGetItem": 1}
    clock.now += REMEMBERED
    assert aws.spend(lambda: crowd.busy("acme")) == first


def test_no_more_heads_are_read_by_it_than_asked_for(crowd: DynamoHeads) -> None:
    assert 0 < len(crowd.alive("acme", 16)) <= 16
    assert len(crowd.alive("acme", 16_000)) == 20


def test_what_ended_since_the_index_was_read_is_shown_as_it_is_now(
    aws: Moto, crowd: DynamoHeads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index is behind, the heads that it names are not."""
    over = replace(a_head(an_id(201)), version=2, writers=("w", "x"))
    read = crowd._dynamo.indexed

    def behind(*asked: Any) -> list[RowKey]:
        found = read(*asked)
        if any(at.sk == an_id(201) for at in found):
            assert aws.ports.heads.swap([Swap(over, 1)]) == [True]
        return found

    monkeypatch.setattr(crowd._dynamo, "indexed", behind)
    (now,) = [head for head in crowd.busy("acme") if head.job_id == an_id(201)]
    assert now.runs == ()


def test_a_head_that_has_expired_and_was_not_removed_yet_is_not_found(aws: Moto) -> None:
    stored(aws, a_head(an_id(1), rules=LONG, runs=(HELD,), ended_at=NOON - timedelta(days=31)))
    assert indexed(aws) == []


def test_stats_say_who_holds_how_much_and_when_they_were_heard_of(aws: Moto) -> None:
    def held(number: int, by: str, beat: float | None) -> None:
        run = a_run(f"r{number}", Status.RUNNING, token=1, claimer=by, changed_at=after(1))
        head = a_head(an_id(number), runs=(run,), rules=LONG)
        lease = Lease(1, after(40 if beat is None else beat + 20), beaten=beat is not None)
        aws.ports.heads.put_bodies([a_body(head.job_id)])
        assert aws.ports.heads.swap([Swap(head, 0, {run.run_id: lease})]) == [True]

    held(1, "b", beat=30)
    held(2, "a", beat=8)
    held(3, "a", beat=12)
    held(4, "c", beat=None)
    stored(aws, a_head(an_id(5), runs=(a_run("q", sends=3),)))
    stats = monitor(aws).stats("acme", after(60))
    assert stats.executors == [
        {"executor_id": "a", "last_heartbeat": after(12), "running": 2},
        {"executor_id": "b", "last_heartbeat": after(30), "running": 1},
        {"executor_id": "c", "last_heartbeat": after(1), "running": 1},
    ]
    assert monitor(aws).stats("other", after(60)).executors == []


def monitor(aws: Moto) -> DeployedMonitor:
    dynamo, table = aws.ports.heads._dynamo, aws.settings.control_table
    return DeployedMonitor(
        aws.ports.buckets, Tallies(dynamo, table), aws.ports.heads.alive, ("event",)
    )
