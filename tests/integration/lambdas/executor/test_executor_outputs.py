"""Outputs and logs of runs: objects, small outputs in rows, a bucket that fails."""

from datetime import timedelta

import pytest

from punctual.domain.errors import NotFound
from punctual.domain.run import RunStatus
from punctual.lambdas.telemetry import PowertoolsTelemetry
from tests.support.aws.moto_faults import refused
from tests.support.builders import NOON
from tests.support.deployed.drivers.executors import Executors
from tests.support.item_size import item_size

JSON = "application/json"


def put_objects(world: Executors) -> list[str]:
    bucket = world.aws.settings.bucket
    listed = world.aws.clients.s3.list_objects_v2(Bucket=bucket, Prefix="outputs/")
    return sorted(item["Key"] for item in listed.get("Contents", []))


def test_each_output_is_one_object_under_key_of_its_attempt(world: Executors) -> None:
    outs = ["a", "b" * 900, "c" * 200_000]
    keys = [world.submit(payload={"out": out, "type": JSON}) for out in outs]
    records = world.records()
    before = dict(world.aws.written)
    spent = world.aws.spend(lambda: world.invoke(records))
    assert spent["PutObject"] == 3
    assert world.aws.written["runs"] - before.get("runs", 0) == 4, (
        "three history rows, and one row of batch outcomes"
    )
    runs = [world.run(key).run.run_id for key in keys]
    wanted = [f"outputs/acme/{key.job_id}/{run}/1" for key, run in zip(keys, runs, strict=True)]
    assert put_objects(world) == sorted(wanted)
    assert [world.output_of(key) for key in keys] == [out.encode() for out in outs]
    stored = world.aws.clients.s3.head_object(Bucket=world.aws.settings.bucket, Key=wanted[0])
    assert stored["ContentType"] == JSON


def test_each_attempt_has_own_output_and_run_shows_last_one(world: Executors) -> None:
    key = world.submit(
        payload={"out": "said before it failed", "error": "no", "type": JSON},
        max_retries=1,
        retry={"backoff_seconds": 1, "jitter": False},
    )
    world.invoke(world.records())
    world.clock.advance(timedelta(seconds=10))
    world.evaluate_due_timers()
    world.invoke(world.records())
    run = world.run(key)
    assert run.run.status is RunStatus.FAILED
    named = f"outputs/acme/{key.job_id}/{run.run.run_id}"
    assert put_objects(world) == [f"{named}/1", f"{named}/2"]
    assert run.detail.output_blob == f"{named}/2"


def test_output_removed_from_bucket_is_not_found(world: Executors) -> None:
    key = world.submit(payload={"out": "said", "type": JSON})
    world.invoke(world.records())
    world.runtime.ports.blobs.delete([world.run(key).detail.output_blob])
    with pytest.raises(NotFound, match="has expired"):
        world.output_of(key)


def test_small_or_missing_output_makes_no_object(world: Executors) -> None:
    noted = world.submit(payload={"out": "e" * 36})
    silent = world.submit(payload={"out": "", "type": JSON})
    answered = world.submit(payload={"http_status": 204})
    records = world.records()
    assert "PutObject" not in world.aws.spend(lambda: world.invoke(records))
    assert world.output_of(noted) == b"e" * 36
    assert world.run(answered).detail.http_status == 204
    for key in (silent, answered):
        with pytest.raises(NotFound, match="The run has no output, or none yet"):
            world.output_of(key)


def test_job_with_discarded_output_stores_neither_output_nor_log(
    world: Executors,
) -> None:
    payloads = [{"out": "said", "log": "printed", "type": JSON}, {"out": "an-id"}]
    keys = [world.submit(payload=payload, output="discard") for payload in payloads]
    records = world.records()
    before = dict(world.aws.written)
    assert "PutObject" not in world.aws.spend(lambda: world.invoke(records))
    assert world.aws.written["runs"] - before.get("runs", 0) == 2, "only their history rows"
    for key in keys:
        run = world.run(key)
        assert (run.run.status, run.run.inline_output) == (RunStatus.SUCCESS, "")
        assert run.detail.discarded
        with pytest.raises(NotFound, match="no output: its job discards"):
            world.output_of(key)
        with pytest.raises(NotFound, match="no logs: its job discards"):
            world.search.logs(*key, run.run.run_id, 0)


def test_http_status_without_output_is_in_row_of_the_batch(world: Executors) -> None:
    keys = [world.submit(payload={"http_status": 204}) for _ in range(10)]
    records = world.records()
    before = dict(world.aws.written)
    world.invoke(records)
    assert world.aws.written["runs"] - before.get("runs", 0) == 11
    assert [world.run(key).detail.http_status for key in keys] == [204] * 10


def test_logs_are_read_at_any_offset(world: Executors) -> None:
    key = world.submit(payload={"out": "o" * 100, "log": "line one\nline two\n"})
    world.submit(payload={"out": "p" * 100, "log": "another's"})
    world.invoke(world.records(), role="test")  # no task of the deployed stages writes a log
    run_id = world.run(key).run.run_id
    assert world.run(key).detail.log_blob == f"logs/acme/{key.job_id}/{run_id}/1"
    assert world.search.logs(*key, run_id, 0).data == b"line one\nline two\n"
    assert world.search.logs(*key, run_id, 9).data == b"line two\n"
    assert world.search.logs(*key, run_id, 18).data == b""
    assert world.output_of(key) == b"o" * 100


def test_run_fails_with_reason_if_output_cannot_be_stored(world: Executors) -> None:
    """The executor tries once a second, for ten seconds."""
    key = world.submit(payload={"out": "said", "type": JSON}, max_retries=0)
    records = world.records()
    with refused(world.aws.clients.s3, "PutObject", 99, "SlowDown", 503):
        assert world.invoke(records) == []
    view = world.run(key)
    assert view.run.status is RunStatus.FAILED
    assert view.detail.error.startswith("The output could not be stored")
    assert world.elapsed_seconds == pytest.approx(10, abs=1)


def test_output_stored_on_retry_does_not_repeat_task(
    world: Executors,
) -> None:
    key = world.submit(payload={"out": "said", "type": JSON}, max_retries=0)
    records = world.records()
    with refused(world.aws.clients.s3, "PutObject", 5, "SlowDown", 503):
        assert world.invoke(records) == []
    assert (world.output_of(key), len(world.task.ran)) == (b"said", 1)


def test_unstored_output_fails_only_its_own_run(
    world: Executors,
) -> None:
    outs = [{}, {"out": "said", "type": JSON}, {"out": "an-id"}, {"out": "x" * 200_000}]
    keys = [world.submit(payload=out, max_retries=0) for out in outs]
    records = world.records()
    with refused(world.aws.clients.s3, "PutObject", 999, "SlowDown", 503):
        assert world.invoke(records) == []
    ended = [world.run(key).run for key in keys]
    assert [run.status for run in ended] == [
        *(RunStatus.SUCCESS, RunStatus.FAILED, RunStatus.SUCCESS, RunStatus.FAILED)
    ]
    waited = [round(((run.ended_at or NOON) - NOON).total_seconds()) for run in ended]
    assert waited == [0, 10, 0, 10], "runs without S3 output do not wait"


def test_log_line_and_history_row_of_run_are_small(
    world: Executors, capsys: pytest.CaptureFixture[str]
) -> None:
    """Log lines cost by the byte, and rows by the kilobyte."""
    for number in range(9):
        world.submit(name="n" * 256, payload={"out": f"{number}", "times": 200, "type": JSON})
    noted = world.submit(payload={"out": "e" * 36})
    world.clock.set(NOON + timedelta(microseconds=123_456))
    # A separate name, because a logger keeps its first stream.
    world.runtime.log = PowertoolsTelemetry("executor-lines", "prod")
    world.invoke(world.records())
    lines = [line for line in capsys.readouterr().out.splitlines() if "run_ended" in line]
    assert len(lines) == 10
    assert max(len(line) for line in lines) <= 300
    assert world.output_of(noted) == b"e" * 36
    rows = world.aws.rows("runs")
    assert len(rows) == 11, "ten history rows and one row of batch outcomes"
    assert max(item_size(row) for row in rows) <= 1_024
