"""Timers, history, lists over all jobs, control rows and blobs on AWS, and what each costs."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

import pytest
from punctual.aws import keys
from punctual.domain.placement import sortable_id
from punctual.domain.run import Reason, Run, Status
from punctual.engine.ports import AttemptRow, Detail, Key, Receipt, RunKey, RunRow, Timer

from tests.builders_jobs import NOON, after
from tests.integration.moto_adapter import BUCKET, Moto, moto

LATER = NOON + timedelta(days=30)
FOREVER = datetime.max.replace(tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def aws() -> Iterator[Moto]:
    with moto(lambda: NOON) as made:
        yield made


def a_timer(seconds: float = 1, **fields: Any) -> Timer:
    made = Timer(NOON, 0, after(seconds), "t", "j", 1)
    return made._replace(**fields)


def test_timers_come_in_order_from_behind_the_last(aws: Moto) -> None:
    timers = [
        a_timer(0, tenant=tenant, job_id=job_id, version=version)
        for tenant in ("", "!", "a", "a!", "a#", "b é")
        for job_id in ("i", "j")
        for version in (2, 10)
    ]
    Random(1).shuffle(timers)
    aws.ports.timers.put([*timers, *timers, a_timer(30), a_timer(0, shard=1)])
    read: list[Timer] = []
    while page := aws.ports.timers.due(NOON, 0, after(29), read[-1] if read else None, 5):
        read += page
    assert read == sorted(timers, key=lambda timer: timer.order)
    assert aws.ports.timers.due(NOON, 0, NOON - MINUTE, read[0], 5) == []
    assert len(aws.ports.timers.due(NOON, 0, FOREVER, None, 100)) == 25
    assert aws.ports.timers.due(NOON, 0, FOREVER, a_timer(0, version=-1), 1) == [a_timer(30)]


def test_a_timer_is_deleted_exactly(aws: Moto) -> None:
    timers = [a_timer(1), a_timer(1, version=2), a_timer(1.000001), a_timer(1, tenant="T")]
    aws.ports.timers.put(timers)
    aws.ports.timers.delete([a_timer(1), a_timer(1), a_timer(2), a_timer(1, bucket=NOON - MINUTE)])
    left = aws.ports.timers.due(NOON, 0, FOREVER, None, 10)
    assert set(left) == set(timers[1:])


def test_a_timer_is_a_tiny_row(aws: Moto) -> None:
    aws.ports.timers.put([a_timer()])
    (row,) = aws.rows("timers")
    assert set(row) == {keys.PK, keys.SK}


def run_id(seconds: float, salt: int = 0) -> str:
    return sortable_id(after(seconds), salt.to_bytes(10, "big"))


def a_row(seconds: float = 0, job_id: str = "j", **fields: Any) -> RunRow:
    made = fields.pop("run_id", None) or run_id(seconds)
    at = after(seconds)
    run = Run(made, Status.SUCCESS, 1, at, at, at, at, token=3, ended_at=at)
    built: dict[str, Any] = {"tenant": "t", "expires_at": LATER, "tzdata": "2026a"}
    return RunRow(job_id=job_id, run=run, **{**built, **fields})


def test_rows_come_back_and_are_written_once(aws: Moto) -> None:
    history = aws.ports.history
    detail = Detail(error="é\u0000", exit_code=1, output=b"\xff\x00", http_headers=(("a", "b"),))
    row = a_row(detail=detail)
    history.put([row, row])
    history.put([row])
    key = RunKey("t", "j", row.run.run_id)
    other = RunKey("t", "other", row.run.run_id)
    assert history.get([key, other], NOON) == {key: row}
    assert history.present([key, other, key]) == {key}
    assert len(aws.rows("runs")) == 1


def test_expired_rows_are_not_shown_but_known_to_be_written(aws: Moto) -> None:
    history = aws.ports.history
    row = a_row(expires_at=after(0.5))
    history.put([row, a_row(1)])
    key = RunKey("t", "j", row.run.run_id)
    assert key in history.get([key], after(0.499999))
    for now in (after(0.5), LATER - MINUTE):
        assert history.get([key], now) == {}
        assert list(history.page(Key("t", "j"), None, None, 9, now)) == [a_row(1)]
        assert list(history.page_all("t", None, 9, now)) == [a_row(1)]
    assert history.present([key]) == {key}


def test_attempts_come_by_number_and_token_and_not_among_the_runs(aws: Moto) -> None:
    history = aws.ports.history
    rows = [
        AttemptRow("t", "j", "r", number, token, "FAILED", NOON, after(1), "e", lost, expires_at=at)
        for number, token, lost, at in (
            (1, 2, False, None),
            (1, 2, True, LATER),
            (2, 10, False, LATER),
            (10, 11, False, LATER),
        )
    ]
    gone = AttemptRow("t", "j", "r", 3, 1, "LOST", NOON, NOON, "e", expires_at=NOON)
    history.put_attempts([*rows[::-1], gone, rows[0]])
    history.put_attempts([AttemptRow("t", "j", "r2", 1, 2, "FAILED", NOON, NOON, "e")])
    assert list(history.attempts(RunKey("t", "j", "r"), NOON)) == rows
    assert list(history.page(Key("t", "j"), None, None, 9, NOON)) == []
    assert history.present([RunKey("t", "j", "r")]) == frozenset()


def test_a_jobs_runs_are_paged_newest_first_between_two(aws: Moto) -> None:
    history, key = aws.ports.history, Key("t", "j")
    rows = [a_row(n) for n in range(9)]
    history.put([*rows, a_row(3, "other"), a_row(3, tenant="T")])
    ids = [row.run.run_id for row in rows]

    def page(before: str | None, after: str | None, limit: int = 99) -> list[RunRow]:
        return list(history.page(key, before, after, limit, NOON))

    assert page(None, None) == rows[::-1]
    assert page(ids[5], None, 2) == [rows[4], rows[3]]
    assert page(ids[5], ids[2]) == [rows[4], rows[3]]
    assert page(None, ids[7]) == [rows[8]]
    assert page(ids[2], ids[5]) == []


def test_runs_over_all_jobs_are_paged_newest_first_each_once(aws: Moto) -> None:
    history = aws.ports.history
    rows = [a_row(n % 40 / 3, f"j{n % 7}", run_id=run_id(n % 40 / 3, n)) for n in range(90)]
    twins = [a_row(5, "a", run_id=run_id(5, 200)), a_row(5, "b", run_id=run_id(5, 200))]
    shuffled = [*rows, *twins]
    Random(2).shuffle(shuffled)
    for start in range(0, len(shuffled), 9):
        history.put(shuffled[start : start + 9])
        history.put(shuffled[start : start + 4])  # again, in another batch
    history.put([a_row(1, tenant="other")])
    read: list[RunRow] = []
    before = None
    while page := history.page_all("t", before, 10, NOON):
        read += page
        before = (page[-1].run.run_id, page[-1].job_id)
    wanted = sorted(shuffled, key=lambda row: (row.run.run_id, row.job_id), reverse=True)
    assert read == wanted


def test_a_batch_of_ended_runs_is_packed_into_one_row(aws: Moto) -> None:
    rows = [a_row(0.01 * n, run_id=run_id(0.01 * n, n)) for n in range(100)]
    assert aws.spend(lambda: aws.lists.append("t", rows)) == {"BatchWriteItem": 1}
    (row,) = aws.rows("control")
    assert len(row[keys.ROW]["B"]) < 6_000
    assert int(row[keys.TTL]["N"]) == LATER.timestamp()
    assert len(aws.lists.page("t", None, 200, NOON)) == 100


def test_a_batch_that_is_too_large_is_packed_into_several(aws: Moto) -> None:
    chance = Random(3)
    rows = [
        a_row(0.01 * n, run_id=run_id(0.01 * n, n), detail=Detail(output=chance.randbytes(80_000)))
        for n in range(7)
    ]
    aws.lists.append("t", rows)
    assert len(aws.rows("control")) > 1
    assert list(aws.lists.page("t", None, 9, NOON)) == rows[::-1]


@pytest.mark.parametrize("reason", [Reason.COALESCED, Reason.OUTAGE])
def test_a_row_for_many_that_did_not_run_comes_back(aws: Moto, reason: Reason) -> None:
    run = Run("r", Status.SKIPPED, 1, NOON, NOON, NOON, NOON, reason=reason, count=7, last_at=NOON)
    row = RunRow("t", "j", run, LATER)
    aws.ports.history.put([row])
    assert list(aws.ports.history.page_all("t", None, 1, NOON)) == [row]


def test_stores_make_the_fewest_calls(aws: Moto) -> None:
    timers, history = aws.ports.timers, aws.ports.history
    some = [a_timer(n) for n in range(30)]
    rows = [a_row(n) for n in range(30)]
    wanted = [RunKey("t", "j", row.run.run_id) for row in rows]
    history.put(rows)
    assert aws.spend(lambda: timers.put(some[:25])) == {"BatchWriteItem": 1}
    assert aws.spend(lambda: timers.delete(some)) == {"BatchWriteItem": 2}
    assert aws.spend(lambda: timers.due(NOON, 0, FOREVER, None, 500)) == {"Query": 1}
    assert aws.spend(lambda: history.present(wanted)) == {"BatchGetItem": 1}
    assert aws.spend(lambda: history.page(Key("t", "j"), None, None, 30, NOON)) == {"Query": 1}
    assert aws.spend(lambda: history.attempts(wanted[0], NOON)) == {"Query": 1}
    assert aws.spend(lambda: history.page_all("t", None, 10, NOON)) == {"Query": keys.RUN_LISTS}
    nothing: list[Callable[[list[Any]], object]] = [
        timers.put,
        timers.delete,
        history.put,
        history.present,
    ]
    for work in nothing:
        assert aws.spend(partial(work, [])) == {}


def test_the_watermark_moves_only_from_where_it_was_seen(aws: Moto) -> None:
    buckets = aws.ports.buckets
    assert buckets.watermark() is None
    assert not buckets.advance(NOON, after(60))
    assert buckets.advance(None, NOON)
    assert not buckets.advance(None, after(60))
    assert buckets.advance(NOON, after(60))
    assert not buckets.advance(NOON, after(120))
    assert buckets.watermark() == after(60)
    assert buckets.is_done(NOON, 3)
    assert not buckets.is_done(after(60), 3)


def test_shards_only_grow(aws: Moto) -> None:
    buckets = aws.ports.buckets
    assert buckets.shards() == 1
    for count, stands in ((4, 4), (2, 4), (64, 64), (64, 64)):
        buckets.grow(count)
        assert buckets.shards() == stands


def test_a_bucket_has_one_holder_at_a_time(aws: Moto) -> None:
    buckets = aws.ports.buckets
    first = buckets.acquire(NOON, 0, "a", NOON, after(60))
    assert first is not None
    assert (first.owner, first.token, first.look, first.until) == ("a", 1, 0, after(60))
    assert buckets.acquire(NOON, 0, "b", after(59), after(120)) is None
    assert buckets.acquire(NOON, 1, "b", NOON, after(60)) is not None
    second = buckets.acquire(NOON, 0, "b", after(60), after(120))
    assert second is not None
    assert second.token == 2
    assert buckets.renew(first, after(300)) is None
    assert not buckets.give_back(first)
    assert not buckets.done(first)
    assert buckets.renew(second, after(300)) == second._replace(until=after(300))


def test_a_nudge_is_not_lost_against_a_holder_that_lets_go(aws: Moto) -> None:
    buckets = aws.ports.buckets
    assert buckets.nudge(NOON, 0) is None
    lease = buckets.acquire(NOON, 0, "a", NOON, after(60))
    assert lease is not None
    nudged = buckets.nudge(NOON, 0)
    assert nudged == lease._replace(look=1)
    assert buckets.renew(lease, after(90)) is None
    assert not buckets.give_back(lease)
    assert nudged is not None
    assert buckets.give_back(nudged)
    assert buckets.nudge(NOON, 0) is None
    again = buckets.acquire(NOON, 0, "b", NOON, after(60))
    assert again == nudged._replace(owner="b", token=2)


def test_a_lease_that_is_over_cannot_be_nudged(aws: Moto) -> None:
    aws.ports.buckets.acquire(NOON, 0, "a", after(-60), after(0))
    assert aws.ports.buckets.nudge(NOON, 0) is None


def test_a_bucket_that_is_done_stays_done_for_some_days(aws: Moto) -> None:
    buckets = aws.ports.buckets
    lease = buckets.acquire(NOON, 0, "a", NOON, after(60))
    assert lease is not None
    assert buckets.done(lease)
    assert buckets.done(lease)
    assert buckets.is_done(NOON, 0)
    assert not buckets.is_done(NOON, 1)
    assert buckets.acquire(NOON, 0, "b", after(600), after(660)) is None
    assert buckets.renew(lease, after(90)) is None
    (row,) = aws.rows("control")
    assert int(row[keys.TTL]["N"]) == (after(60) + timedelta(days=7)).timestamp()


def a_receipt(fingerprint: str, seconds: float = 60) -> Receipt:
    return Receipt(fingerprint, f"id-{fingerprint}", NOON, after(seconds))


def test_the_first_receipt_stands_until_it_expires(aws: Moto) -> None:
    claim = aws.ports.receipts.claim
    one, two, three = (a_receipt(name) for name in "abc")
    assert claim("t", [("k", one), ("k#", two), ("k", three)], NOON) == [one, two, one]
    assert claim("t", [("k", two)], after(59.999)) == [one]
    assert claim("T", [("k", three)], NOON) == [three]
    assert claim("t", [("k", two)], after(60)) == [two]
    assert claim("t", [], NOON) == []


def test_control_rows_make_the_fewest_calls(aws: Moto) -> None:
    buckets = aws.ports.buckets
    lease = buckets.acquire(NOON, 0, "a", NOON, after(60))
    assert lease is not None
    for work, spent in (
        (buckets.watermark, {"BatchGetItem": 1}),
        (lambda: buckets.advance(None, NOON), {"PutItem": 1}),
        (lambda: buckets.acquire(NOON, 1, "a", NOON, after(9)), {"UpdateItem": 1}),
        (lambda: buckets.renew(lease, after(90)), {"UpdateItem": 1}),
        (lambda: buckets.nudge(NOON, 0), {"UpdateItem": 1}),
        (lambda: buckets.give_back(lease), {"UpdateItem": 1}),
        (lambda: buckets.is_done(NOON, 0), {"BatchGetItem": 1}),
        (lambda: aws.ports.receipts.claim("t", [("k", a_receipt("a"))], NOON), {"PutItem": 1}),
    ):
        assert aws.spend(work) == spent


def test_blobs_come_back_whole_and_in_part(aws: Moto) -> None:
    blobs = aws.ports.blobs
    name = "outputs/té#nant/j/r 1/7"
    assert blobs.get(name) is None
    assert blobs.get(name, 3) is None
    assert blobs.get(name, 3, 3) is None
    blobs.put(name, b"0123456789", "text/plain")
    assert blobs.get(name) == b"0123456789"
    assert blobs.get(name, 4) == b"456789"
    assert blobs.get(name, 4, 6) == b"45"
    assert blobs.get(name, 0, 2) == b"01"
    assert blobs.get(name, 8, 99) == b"89"
    assert blobs.get(name, 10) == b""
    assert blobs.get(name, 99, 100) == b""
    assert blobs.get(name, 5, 5) == b""
    blobs.put(name, b"new", "")
    assert blobs.get(name) == b"new"


def test_an_empty_blob_is_one(aws: Moto) -> None:
    aws.ports.blobs.put("a", b"", "text/plain")
    assert aws.ports.blobs.get("a") == b""
    assert aws.ports.blobs.get("a", 0, 0) == b""
    assert aws.ports.blobs.get("a", 0, 1) == b""


def test_a_large_blob_comes_back(aws: Moto) -> None:
    data = Random(4).randbytes(2_000_000)
    aws.ports.blobs.put("a", data, "application/octet-stream")
    assert aws.ports.blobs.get("a") == data
    assert aws.ports.blobs.get("a", 1_999_990) == data[-10:]


def test_blobs_are_deleted_though_some_are_not_there(aws: Moto) -> None:
    blobs = aws.ports.blobs
    for name in ("a", "b", "c"):
        blobs.put(name, b"x", "text/plain")
    assert aws.spend(lambda: blobs.delete(["a", "b", "none"])) == {"DeleteObjects": 1}
    assert [blobs.get(name) for name in "abc"] == [None, None, b"x"]
    assert aws.spend(lambda: blobs.delete([])) == {}


def test_a_link_names_the_blob_its_type_and_an_end(aws: Moto) -> None:
    link = aws.ports.blobs.link("outputs/t/a b", "text/plain")
    assert link is not None
    assert BUCKET in link
    assert "outputs/t/a%20b" in link
    assert "response-content-type=text%2Fplain" in link
    assert "Expires" in link
