"""One suite holds every kind of executor to the protocol: claim, renew, finish, upload.

Drivers in `tests/support/executors` say what differs by design, for example a container that has no
heartbeat of its own. Each case asserts the one behaviour or the other.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from punctual.domain.durations import MAX_LOST_ATTEMPTS
from punctual.domain.run import Reason, RunStatus
from punctual.engine.execution.executor import Executor
from tests.support.executors.claim_calls import ClaimHolder
from tests.support.executors.driver import ERROR, OUTPUT, Answer, ExecutorDriver, Holder
from tests.support.executors.kinds import CLAIM_KINDS, KINDS, OpenDriver

SILENCE_SECONDS = 300  # longer than any lease
RETRY = {"backoff_seconds": 1, "max_backoff_seconds": 1, "jitter": False}
ENDS = (RunStatus.SUCCESS, RunStatus.FAILED, RunStatus.CANCELLED)


def opened(kind: OpenDriver, folder: Path) -> AbstractContextManager[ExecutorDriver]:
    return kind(folder / "node")


@pytest.fixture(params=KINDS)
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ExecutorDriver]:
    with opened(KINDS[request.param], tmp_path) as driver:
        yield driver


@pytest.fixture(params=CLAIM_KINDS)
def claim_driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ExecutorDriver]:
    """Return the driver of an executor that has only a signed claim."""
    with opened(KINDS[request.param], tmp_path) as driver:
        yield driver


def submit(driver: ExecutorDriver, **document: Any) -> None:
    driver.submit(**{"max_retries": 0, "retry": RETRY, **document})


def begin(driver: ExecutorDriver, **document: Any) -> Holder:
    """Submit a job, and return the holder of its run. The work has begun."""
    submit(driver, **document)
    return begin_next(driver)


def begin_next(driver: ExecutorDriver) -> Holder:
    holder = driver.take_next()
    holder.begin()
    return holder


def check_claim_is_void(driver: ExecutorDriver, holder: Holder) -> None:
    """Check that no report with an old claim changes the run.

    The first one may record what is still open of an ended run.
    """
    assert not holder.report(RunStatus.SUCCESS)
    before = driver.picture
    assert [holder.report(status) for status in ENDS] == [False] * len(ENDS)
    assert driver.picture == before


# From the claim to the end


def test_run_goes_from_its_claim_to_its_end(driver: ExecutorDriver) -> None:
    submit(driver)
    statuses = [driver.run.status]
    holder = driver.take()
    assert (driver.run.attempt, driver.run.is_held) == (1, True)
    statuses.append(driver.run.status)
    holder.begin()
    statuses.append(driver.run.status)
    holder.end(RunStatus.SUCCESS)
    claimed = RunStatus.RUNNING if driver.starts_at_once else RunStatus.CLAIMED
    assert statuses == [RunStatus.QUEUED, claimed, RunStatus.RUNNING]
    run = driver.run
    assert (run.status, run.attempt, run.past_attempts) == (RunStatus.SUCCESS, 1, "")
    assert driver.picture.output == (OUTPUT if driver.stores_output else None)
    assert not driver.view.attempts


def test_output_is_stored_before_the_end_is_recorded(
    driver: ExecutorDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, stored = Executor.finish, list[bytes | None]()

    def watched_finish(executor: Executor, finished: Any, *args: Any) -> Any:
        for attempt in finished:
            name = attempt.detail.output_blob
            stored.append(driver.stored_blob(name) if name else None)
        return finish(executor, finished, *args)

    monkeypatch.setattr(Executor, "finish", watched_finish)
    begin(driver).end(RunStatus.SUCCESS)
    assert driver.run.status is RunStatus.SUCCESS
    assert stored == [OUTPUT if driver.stores_output else None]


def test_discarded_output_is_stored_nowhere(driver: ExecutorDriver) -> None:
    begin(driver, output="discard").end(RunStatus.SUCCESS)
    view = driver.view
    assert (view.run.status, view.detail.output_blob, view.detail.discarded) == (
        RunStatus.SUCCESS,
        "",
        driver.stores_output,
    )


def test_same_end_again_changes_nothing(driver: ExecutorDriver) -> None:
    holder = begin(driver)
    holder.end(RunStatus.SUCCESS)
    before = driver.picture
    for status in ENDS:
        holder.report(status)
        assert driver.picture == before


# Leases


def test_holder_keeps_its_run_while_it_renews(driver: ExecutorDriver) -> None:
    holder = begin(driver)
    driver.pass_time(driver.work_seconds)
    assert holder.renew() is Answer.OK
    run = driver.run
    assert (run.status, run.token, run.past_attempts) == (RunStatus.RUNNING, holder.run.token, "")
    holder.end(RunStatus.SUCCESS)
    assert (driver.run.status, driver.run.attempt) == (RunStatus.SUCCESS, 1)


def test_run_has_one_holder_at_a_time(driver: ExecutorDriver) -> None:
    submit(driver)
    holder = driver.take()
    assert not driver.claim_again()
    holder.begin()
    assert not driver.claim_again()
    assert driver.run.token == holder.run.token
    assert holder.renew() is Answer.OK


def test_frozen_holder_loses_its_run_to_the_next_one(driver: ExecutorDriver) -> None:
    frozen = begin(driver)
    frozen.freeze()
    driver.pass_time(SILENCE_SECONDS)
    if not driver.freezes_alone:  # nothing evaluates the lease, so the holder goes on
        assert frozen.renew() is Answer.OK
        frozen.end(RunStatus.SUCCESS)
        assert (driver.run.status, driver.run.attempt) == (RunStatus.SUCCESS, 1)
        return
    living = begin_next(driver)
    assert living.run.token > frozen.run.token
    assert (living.run.attempt, living.run.past_attempts) == (2, "L")
    before = driver.run
    assert frozen.renew() is Answer.LOST
    frozen.end(RunStatus.FAILED)
    run = driver.run
    assert (run.status, run.token, run.past_attempts) == (before.status, before.token, "L")
    check_claim_is_void(driver, frozen)
    living.end(RunStatus.SUCCESS)
    assert (driver.run.status, driver.run.attempt) == (RunStatus.SUCCESS, 2)
    assert driver.picture.output == (OUTPUT if driver.stores_output else None)
    check_claim_is_void(driver, frozen)


# Attempts


def test_attempt_of_a_dead_holder_is_lost_and_counts_as_no_retry(driver: ExecutorDriver) -> None:
    dead = begin(driver)
    dead.kill()
    living = begin_next(driver)
    assert (living.run.attempt, living.run.past_attempts) == (2, "L")
    check_claim_is_void(driver, dead)
    living.end(RunStatus.SUCCESS)
    view = driver.view
    assert (view.run.status, view.run.attempt) == (RunStatus.SUCCESS, 2)
    assert [(attempt.number, attempt.lost) for attempt in view.attempts] == [(1, True)]
    check_claim_is_void(driver, dead)


def test_holder_that_dies_before_its_work_begins(driver: ExecutorDriver) -> None:
    submit(driver)
    dead = driver.take()
    dead.kill()
    living = begin_next(driver)
    lost = (2, "L") if driver.counts_unbegun else (1, "")
    assert (living.run.attempt, living.run.past_attempts) == lost
    assert living.run.token > dead.run.token
    check_claim_is_void(driver, dead)


def test_run_of_holders_that_always_die_is_failed(driver: ExecutorDriver) -> None:
    submit(driver)
    for _ in range(MAX_LOST_ATTEMPTS):
        begin_next(driver).kill()
    run = driver.wait_for(RunStatus.FAILED)
    assert (run.reason, run.attempt) == (Reason.LOST, MAX_LOST_ATTEMPTS)


def test_run_that_may_start_only_once_is_failed_by_the_death_of_its_holder(
    driver: ExecutorDriver,
) -> None:
    dead = begin(driver, delivery="AT_MOST_ONCE", max_retries=0)
    dead.kill()
    run = driver.wait_for(RunStatus.FAILED)
    assert (run.reason, run.attempt) == (Reason.LOST, 1)
    check_claim_is_void(driver, dead)


def test_failed_attempt_is_retried_as_often_as_the_job_says(driver: ExecutorDriver) -> None:
    first = begin(driver, max_retries=1)
    first.end(RunStatus.FAILED)
    assert (driver.run.status, driver.run.reason) == (RunStatus.WAITING, Reason.BACKOFF)
    second = begin_next(driver)
    assert (second.run.attempt, second.run.past_attempts) == (2, "F")
    assert second.run.token > first.run.token
    second.end(RunStatus.FAILED)
    view = driver.view
    assert (view.run.status, view.run.attempt) == (RunStatus.FAILED, 2)
    assert [(attempt.number, attempt.lost) for attempt in view.attempts] == [(1, False)]
    assert view.detail.error in (ERROR, "Exit code 1")


@pytest.mark.parametrize("delivery", ["AT_LEAST_ONCE", "AT_MOST_ONCE"])
def test_returned_run_keeps_its_attempt_number(driver: ExecutorDriver, delivery: str) -> None:
    submit(driver, delivery=delivery)
    first = driver.take()
    first.release()
    at_once = RunStatus.QUEUED if driver.returns_at_once else RunStatus.WAITING
    assert (driver.run.status, driver.run.past_attempts) == (at_once, "")
    second = begin_next(driver)
    assert (second.run.attempt, second.run.past_attempts) == (1, "")
    assert second.run.token > first.run.token
    check_claim_is_void(driver, first)
    second.end(RunStatus.SUCCESS)
    assert (driver.run.status, driver.run.attempt) == (RunStatus.SUCCESS, 1)


# Cancel


def test_cancel_reaches_the_holder_with_its_renewal(driver: ExecutorDriver) -> None:
    holder = begin(driver, max_retries=3)
    driver.cancel()
    assert driver.run.status is RunStatus.RUNNING, "the holder has not stopped yet"
    assert holder.renew() is Answer.CANCEL
    holder.end(RunStatus.CANCELLED)
    run = driver.run
    assert (run.status, run.reason, run.attempt) == (RunStatus.CANCELLED, Reason.CANCELLED, 1)
    before = driver.picture
    holder.report(RunStatus.SUCCESS)
    assert driver.picture == before


def test_cancelled_run_of_a_dead_holder_starts_no_more(driver: ExecutorDriver) -> None:
    holder = begin(driver, max_retries=3)
    driver.cancel()
    holder.kill()
    run = driver.wait_for(RunStatus.CANCELLED)
    assert (run.reason, run.attempt) == (Reason.CANCELLED, 1)
    check_claim_is_void(driver, holder)


def test_failure_after_a_cancel_is_not_retried(driver: ExecutorDriver) -> None:
    holder = begin(driver, max_retries=3)
    driver.cancel()
    holder.end(RunStatus.FAILED)
    assert (driver.run.status, driver.run.attempt) == (RunStatus.CANCELLED, 1)


def test_work_that_ended_before_its_cancel_was_heard_is_a_success(driver: ExecutorDriver) -> None:
    holder = begin(driver)
    driver.cancel()
    holder.end(RunStatus.SUCCESS)
    heard = RunStatus.CANCELLED if driver.hears_cancel_at_once else RunStatus.SUCCESS
    assert driver.run.status is heard


# Calls by claim


def held_by_claim(holder: Holder) -> ClaimHolder:
    assert isinstance(holder, ClaimHolder)
    return holder


def test_uploaded_output_is_that_of_the_run(claim_driver: ExecutorDriver) -> None:
    holder = held_by_claim(begin(claim_driver))
    output_upload = holder.upload(b"a,b\n1,2\n")
    assert output_upload
    assert holder.end_with_upload(output_upload)
    assert claim_driver.run.status is RunStatus.SUCCESS
    assert claim_driver.picture.output == b"a,b\n1,2\n"
    before = claim_driver.picture
    assert holder.upload(b"late") is None
    assert claim_driver.picture == before


def test_upload_of_a_lost_claim_is_not_that_of_the_run(claim_driver: ExecutorDriver) -> None:
    lost = held_by_claim(begin(claim_driver))
    late = lost.upload(b"late")
    assert late
    lost.freeze()
    claim_driver.pass_time(SILENCE_SECONDS)
    living = held_by_claim(begin_next(claim_driver))
    assert lost.upload(b"later") is None
    assert not lost.end_with_upload(late)
    living.end(RunStatus.SUCCESS)
    assert claim_driver.picture.output == OUTPUT
    check_claim_is_void(claim_driver, lost)


def test_claim_belongs_to_the_first_runner(claim_driver: ExecutorDriver) -> None:
    holder = held_by_claim(begin(claim_driver))
    other = holder.as_runner("runner-2")
    before = claim_driver.picture
    assert other.renew() is Answer.LOST
    assert not other.report(RunStatus.SUCCESS)
    assert claim_driver.picture == before
    assert holder.renew() is Answer.OK


def test_same_end_by_claim_gets_the_same_answer(claim_driver: ExecutorDriver) -> None:
    holder = begin(claim_driver)
    holder.end(RunStatus.SUCCESS)
    before = claim_driver.picture
    assert holder.report(RunStatus.SUCCESS)
    claim_driver.pass_time(SILENCE_SECONDS)
    assert holder.report(RunStatus.SUCCESS)
    assert holder.renew() is Answer.LOST
    assert claim_driver.picture == before


def test_altered_claim_is_lost(claim_driver: ExecutorDriver) -> None:
    holder = held_by_claim(begin(claim_driver))
    identity, _, signature = holder.claim.partition(".")
    forged = [
        holder.with_claim(text)
        for text in ("", "not a claim", identity, f".{signature}", f"{identity}.{'A' * 43}")
    ]
    before = claim_driver.picture
    for other in forged:
        assert other.renew() is Answer.LOST
        assert not other.report(RunStatus.SUCCESS)
        assert other.upload(b"forged") is None
    assert claim_driver.picture == before
    assert holder.renew() is Answer.OK
