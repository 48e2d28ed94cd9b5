"""Executor functions wait for short scripts, and record their answers."""

from datetime import timedelta
from typing import Any

import pytest

from punctual.domain.claims import OutputUpload
from punctual.domain.leases import RUN_LEASE
from punctual.domain.run import RunStatus
from punctual.engine.changes.run_results import log_key, log_part_key, log_parts_folder, output_key
from punctual.engine.ports.blobs import TEXT_CONTENT_TYPE as TEXT
from punctual.tasks.contract import Throttled
from punctual.tasks.script_function import RUNNER_ANSWER_SECONDS, NoAnswer, RunnerDied
from tests.support.builders import NOON, after
from tests.support.deployed.drivers.executors import Executors
from tests.support.deployed.drivers.script_functions import (
    LEASE_TIMER_DELAY,
    SHORT,
    Functions,
    claim_of,
    encoded,
    invoke,
)


def test_result_of_a_short_script_is_stored_as_of_other_tasks(
    world: Executors, functions: Functions
) -> None:
    key = world.submit(**SHORT)
    functions.answers = [
        {
            "exit_code": 0,
            "output": encoded(b"done\n"),
            "output_type": TEXT,
            "log": encoded(b"done\n"),
        }
    ]
    assert invoke(world) == []
    view = world.run(key)
    assert view.run.status is RunStatus.SUCCESS
    assert (view.detail.exit_code, view.detail.output_type) == (0, TEXT)
    claim = claim_of(functions.events[0])
    assert world.world.object(output_key(key, claim.run_id, 1)) == b"done\n"
    assert world.world.object(log_key(key, claim.run_id, 1)) == b"done\n"
    assert functions.started == []


def test_failure_of_a_short_script_is_its_attempt(world: Executors, functions: Functions) -> None:
    key = world.submit(**SHORT)
    functions.answers = [{"status": "FAILED", "error": "Exit code 3\noops", "exit_code": 3}]
    invoke(world)
    view = world.run(key)
    assert (view.run.status, view.detail.error) == (RunStatus.FAILED, "Exit code 3\noops")
    assert view.detail.exit_code == 3


def test_log_that_was_sent_before_is_joined_with_the_rest(
    world: Executors, functions: Functions
) -> None:
    key = world.submit(**SHORT)

    def answer() -> dict[str, Any]:
        claim = claim_of(functions.events[0])
        part = log_part_key(log_parts_folder(key, claim.run_id, 1), claim.token, 0)
        with world.world.meter.as_role("test"):
            world.runtime.ports.blobs.put(part, b"early ", TEXT)
        return {"log": encoded(b"late"), "log_offset": len(b"early ")}

    functions.answers = [answer]
    invoke(world)
    claim = claim_of(functions.events[0])
    assert world.world.object(log_key(key, claim.run_id, 1)) == b"early late"


def test_output_that_the_runner_stored_is_that_of_the_run(
    world: Executors, functions: Functions
) -> None:
    world.world.put_token("any")
    key, tokens = world.submit(**SHORT), world.runtime.claim_tokens

    def answer() -> dict[str, Any]:
        claim = claim_of(functions.events[0])
        with world.world.meter.as_role("test"):
            world.runtime.ports.blobs.put(
                output_key(key, claim.run_id, 1), b"a,b", "text/csv", claim.token
            )
        return {"output_upload": tokens.sign_upload(claim, OutputUpload(3, "text/csv"))}

    functions.answers = [answer]
    invoke(world)
    view = world.run(key)
    claim, detail = claim_of(functions.events[0]), view.detail
    assert view.run.status is RunStatus.SUCCESS
    assert detail.output_blob == output_key(key, claim.run_id, 1)
    assert (detail.output_size, detail.output_type) == (3, "text/csv")


@pytest.mark.parametrize("stored_by", [None, "an earlier claim"])
def test_announced_output_that_this_claim_has_not_uploaded_fails_the_attempt(
    world: Executors, functions: Functions, stored_by: str | None
) -> None:
    world.world.put_token("any")
    key, tokens = world.submit(**SHORT), world.runtime.claim_tokens

    def answer() -> dict[str, Any]:
        claim = claim_of(functions.events[0])
        if stored_by:
            name = output_key(key, claim.run_id, 1)
            with world.world.meter.as_role("test"):
                world.runtime.ports.blobs.put(name, b"bad", "text/csv", claim.token - 1)
        return {"output_upload": tokens.sign_upload(claim, OutputUpload(3, "text/csv"))}

    functions.answers = [answer]
    invoke(world)
    view = world.run(key)
    assert (view.run.status, view.detail.output_blob) == (RunStatus.FAILED, "")
    assert view.detail.error == "The output that the executor announced was not uploaded."


def test_forged_upload_names_no_output(world: Executors, functions: Functions) -> None:
    world.world.put_token("any")
    key = world.submit(**SHORT)
    functions.answers = [{"output_upload": "forged"}]
    invoke(world)
    view = world.run(key)
    assert (view.run.status, view.detail.output_blob) == (RunStatus.FAILED, "")


@pytest.mark.parametrize("status", ["FAILED", "TIMED_OUT"])
def test_log_of_a_runner_without_an_answer_becomes_that_of_the_run(
    world: Executors, functions: Functions, status: str
) -> None:
    """The runner has sent a part of the log, and the executor abandons it."""
    key = world.submit(**SHORT)

    def answer() -> dict[str, Any]:
        claim = claim_of(functions.events[0])
        part = log_part_key(log_parts_folder(key, claim.run_id, 1), claim.token, 0)
        with world.world.meter.as_role("test"):
            world.runtime.ports.blobs.put(part, b"all that was sent\n", TEXT)
        return {"status": status}

    functions.answers = [answer]
    invoke(world)
    claim = claim_of(functions.events[0])
    assert world.run(key).detail.log_blob == log_key(key, claim.run_id, 1)
    assert world.world.object(log_key(key, claim.run_id, 1)) == b"all that was sent\n"
    with world.world.meter.as_role("test"):
        folder = log_parts_folder(key, claim.run_id, 1)
        assert world.runtime.ports.blobs.list_names(folder) == []


def test_throttled_short_script_is_no_attempt(world: Executors, functions: Functions) -> None:
    key = world.submit(**SHORT)
    functions.answers = [Throttled("Lambda does not start another script now")]
    invoke(world)
    assert world.status(key) is RunStatus.WAITING
    world.clock.set(after(60))
    world.evaluate_due_timers()
    invoke(world)
    assert world.status(key) is RunStatus.SUCCESS
    assert [event["attempt_number"] for event in functions.events] == [1, 1]


def test_dead_runner_is_a_lost_attempt_and_the_next_follows_at_once(
    world: Executors, functions: Functions
) -> None:
    key = world.submit(**SHORT)
    functions.answers = [RunnerDied("signal: killed")]
    invoke(world)
    assert world.status(key) is RunStatus.QUEUED
    invoke(world)
    assert world.status(key) is RunStatus.SUCCESS
    assert [event["attempt_number"] for event in functions.events] == [1, 2]


def test_lost_answer_is_not_repeated_before_the_lease_ends(
    world: Executors, functions: Functions
) -> None:
    key = world.submit(**SHORT)
    functions.answers = [NoAnswer("ReadTimeoutError")]
    assert invoke(world) == [], "a timer covers the lease"
    world.clock.advance(RUN_LEASE - timedelta(seconds=1))
    world.evaluate_due_timers()
    assert world.status(key) is RunStatus.RUNNING, "its runner may go on"
    world.clock.advance(timedelta(seconds=1) + LEASE_TIMER_DELAY)
    world.evaluate_due_timers()
    invoke(world)
    assert world.status(key) is RunStatus.SUCCESS
    assert [event["attempt_number"] for event in functions.events] == [1, 2]


def test_cancelled_script_keeps_what_it_logged(world: Executors, functions: Functions) -> None:
    """The runner learns of the cancel by itself. Its answer has the log up to there."""
    key = world.submit(**SHORT)

    def answer() -> dict[str, Any]:
        with world.world.meter.as_role("test"):
            world.jobs.cancel(*key)
        return {"status": "CANCELLED", "error": "Cancelled", "log": encoded(b"begun")}

    functions.answers = [answer]
    invoke(world)
    assert world.status(key) is RunStatus.CANCELLED
    claim = claim_of(functions.events[0])
    assert world.world.object(log_key(key, claim.run_id, 1)) == b"begun"


def test_cancel_gives_the_runner_time_to_answer(world: Executors, functions: Functions) -> None:
    key = world.submit(**SHORT, payload={"lasts": 500, "stubborn": True})
    records = world.records()
    world.task_runner.at(after(2), lambda: world.jobs.cancel(*key))
    invoke(world, records)
    waited = (world.clock() - NOON).total_seconds()
    assert 4 + RUNNER_ANSWER_SECONDS <= waited <= 6 + RUNNER_ANSWER_SECONDS
    assert world.status(key) is RunStatus.CANCELLED


def test_runner_without_an_answer_is_abandoned_after_its_timeout(
    world: Executors, functions: Functions
) -> None:
    key = world.submit(**SHORT, payload={"lasts": 500, "stubborn": True})
    invoke(world)
    assert world.status(key) is RunStatus.TIMED_OUT
    waited = (world.clock() - NOON).total_seconds()
    assert waited == pytest.approx(20 + RUNNER_ANSWER_SECONDS, abs=2)
