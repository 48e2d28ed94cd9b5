"""Rows of job states: their size, their round trip, their conditions, rows of a later layout."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import from_attribute, from_item, to_attribute, to_item
from punctual.aws.dynamodb.jobs import state_rows
from punctual.domain.errors import Unavailable
from punctual.domain.job_state import CatchUp, JobState, JobStatus, MisfirePolicy, Retry
from punctual.domain.run import Lease, Reason, Run, RunStatus, WaitingRun
from punctual.domain.schedules.schedule import Cron
from punctual.engine.ports.job_states import Swap
from tests.support.builders_jobs import JOB_ID, NOON, a_job, after
from tests.support.item_size import item_size

RUN_ID = "01900000-0000-7000-8000-0000000000aa"
WRITE_ID = "0123456789ab.%d"
SUB_SECOND = timedelta(microseconds=123_456)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(-1e100, 1e100).filter(lambda x: x == 0 or abs(x) > 1e-100)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


def a_run(**fields: Any) -> Run:
    """Return a running run, as an executor's claim leaves it."""
    defaults: dict[str, Any] = {
        "run_id": RUN_ID,
        "status": RunStatus.RUNNING,
        "definition": 3,
        "scheduled_at": NOON,
        "due_at": NOON,
        "created_at": NOON - SUB_SECOND,
        "changed_at": NOON + SUB_SECOND,
        "token": 17,
        "executor_id": RUN_ID,
        "nonce": WRITE_ID % 9,
        "started_at": NOON + SUB_SECOND,
        "attempt_at": NOON + SUB_SECOND,
    }
    return Run(**{**defaults, **fields})


def a_busy_job() -> JobState:
    """Return the usual job state: a cron job that calls an API, with one live run."""
    job = a_job(
        Cron("*/5 * * * *", "Europe/Berlin"),
        tenant="acme-production",
        version=17,
        edition=3,
        definition=3,
        created_at=NOON - SUB_SECOND,
        updated_at=NOON - SUB_SECOND,
        next_at=after(300),
        timer_at=after(300),
        started_runs=1_441,
        runs=(a_run(),),
        latest_run_id=RUN_ID,
        write_ids=tuple(WRITE_ID % n for n in range(4)),
        task_type="http",
    )
    return replace(job, rules={3: replace(job.rules[1], definition_ref="3-0123456789ab")})


@given(json_values)
def test_attribute_values_round_trip(value: Any) -> None:
    assert from_attribute(to_attribute(value)) == value


@pytest.mark.parametrize(
    ("value", "weight"),
    [("é", 2), (b"abc", 3), (0, 2), (100, 2), (12345, 4), (-7, 3), (2.5, 2), ([], 3), (None, 1)],
)
def test_attribute_value_has_the_size_that_dynamodb_counts(value: Any, weight: int) -> None:
    assert item_size({"a": to_attribute(value)}) == 1 + weight


def test_value_without_an_attribute_type_is_an_error() -> None:
    with pytest.raises(TypeError, match="set"):
        to_attribute({"a": {1, 2}})


def test_usual_job_state_row_is_under_a_kilobyte() -> None:
    lease = {RUN_ID: Lease(17, after(20), is_renewed=True)}
    alone, leased = (item_size(state_rows.to_row(a_busy_job(), leases)) for leases in (None, lease))
    print(f"a cron job with one live run: {alone} bytes, {leased} with its lease")
    assert leased < 1_024


def test_live_run_adds_under_400_bytes_to_a_job_state_row() -> None:
    job = a_busy_job()
    larger = replace(job, runs=(*job.runs, a_run(run_id=JOB_ID)))
    grown = item_size(state_rows.to_row(larger)) - item_size(state_rows.to_row(job))
    print(f"one more live run: {grown} bytes")
    assert grown < 400


@pytest.mark.parametrize("length", [0, 1, 4, 5, 1_000])
def test_wait_queue_round_trips_and_a_long_one_is_packed(length: int) -> None:
    wait_queue = tuple(
        WaitingRun(f"{RUN_ID[:-4]}{n:04x}", 1, after(n), after(n), after(n + 0.123456))
        for n in range(length)
    )
    job = a_job(wait_queue=wait_queue)
    row = state_rows.to_row(job)
    print(f"{length} runs in line: {item_size(row)} bytes")
    assert state_rows.from_row(row).state == job
    assert item_size(row) < 500 + 140 * min(length, 4) + 40 * length


def test_job_state_row_round_trips_with_its_leases() -> None:
    waiting = WaitingRun("w", 3, NOON, NOON, NOON)
    job = replace(
        a_busy_job(),
        rules={3: replace(a_busy_job().rules[3], retry=Retry(2.5, 1000, 1.1, False))},
        wait_queue=(waiting, replace(waiting, run_id="x", is_caught_up=True)),
        unrecorded=(
            a_run(status=RunStatus.SKIPPED, reason=Reason.OVERLAP, ended_at=NOON, nonce="n"),
        ),
        catch_up=CatchUp(NOON, MisfirePolicy.RUN_ALL),
        status=JobStatus.PAUSED,
        tenant="té#nant",
        job_id="01900000#é",
        write_ids=("w1", WRITE_ID % 1, WRITE_ID % 2 + "x"),
    )
    leases = {RUN_ID: Lease(17, after(20), is_renewed=True), "é b": Lease(3, after(0.25))}
    stored = state_rows.from_row(state_rows.to_row(job, leases))
    assert stored.state == job
    assert stored.leases == leases


def test_job_state_row_is_readable_in_the_console() -> None:
    row = from_item(state_rows.to_row(a_busy_job()))
    assert row["state"] == "SCHEDULED"
    assert row["schedule"] == {"is": "cron", "cron": "*/5 * * * *", "tz": "Europe/Berlin"}
    assert row["runs"][0]["st"] == "RUNNING"
    assert row["next_at"] == "2026-03-02T12:05:00Z"


def test_job_state_row_of_a_later_layout_is_refused() -> None:
    row = state_rows.to_row(a_busy_job())
    row[keys.LAYOUT_ATTR] = to_attribute(keys.ROW_LAYOUT + 1)
    with pytest.raises(Unavailable, match="later version"):
        state_rows.from_row(row)


@pytest.mark.parametrize(
    ("blank", "retention"), [(False, timedelta(days=30)), (True, timedelta(hours=1))]
)
def test_ended_job_state_expires_and_a_blank_one_sooner(blank: bool, retention: timedelta) -> None:
    row = state_rows.to_row(a_job(ended_at=NOON, is_blank=blank, status=JobStatus.COMPLETED))
    assert not state_rows.is_expired(row, NOON + retention - timedelta(microseconds=1))
    assert state_rows.is_expired(row, NOON + retention)


def test_live_job_state_does_not_expire() -> None:
    assert keys.TTL not in state_rows.to_row(a_job())


def test_swap_sets_present_fields_and_removes_absent_ones() -> None:
    job = replace(a_job(), version=2, next_at=None, write_ids=("w",))
    swap = Swap(job, 1, {"new": Lease(2, NOON), "old": None}, {"held": Lease(1, NOON)})
    condition = state_rows.swap_condition(swap, NOON)
    set_part, removed_part = condition.update.split(" REMOVE ")
    removed = {condition.names[placeholder] for placeholder in removed_part.split(", ")}
    set_names = {condition.names[pair.split(" ")[0]] for pair in set_part[4:].split(", ")}
    assert {"next_at", "runs", "expires", "lease_old"} <= removed
    assert {"version", "writers", "lease_new", keys.LAYOUT_ATTR} <= set_names
    assert not set_names & removed
    assert "lease_held" not in set_names | removed


@pytest.mark.parametrize(
    ("version", "writers", "own"),
    [
        (2, ("a", "me"), True),
        (3, ("a", "me", "b"), True),
        (5, ("me", "b", "c", "d"), True),
        (2, ("a", "b"), False),
        (2, ("me", "b"), False),  # it won an earlier swap and lost this one
        (1, ("a", "me"), False),
        (9, ("b", "c", "d", "e"), False),
    ],
)
def test_swap_is_own_if_its_write_id_stands_at_its_version_or_later(
    version: int, writers: tuple[str, ...], own: bool
) -> None:
    own_state = a_job(version=2, write_ids=("a", "me"))
    row = state_rows.to_row(a_job(version=version, write_ids=writers))
    assert state_rows.is_own(own_state, row) is own


def test_swap_is_not_own_without_a_row_or_a_write_id() -> None:
    assert not state_rows.is_own(a_job(write_ids=("w",)), {})
    assert not state_rows.is_own(a_job(), state_rows.to_row(a_job()))


def test_job_state_row_is_filed_under_its_tenant_and_job() -> None:
    row = state_rows.to_row(a_job(tenant="acme"))
    assert (row[keys.PK]["S"], row[keys.SK]["S"]) == (f"acme#{JOB_ID}", "state")
    assert "tenant" not in row
    assert to_item({"n": 1}) == {"n": {"N": "1"}}
