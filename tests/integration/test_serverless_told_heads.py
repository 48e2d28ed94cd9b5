"""A claim that begins with the head which its message tells: it wins, or it reads."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.aws.sqs.run_queue import parse_message, to_body
from punctual.domain.errors import Invalid
from punctual.domain.run import RunStatus
from punctual.engine.ports.rows import Key
from tests.builders import after, an_id
from tests.integration.executor_world import ExecutorWorld, Record, executor_world
from tests.integration.moto_faults import frozen, lost_answers, refused

READS, SWAPS = "BatchGetItem", "UpdateItem"


@pytest.fixture
def world() -> Iterator[ExecutorWorld]:
    with executor_world() as made:
        yield made


def bare(record: Record) -> Record:
    """As a version sends it that tells no head."""
    message = parse_message(record["body"])._replace(head=None)
    return {**record, "body": to_body(message)}


def received(record: Record, times: int) -> Record:
    attributes = {**record["attributes"], "ApproximateReceiveCount": str(times)}
    return {**record, "attributes": attributes}


def spent(world: ExecutorWorld, record: Record) -> tuple[int, int]:
    """Reads and swaps; a body is read in any case."""
    found = world.aws.spend(lambda: world.invoke([record]))
    return found[READS], found[SWAPS]


def test_a_message_without_a_head_is_claimed_as_ever(world: ExecutorWorld) -> None:
    key = world.submit()
    (record,) = world.records()
    assert spent(world, bare(record)) == (2, 2)
    assert world.status(key) is RunStatus.SUCCESS


def test_a_message_that_comes_again_is_not_believed(world: ExecutorWorld) -> None:
    key = world.submit()
    (record,) = world.records()
    assert spent(world, received(record, 2)) == (2, 2)
    assert world.status(key) is RunStatus.SUCCESS


@pytest.mark.parametrize(("seconds", "heads_read"), [(119, False), (120, True)])
def test_a_message_is_believed_until_the_heads_next_look(
    world: ExecutorWorld, seconds: float, heads_read: bool
) -> None:
    world.submit(schedule_type="INTERVAL", interval_seconds=60)
    world.clock.set(after(60))
    world.look()
    (record,) = world.records()
    world.clock.set(after(seconds))
    reads, swaps = spent(world, record)
    assert (reads > 1, swaps) == (heads_read, 2), "none is lost"
    assert len(world.doing.ran) == 1


def test_who_changed_the_job_since_is_read_and_stands(world: ExecutorWorld) -> None:
    key = world.submit(schedule_type="CRON", cron_expression="0 0 * * *")
    world.jobs.run_now(*key)
    (record,) = world.records()
    world.jobs.change(*key, lambda old: {**old, "name": "another"})
    assert spent(world, record) == (2, 3), "one swap is lost"
    (head,) = world.runtime.ports.heads.load([key]).values()
    assert (head.head.edition, head.head.runs) == (2, ())
    assert world.status(key) is RunStatus.SUCCESS


def test_what_was_cancelled_since_does_not_begin(world: ExecutorWorld) -> None:
    key = world.submit()
    (record,) = world.records()
    world.jobs.cancel(*key)
    assert world.invoke([record]) == []
    assert world.status(key) is RunStatus.CANCELLED
    assert world.doing.ran == []


def test_a_claim_whose_answer_was_lost_is_not_made_twice(world: ExecutorWorld) -> None:
    key = world.submit()
    (record,) = world.records()
    with lost_answers(world.aws.clients.dynamodb, SWAPS, 1):
        assert world.invoke([record]) == []
    assert world.run(key).run.attempt == 1
    assert len(world.doing.ran) == 1


def test_after_a_store_that_did_not_answer_the_head_is_read(world: ExecutorWorld) -> None:
    key = world.submit()
    (record,) = world.records()
    refusing: list[Any] = []
    client = world.aws.clients.dynamodb
    for operation in (SWAPS, READS):
        refusing.append(refused(client, operation, 9, "ThrottlingException"))
        refusing[-1].__enter__()

    def paused() -> None:
        for one in refusing:
            one.__exit__(None, None, None)
        world.jobs.cancel(*key)

    world.hands.at(after(0.5), paused)
    assert world.invoke([record]) == []
    assert world.status(key) is RunStatus.CANCELLED
    assert world.doing.ran == []


def test_a_head_that_somebody_made_up_overwrites_nothing(world: ExecutorWorld) -> None:
    key = world.submit(schedule_type="CRON", cron_expression="0 0 * * *")
    world.jobs.run_now(*key)
    (record,) = world.records()
    body = record["body"].replace('"max_retries":3', "").replace("0 0 * * *", "* * * * *")
    writers = parse_message(record["body"]).head
    assert writers is not None
    for mark in writers.writers:
        body = body.replace(f'"{mark}"', '"guessed"')
    assert parse_message(body).head is not None
    world.invoke([{**record, "body": body}])
    (head,) = world.runtime.ports.heads.load([key]).values()
    assert "0 0 * * *" in repr(head.head.schedule)
    assert world.status(key) is RunStatus.SUCCESS, "the run itself is there, and runs"


def forged(record: Record, **told: Any) -> Record:
    """By somebody who may send to the queue, and knows no mark."""
    values = json.loads(record["body"])
    layout, head = values["h"]
    version = told.get("version", values["v"])
    body = json.dumps({**values, "v": version, "h": (layout, {**head, **told})})
    return {**record, "body": body}


@pytest.mark.parametrize("writers", [[""], ["guessed", ""], ["guessed"]])
def test_without_the_mark_of_who_wrote_last_nothing_is_overwritten(
    world: ExecutorWorld, writers: list[str]
) -> None:
    key = world.submit(schedule_type="CRON", cron_expression="0 0 * * *")
    world.jobs.run_now(*key)
    (record,) = world.records()
    world.invoke([forged(record, writers=writers, next_at="2026-04-01T00:00:00Z")])
    (stored,) = world.runtime.ports.heads.load([key]).values()
    assert stored.head.next_at == datetime(2026, 3, 3, tzinfo=UTC)
    assert world.status(key) is RunStatus.SUCCESS


@pytest.mark.parametrize("named", [False, True])
def test_a_head_that_somebody_made_up_puts_no_timer(world: ExecutorWorld, named: bool) -> None:
    """A look that such a timer brought would take its version for true, in any tenant."""
    key = world.submit(schedule_type="CRON", cron_expression="0 0 * * *")
    world.jobs.run_now(*key)
    (record,) = world.records()
    before = set(world.aws.timers())
    told = {"version": 10**11, "writers": ["guessed"], "next_at": "2026-03-02T12:00:30Z"}
    made_up = forged(record, **told)
    if named:
        made_up = {**made_up, "body": made_up["body"].replace(key.job_id, an_id(99))}
    world.invoke([made_up])
    assert set(world.aws.timers()) <= before


def of_another_tenant(record: Record) -> tuple[Record, Key]:
    key = Key("victim", an_id(77))
    body = json.dumps({**json.loads(record["body"]), "t": key.tenant, "j": key.job_id})
    return {**record, "body": body}, key


@pytest.mark.parametrize("version", [0, -1])
def test_a_head_that_nobody_can_have_written_makes_no_job(
    world: ExecutorWorld, version: int
) -> None:
    key = world.submit(schedule_type="CRON", cron_expression="0 0 * * *")
    world.jobs.run_now(*key)
    (record,) = world.records()
    made_up, victim = of_another_tenant(forged(record, version=version, writers=["guessed"]))
    assert parse_message(made_up["body"]).head is None
    world.invoke([made_up])
    assert world.runtime.ports.heads.load([victim]) == {}


def test_no_claim_makes_a_job_whoever_tells_of_its_head(world: ExecutorWorld) -> None:
    key = world.submit(schedule_type="CRON", cron_expression="0 0 * * *")
    world.jobs.run_now(*key)
    (record,) = world.records()
    message = parse_message(of_another_tenant(record)[0]["body"])
    assert message.head is not None
    told = replace(message.head, version=0)
    world.runtime.executor.claim([message], known={Key("victim", an_id(77)): told})
    assert world.runtime.ports.heads.load([Key("victim", an_id(77))]) == {}


@pytest.mark.parametrize(
    "told",
    [
        {"timer_at": "2026-03-03T00:00:00"},
        {"ended": [{"id": "1", "st": "SUCCESS", "def": 1, "end": "2026-03-01T00:00:00"}]},
    ],
)
def test_a_head_whose_moments_name_no_zone_is_not_believed_and_stops_no_other(
    world: ExecutorWorld, told: dict[str, Any]
) -> None:
    world.jobs.run_now(*world.submit(schedule_type="CRON", cron_expression="0 0 * * *"))
    (record,) = world.records()
    key = world.submit()
    (other,) = [one for one in world.records() if one["messageId"] != record["messageId"]]
    for run in told.get("ended", ()):
        run.update(dict.fromkeys(("at", "due", "made", "mod"), "2026-03-01T00:00:00"))
    made_up = forged(record, writers=["guessed"], **told)
    assert parse_message(made_up["body"]).head is None
    assert world.invoke([made_up, other]) == []
    assert world.status(key) is RunStatus.SUCCESS


def test_a_message_that_is_due_in_no_zone_is_none_of_ours(world: ExecutorWorld) -> None:
    key = world.submit()
    (record,) = world.records()
    body = json.dumps({**json.loads(record["body"]), "due": "2026-03-02T12:00:00"})
    with pytest.raises(Invalid):
        parse_message(body)
    assert world.invoke([{**record, "body": body, "messageId": "other"}, record]) == ["other"]
    assert world.status(key) is RunStatus.SUCCESS


def test_what_a_run_is_to_do_is_found_though_a_glance_does_not_see_it(
    world: ExecutorWorld,
) -> None:
    with frozen(world.aws.clients.dynamodb) as seen:
        keys = [world.submit(payload={"n": n, "big": "x" * 20_000 * n}) for n in range(3)]
        records = world.records()
        assert world.invoke(records) == []
        assert seen
        assert all(world.status(key) is RunStatus.SUCCESS for key in keys)


def test_two_messages_of_one_job_in_one_batch_both_run(world: ExecutorWorld) -> None:
    key: Key = world.submit(
        schedule_type="CRON", cron_expression="0 0 * * *", concurrency="ALLOW", max_concurrency=2
    )
    world.jobs.run_now(*key)
    world.jobs.run_now(*key)
    records = world.records()
    assert len(records) == 2
    assert world.invoke(records) == []
    assert len(world.doing.ran) == 2
