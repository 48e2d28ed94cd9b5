"""History: a row for each run, read by run, by job and over all jobs until it expires."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.run import Reason, RunStatus, Trigger
from punctual.engine.ports.history import RecentRun
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.rows import AttemptRow, Detail, JobKey, RunKey, RunRow
from punctual.engine.queries.run_views import view_of_row
from punctual.engine.queries.slices import finish
from punctual.engine.queries.views import RunView
from tests.support.aws.adapters import World
from tests.support.builders import JOB, NOON, RUN, a_row, a_run, after, an_attempt, an_id
from tests.support.ports import Ports

MICRO = timedelta(microseconds=1)
HERE = JobKey("acme", JOB)
WRITE_ID = "0123456789ab"


def key_of(row: RunRow) -> RunKey:
    return RunKey(row.tenant, row.job_id, row.run.run_id)


def an_ended_attempt(n: int, **fields: Any) -> AttemptRow:
    values = {"run_id": an_id(n), "status": "SUCCESS", "nonce": f"{WRITE_ID}.{n}", **fields}
    return an_attempt(**values)


def find_result(ports: Ports, row: AttemptRow, now: datetime = NOON) -> Detail | None:
    """Return the stored result of an attempt of a run without a row."""
    run = a_run(row.run_id, token=row.token, nonce=row.nonce or f"{WRITE_ID}.0")
    return ports.history.find_result(RunKey(row.tenant, row.job_id, row.run_id), run, now)


def ids(rows: Sequence[RunRow | RunView]) -> list[tuple[str, str]]:
    return [(row.run.run_id, row.job_id) for row in rows]


def page_all(world: World, limit: int, tenant: str = "acme", now: datetime = NOON) -> list[RunView]:
    world.settle()
    views: list[RunView] = []
    after: tuple[str, ...] | None = None
    while True:
        page = finish(world.ports.run_index.page(tenant, RunFilters(), limit, after, now))
        assert len(page.items) <= limit
        views += page.items
        if page.next_cursor is None:
            return views
        assert after is None or page.next_cursor < after
        after = page.next_cursor


def page(ports: Ports, limit: int) -> list[RunRow]:
    all_rows: list[RunRow] = []
    before = None
    while rows := ports.history.page(HERE, before, None, limit, NOON):
        assert len(rows) <= limit
        all_rows += rows
        before = rows[-1].run.run_id
    return all_rows


def test_row_is_read_as_it_was_written(ports: Ports) -> None:
    row = a_row(
        run=a_run(
            RUN,
            RunStatus.SKIPPED,
            trigger=Trigger.BACKFILL,
            reason=Reason.COALESCED,
            occurrence_count=12,
            last_at=after(0.000001),
            past_attempts="FTL",
            ended_at=after(9),
        ),
        detail=Detail(
            error="brøken 🔥\n\u202e",
            exit_code=-9,
            http_status=503,
            http_headers=(("X-Ü", "ß"), ("X-Ü", "again")),
            output=bytes(range(256)),
            output_blob="out/1",
            output_size=256,
            output_type="text/plain; charset=utf-8",
            output_truncated=True,
            log_blob="log/1",
            log_size=3,
            log_truncated=True,
        ),
    )
    ports.history.put_runs([row])
    assert dict(ports.history.get([key_of(row)], NOON)) == {key_of(row): row}


def test_large_detail_fits(ports: Ports) -> None:
    row = a_row(detail=Detail(error="é" * 50_000, output=b"\0" * 100_000))
    ports.history.put_runs([row])
    assert ports.history.get([key_of(row)], NOON)[key_of(row)] == row


def test_row_put_again_replaces_the_earlier_one(ports: Ports) -> None:
    """The row of a catch-up grows while the catch-up goes on."""
    first = a_row(run=a_run(status=RunStatus.MISSED, occurrence_count=3))
    grown = a_row(run=a_run(status=RunStatus.MISSED, occurrence_count=2_003))
    ports.history.put_runs([first])
    ports.history.put_runs([first])
    ports.history.put_runs([grown])
    assert list(ports.history.page(HERE, None, None, 10, NOON)) == [grown]


def test_recorded_keys_returns_exactly_the_stored_keys(ports: Ports) -> None:
    rows = [a_row(an_id(n)) for n in range(120)]
    ports.history.put_runs(rows)
    missing = [
        RunKey("acme", JOB, an_id(999)),
        RunKey("acme", an_id(2), an_id(1)),
        RunKey("acme#", JOB, an_id(1)),
    ]
    keys = [*(key_of(row) for row in rows), *missing]
    assert ports.history.recorded_keys(keys) == {key_of(row) for row in rows}


def test_empty_batches_do_nothing(ports: Ports) -> None:
    ports.history.put_runs([])
    ports.history.put_attempts([])
    assert ports.history.recorded_keys([]) == frozenset()
    assert dict(ports.history.get([], NOON)) == {}


def test_missing_row_is_left_out(ports: Ports) -> None:
    row = a_row()
    ports.history.put_runs([row])
    other = RunKey("acme", JOB, an_id(7))
    assert set(ports.history.get([other, key_of(row)], NOON)) == {key_of(row)}
    assert list(ports.history.attempts(other, NOON)) == []


def test_expired_row_is_never_returned(world: World) -> None:
    history = world.ports.history
    row = a_row(expires_at=after(5.000001))
    history.put_runs([row])
    world.settle()
    for now, expected in ((row.expires_at - MICRO, [row]), (row.expires_at, [])):
        world.clock.set(now)
        assert list(history.get([key_of(row)], now).values()) == expected
        assert list(history.page(HERE, None, None, 10, now)) == expected
        assert page_all(world, 10, now=now) == [view_of_row(row) for row in expected]


def test_expired_rows_do_not_end_a_list_early(ports: Ports) -> None:
    rows = [a_row(an_id(n), expires_at=NOON if n >= 5 else after(5)) for n in range(30)]
    ports.history.put_runs(rows)
    all_rows: list[RunRow] = []
    before = None
    for _ in range(30):
        page_rows = ports.history.page(HERE, before, None, 3, NOON)
        if not page_rows:
            break
        all_rows += page_rows
        before = page_rows[-1].run.run_id
    assert all_rows == rows[4::-1]


def test_runs_of_a_job_are_listed_newest_first(ports: Ports) -> None:
    rows = [a_row(an_id(n)) for n in (3, 1, 5, 2, 4)]
    ports.history.put_runs(rows)
    expected_rows = sorted(rows, key=lambda row: row.run.run_id, reverse=True)
    assert list(ports.history.page(HERE, None, None, 10, NOON)) == expected_rows


def test_runs_of_a_job_are_listed_between_two_ids(ports: Ports) -> None:
    rows = [a_row(an_id(n)) for n in range(10)]
    ports.history.put_runs(rows)
    history = ports.history
    assert list(history.page(HERE, an_id(7), an_id(3), 10, NOON)) == rows[6:3:-1]
    assert list(history.page(HERE, an_id(7), an_id(3), 2, NOON)) == rows[6:4:-1]
    assert list(history.page(HERE, an_id(3), None, 10, NOON)) == rows[2::-1]
    assert list(history.page(HERE, None, an_id(7), 10, NOON)) == rows[9:7:-1]
    assert list(history.page(HERE, an_id(3), an_id(3), 10, NOON)) == []


@pytest.mark.parametrize("limit", [1, 7, 200])
def test_pages_of_a_job_are_complete_and_without_duplicates(ports: Ports, limit: int) -> None:
    rows = [a_row(an_id(n)) for n in range(45)]
    ports.history.put_runs([*rows, a_row(an_id(3), an_id(9)), a_row(an_id(4), tenant="acme#")])
    assert page(ports, limit) == rows[::-1]


def test_runs_that_end_between_pages_neither_repeat_nor_hide_others(ports: Ports) -> None:
    rows = [a_row(an_id(n)) for n in range(20)]
    ports.history.put_runs(rows)
    first = list(ports.history.page(HERE, None, None, 8, NOON))
    ports.history.put_runs([a_row(an_id(n)) for n in range(100, 110)])
    rest = list(ports.history.page(HERE, first[-1].run.run_id, None, 50, NOON))
    assert [*first, *rest] == rows[::-1]


@pytest.mark.parametrize("limit", [1, 7, 200])
def test_pages_over_all_jobs_are_complete_and_in_order(world: World, limit: int) -> None:
    rows = [a_row(an_id(n // 3), an_id(100 + n % 3)) for n in range(45)]
    rows += [a_row(an_id(n * 1_000), an_id(50)) for n in range(1, 9)]
    world.ports.history.put_runs([*rows[::2], *rows[1::2], a_row(an_id(1), tenant="acme#")])
    assert ids(page_all(world, limit)) == sorted(ids(rows), reverse=True)


def test_runs_of_one_time_are_in_order_over_all_jobs(world: World) -> None:
    """Runs due at the same time have ids that share the time."""
    time_part = an_id(1)[:-12]
    rows = [a_row(f"{time_part}{n * 7919 % 1_000:012}", an_id(n)) for n in range(150)]
    world.ports.history.put_runs(rows)
    assert ids(page_all(world, 40)) == sorted(ids(rows), reverse=True)


def test_list_over_all_jobs_may_be_empty(world: World) -> None:
    assert page_all(world, 10, "unknown") == []


def test_large_batches_are_written_completely(ports: Ports) -> None:
    rows = [a_row(an_id(n)) for n in range(230)]
    ports.history.put_runs(rows)
    assert dict(ports.history.get([key_of(row) for row in rows], NOON)) == {
        key_of(row): row for row in rows
    }


def test_attempts_are_ordered_by_number_and_token(ports: Ports) -> None:
    expected_rows = [
        an_attempt(1, 2, status="LOST", lost=True),
        an_attempt(2, 9, detail=Detail(error="first")),
        an_attempt(2, 10, detail=Detail(error="second")),
        an_attempt(10, 40),
        an_attempt(100, 401),
    ]
    ports.history.put_attempts(expected_rows[::-1])
    assert list(ports.history.attempts(RunKey("acme", JOB, RUN), NOON)) == expected_rows


def test_row_of_a_holder_is_kept_beside_the_row_of_its_lost_lease(ports: Ports) -> None:
    own, lost = an_attempt(detail=Detail(error="mine")), an_attempt(status="LOST", lost=True)
    ports.history.put_attempts([own])
    ports.history.put_attempts([lost, own])
    stored = list(ports.history.attempts(RunKey("acme", JOB, RUN), NOON))
    assert sorted(stored, key=lambda row: row.lost) == [own, lost]


def test_attempts_belong_to_one_run(ports: Ports) -> None:
    own_attempt = an_attempt()
    others = [
        replace(own_attempt, run_id=an_id(7)),
        replace(own_attempt, job_id=an_id(8)),
        replace(own_attempt, tenant="acme#"),
    ]
    ports.history.put_attempts([own_attempt, *others])
    assert list(ports.history.attempts(RunKey("acme", JOB, RUN), NOON)) == [own_attempt]


def test_expired_attempts_are_never_returned(world: World) -> None:
    history = world.ports.history
    unexpired, gone = an_attempt(1, expires_at=after(9)), an_attempt(2, expires_at=after(5))
    forever = an_attempt(3, expires_at=None)
    history.put_attempts([unexpired, gone, forever])
    world.clock.set(after(5))
    assert list(history.attempts(RunKey("acme", JOB, RUN), after(5))) == [unexpired, forever]


def test_result_of_an_attempt_is_found_by_run_and_token(ports: Ports) -> None:
    """Some attempts were claimed together. Others share only the write id."""
    rows = [
        an_ended_attempt(n, detail=Detail(output=b"%d" % n, output_type="text/plain"))
        for n in range(12)
    ]
    others = [
        an_ended_attempt(0, token=9, detail=Detail(error="another claim")),
        an_ended_attempt(1, tenant="acme#"),
    ]
    ports.history.put_results([*rows, *others])
    for n, row in enumerate(rows):
        assert find_result(ports, row) == Detail(output=b"%d" % n, output_type="text/plain")
    assert find_result(ports, others[0]) == Detail(error="another claim")
    assert find_result(ports, others[1]) == Detail()
    assert find_result(ports, replace(rows[0], token=3)) is None
    assert find_result(ports, replace(rows[0], job_id=an_id(99))) is None
    assert find_result(ports, replace(rows[0], tenant="globex")) is None


def test_results_put_again_in_parts_remove_nothing(ports: Ports) -> None:
    """After a lost swap the rest of the batch is decided and written again."""
    rows = [an_ended_attempt(n, detail=Detail(exit_code=n)) for n in range(4)]
    ports.history.put_results([])
    ports.history.put_results(rows)
    ports.history.put_results(rows[2:])
    ports.history.put_results(rows[:1])
    assert [find_result(ports, row) for row in rows] == [Detail(exit_code=n) for n in range(4)]


def test_result_of_an_attempt_expires(world: World) -> None:
    unexpired = an_ended_attempt(1, expires_at=after(9))
    gone = an_ended_attempt(2, nonce="fedcba987654.0", expires_at=after(5))
    world.ports.history.put_results([unexpired, gone])
    assert find_result(world.ports, gone) == Detail()
    world.clock.set(after(5))
    assert find_result(world.ports, gone, after(5)) is None
    assert find_result(world.ports, unexpired, after(5)) == Detail()


def test_large_results_are_stored(ports: Ports) -> None:
    rows = [
        an_ended_attempt(n, detail=Detail(error="é" * 40_000, output=b"\0" * 99_000))
        for n in range(9)
    ]
    ports.history.put_results(rows)
    assert [find_result(ports, row) for row in rows] == [row.detail for row in rows]


def test_many_attempts_are_stored(ports: Ports) -> None:
    attempts = [an_attempt(n, n + 1) for n in range(1, 106)]
    ports.history.put_attempts(attempts)
    assert list(ports.history.attempts(RunKey("acme", JOB, RUN), NOON)) == attempts


def test_recent_runs_are_the_newest_of_each_job_with_their_durations(world: World) -> None:
    history = world.ports.history
    rows = [
        a_row(
            an_id(number),
            job_id,
            run=a_run(
                an_id(number),
                RunStatus.SUCCESS if number else RunStatus.SKIPPED,
                scheduled_at=after(number),
                started_at=after(number) if number else None,
                attempt_at=after(number) if number else None,
                ended_at=after(number + 0.25),
            ),
        )
        for job_id in (JOB, an_id(2))
        for number in range(5)
    ]
    history.put_runs(rows)
    keys = [JobKey("acme", JOB), JobKey("acme", an_id(2)), JobKey("acme", an_id(3))]
    recent = history.recent_runs(keys, 3, NOON)
    assert list(recent) == keys
    assert [run.run_id for run in recent[keys[0]]] == [an_id(4), an_id(3), an_id(2)]
    assert list(recent[keys[1]]) == list(recent[keys[0]])
    assert list(recent[keys[2]]) == []
    oldest = history.recent_runs(keys[:1], 10, NOON)[keys[0]]
    assert oldest[-1] == RecentRun(an_id(0), RunStatus.SKIPPED, NOON, None)
    assert oldest[0].duration == timedelta(seconds=0.25)
    assert list(history.recent_runs(keys[:1], 10, NOON + HISTORY_RETENTION)[keys[0]]) == []
