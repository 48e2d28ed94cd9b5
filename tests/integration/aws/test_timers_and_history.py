"""Timers, history and the lists over all jobs on AWS, and the cost of their calls."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

import pytest

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.lists.runs import RunEntry
from punctual.domain.identifiers import sortable_id
from punctual.domain.run import Reason, Run, RunStatus
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.rows import AttemptRow, Detail, JobKey, RunKey, RunRow
from punctual.engine.ports.timers import Timer
from punctual.engine.queries.run_views import view_of_row
from punctual.engine.queries.slices import finish
from punctual.engine.queries.views import RunView
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.builders_jobs import NOON, after

LATER = NOON + timedelta(days=30)
FOREVER = datetime.max.replace(tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def aws() -> Iterator[Moto]:
    with moto(lambda: NOON) as aws:
        yield aws


def a_timer(seconds: float = 1, **fields: Any) -> Timer:
    timer = Timer(NOON, 0, after(seconds), "t", "j", 1)
    return timer._replace(**fields)


def test_timers_are_paged_in_order(aws: Moto) -> None:
    timers = [
        a_timer(0, tenant=tenant, job_id=job_id, version=version)
        for tenant in ("", "!", "a", "a!", "a#", "b é")
        for job_id in ("i", "j")
        for version in (2, 10)
    ]
    Random(1).shuffle(timers)
    aws.ports.timers.put([*timers, *timers, a_timer(30), a_timer(0, shard=1)])
    read: list[Timer] = []
    cursor = None
    while not read or cursor:
        page, cursor, _ = aws.ports.timers.due(NOON, 0, after(29), cursor, 5)
        assert 1 <= len(page) <= 5 + 19
        read += page
    assert sorted(read) == sorted(timers)
    first = aws.ports.timers.due(NOON, 0, FOREVER, None, 1)
    assert aws.ports.timers.due(NOON, 0, NOON - MINUTE, first.cursor, 5)[:2] == ([], None)
    assert len(aws.ports.timers.due(NOON, 0, FOREVER, None, 100).timers) == 25
    last = aws.ports.timers.due(NOON, 0, FOREVER, None, 24)
    assert aws.ports.timers.due(NOON, 0, FOREVER, last.cursor, 1)[:2] == ([a_timer(30)], None)


def test_only_the_exact_timer_is_deleted(aws: Moto) -> None:
    timers = [a_timer(1), a_timer(1, version=2), a_timer(1.000001), a_timer(1, tenant="T")]
    aws.ports.timers.put(timers)
    aws.ports.timers.delete([a_timer(1), a_timer(1), a_timer(2), a_timer(1, bucket=NOON - MINUTE)])
    left = aws.ports.timers.due(NOON, 0, FOREVER, None, 10).timers
    assert set(left) == set(timers[1:])


def test_timer_row_has_only_its_key(aws: Moto) -> None:
    aws.ports.timers.put([a_timer()])
    (row,) = aws.rows("timers")
    assert set(row) == {keys.PK, keys.SK}


def run_id(seconds: float, salt: int = 0) -> str:
    return sortable_id(after(seconds), (salt << 6).to_bytes(10, "big"))


def a_row(seconds: float = 0, job_id: str = "j", **fields: Any) -> RunRow:
    own_run_id = fields.pop("run_id", None) or run_id(seconds)
    at = after(seconds)
    run = Run(own_run_id, RunStatus.SUCCESS, 1, at, at, at, at, token=3, ended_at=at)
    built: dict[str, Any] = {"tenant": "t", "expires_at": LATER, "tzdata": "2026a"}
    return RunRow(job_id=job_id, run=run, **{**built, **fields})


def list_all(aws: Moto, limit: int, now: datetime = NOON) -> list[RunView]:
    views: list[RunView] = []
    after: tuple[str, ...] | None = None
    while True:
        page = finish(aws.lists.page("t", RunFilters(), limit, after, now))
        views += page.items
        if page.next_cursor is None:
            return views
        after = page.next_cursor


def test_history_rows_are_read_back_and_written_once(aws: Moto) -> None:
    history = aws.ports.history
    detail = Detail(error="é\u0000", exit_code=1, output=b"\xff\x00", http_headers=(("a", "b"),))
    row = a_row(detail=detail)
    history.put_runs([row, row])
    history.put_runs([row])
    key = RunKey("t", "j", row.run.run_id)
    other = RunKey("t", "other", row.run.run_id)
    assert history.get([key, other], NOON) == {key: row}
    assert history.recorded_keys([key, other, key]) == {key}
    assert len(aws.rows("runs")) == 1


def test_expired_history_row_is_hidden_but_recorded(aws: Moto) -> None:
    history = aws.ports.history
    row = a_row(expires_at=after(0.5))
    history.put_runs([row, a_row(1)])
    key = RunKey("t", "j", row.run.run_id)
    assert key in history.get([key], after(0.499999))
    for now in (after(0.5), LATER - MINUTE):
        assert history.get([key], now) == {}
        assert list(history.page(JobKey("t", "j"), None, None, 9, now)) == [a_row(1)]
        assert [view.run for view in list_all(aws, 9, now)] == [a_row(1).run]
    assert history.recorded_keys([key]) == {key}


def test_attempts_are_ordered_and_not_listed_as_runs(aws: Moto) -> None:
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
    assert list(history.page(JobKey("t", "j"), None, None, 9, NOON)) == []
    assert history.recorded_keys([RunKey("t", "j", "r")]) == frozenset()


def test_runs_of_job_are_paged_newest_first_between_bounds(aws: Moto) -> None:
    history, key = aws.ports.history, JobKey("t", "j")
    rows = [a_row(n) for n in range(9)]
    history.put_runs([*rows, a_row(3, "other"), a_row(3, tenant="T")])
    ids = [row.run.run_id for row in rows]

    def page(before: str | None, after: str | None, limit: int = 99) -> list[RunRow]:
        return list(history.page(key, before, after, limit, NOON))

    assert page(None, None) == rows[::-1]
    assert page(ids[5], None, 2) == [rows[4], rows[3]]
    assert page(ids[5], ids[2]) == [rows[4], rows[3]]
    assert page(None, ids[7]) == [rows[8]]
    assert page(ids[2], ids[5]) == []


def test_runs_of_all_jobs_are_paged_newest_first_once_each(aws: Moto) -> None:
    history = aws.ports.history
    rows = [a_row(n % 40 / 3, f"j{n % 7}", run_id=run_id(n % 40 / 3, n)) for n in range(90)]
    twins = [a_row(5, "a", run_id=run_id(5, 200)), a_row(5, "b", run_id=run_id(5, 200))]
    shuffled = [*rows, *twins]
    Random(2).shuffle(shuffled)
    for start in range(0, len(shuffled), 9):
        history.put_runs(shuffled[start : start + 9])
        history.put_runs(shuffled[start : start + 4])  # again, in another batch
    history.put_runs([a_row(1, tenant="other")])
    wanted = sorted(shuffled, key=lambda row: (row.run.run_id, row.job_id), reverse=True)
    assert list_all(aws, 10) == [view_of_row(row) for row in wanted]


def test_batch_of_ended_runs_is_packed_into_one_row(aws: Moto) -> None:
    rows = [a_row(0.01 * n, run_id=run_id(0.01 * n, n)) for n in range(100)]
    entries = [RunEntry(row, 1) for row in rows]
    assert aws.spend(lambda: aws.lists.append(entries)) == {"BatchWriteItem": 1}
    (row,) = aws.rows("lists")
    assert len(row[keys.DATA_ATTR]["B"]) < 6_000
    assert int(row[keys.TTL]["N"]) == LATER.timestamp()
    assert len(list_all(aws, 200)) == 100


def test_large_batch_is_packed_into_several_rows(aws: Moto) -> None:
    chance = Random(3)
    rows = [
        a_row(0.01 * n, run_id=run_id(0.01 * n, n), detail=Detail(output=chance.randbytes(80_000)))
        for n in range(7)
    ]
    aws.lists.append([RunEntry(row, 1) for row in rows])
    assert len(aws.rows("lists")) > 1
    assert list_all(aws, 9) == [view_of_row(row) for row in rows[::-1]]


@pytest.mark.parametrize("reason", [Reason.COALESCED, Reason.OUTAGE])
def test_row_of_several_skipped_occurrences_is_read_back(aws: Moto, reason: Reason) -> None:
    run = Run(
        "r",
        RunStatus.SKIPPED,
        1,
        NOON,
        NOON,
        NOON,
        NOON,
        reason=reason,
        occurrence_count=7,
        last_at=NOON,
    )
    row = RunRow("t", "j", run, LATER)
    aws.ports.history.put_runs([row])
    assert list_all(aws, 1) == [view_of_row(row)]


@pytest.mark.parametrize("kind", ["text/plain; charset=\xe9", "text/" + "x" * 5_000])
def test_blob_with_invalid_content_type_is_stored(aws: Moto, kind: str) -> None:
    """A server may return any content type. S3 refuses one that is not ASCII."""
    aws.ports.blobs.put("outputs/acme/odd", b"data", kind)
    stored = aws.clients.s3.get_object(Bucket=aws.settings.bucket, Key="outputs/acme/odd")
    assert stored["ContentType"] == "binary/octet-stream"
    assert "response-content-type" not in (aws.ports.blobs.link("outputs/acme/odd", kind) or "")


def test_store_operations_cost_few_calls(aws: Moto) -> None:
    timers, history = aws.ports.timers, aws.ports.history
    thirty_timers = [a_timer(n) for n in range(30)]
    rows = [a_row(n) for n in range(30)]
    wanted = [RunKey("t", "j", row.run.run_id) for row in rows]
    history.put_runs(rows)
    assert aws.spend(lambda: timers.put(thirty_timers[:25])) == {"BatchWriteItem": 1}
    timers.put(thirty_timers[25:])
    assert aws.spend(lambda: timers.delete(thirty_timers)) == {"BatchWriteItem": 2}
    assert aws.spend(lambda: timers.due(NOON, 0, FOREVER, None, 500)) == {"Query": 1}
    assert aws.spend(lambda: history.recorded_keys(wanted)) == {"BatchGetItem": 1}
    assert aws.spend(lambda: history.page(JobKey("t", "j"), None, None, 30, NOON)) == {"Query": 1}
    assert aws.spend(lambda: history.attempts(wanted[0], NOON)) == {"Query": 1}
    first_page = aws.lists.page("t", RunFilters(), 10, None, NOON)
    assert aws.spend(lambda: finish(first_page)) == {"Query": aws.settings.list_slots}
    nothing: list[Callable[[list[Any]], object]] = [
        timers.put,
        timers.delete,
        history.put_runs,
        history.recorded_keys,
    ]
    for work in nothing:
        assert aws.spend(partial(work, [])) == {}
