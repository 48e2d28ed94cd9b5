"""The runner as a process, from its zip alone, against a server in place of the API."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.claims_api import ClaimsApi, a_claims_api
from tests.support.runner.runner_process import (
    SECRET,
    an_event,
    run_in_process,
    started_runner,
)
from tests.support.scripts.script_runs import eventually, exists


@pytest.fixture
def api() -> Iterator[ClaimsApi]:
    with a_claims_api() as api:
        yield api


WAIT: dict[str, Any] = {"mode": "wait", "timeout_seconds": 20}


def test_waited_run_answers_with_output_and_log(api: ClaimsApi, tmp_path: Path) -> None:
    event = an_event(api, 'read line; echo "$line $1"; echo two >&2; exit 3', **WAIT)
    event["task"]["args"] = ["three"]
    ended = run_in_process(event, tmp_path)
    output, log = ended.output, ended.log
    for field in ("output", "log"):
        ended.answer.pop(field)
    assert ended.answer == {
        "format": 1,
        "status": "FAILED",
        "error": "Exit code 3\ntwo",
        "retryable": True,
        "exit_code": 3,
        "output_type": "text/plain; charset=utf-8",
        "output_truncated": False,
        "output_upload": "",
        "log_offset": 0,
        "logs_truncated": False,
        "begun": True,
        "must_retire": False,
    }
    assert output == b'{"n":1} three\n'
    assert sorted(log.splitlines()) == [b"two", b'{"n":1} three']
    assert (ended.exit_code, api.renewed, api.finished) == (3, [], [])


def test_detached_run_is_bound_then_finished_by_its_claim(api: ClaimsApi, tmp_path: Path) -> None:
    ended = run_in_process(an_event(api, f"echo {SECRET}; echo log >&2"), tmp_path)
    [renewal], [finish] = api.renewed, api.finished
    runner_id = renewal["runner_id"]
    assert renewal == {
        "claim": "a-signed-claim",
        "runner_id": runner_id,
        "started_at": renewal["started_at"],
    }
    assert len(runner_id) == 32
    log = finish.pop("log")
    assert sorted(log.splitlines()) == ["[secret]", "log"]
    assert finish == {
        "claim": "a-signed-claim",
        "runner_id": runner_id,
        "status": "SUCCESS",
        "error_message": "",
        "retryable": True,
        "exit_code": 0,
        "output_text": "[secret]\n",
        "output_truncated": False,
        "logs_truncated": False,
        "log_offset": 0,
    }
    assert (ended.exit_code, ended.answer) == (0, {})


def test_run_with_lost_claim_ends_before_user_code(api: ClaimsApi, tmp_path: Path) -> None:
    api.renewals = ["LOST"]
    touched = tmp_path / "tmp/touched"
    ended = run_in_process(an_event(api, f"touch {touched}"), tmp_path, PUNCTUAL_SANDBOX="none")
    assert (ended.exit_code, touched.exists(), api.finished) == (1, False, [])


def test_event_that_arrives_twice_runs_once(api: ClaimsApi, tmp_path: Path) -> None:
    api.binds_claims = True
    event = an_event(api, f"echo begun >> {tmp_path}/begun")
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        run_in_process(event, folder, PUNCTUAL_SANDBOX="none")
    assert (tmp_path / "begun").read_text() == "begun\n"
    assert (len(api.renewed), len(api.finished)) == (2, 1)


def test_run_that_is_cancelled_before_it_begins_finishes_as_cancelled(
    api: ClaimsApi, tmp_path: Path
) -> None:
    api.renewals = ["CANCEL"]
    run_in_process(an_event(api, "echo never"), tmp_path)
    [finish] = api.finished
    assert (finish["status"], finish["error_message"]) == ("CANCELLED", "Cancelled")
    assert "output_text" not in finish


def test_first_renewal_is_repeated_within_the_lease(api: ClaimsApi, tmp_path: Path) -> None:
    api.renewals = [(429, {"Retry-After": "0.1"}), 503, "drop"]
    api.finishes = [429, "drop", 500]
    run_in_process(an_event(api, "echo done"), tmp_path)
    assert [item["output_text"] for item in api.finished] == ["done\n", "done\n"]
    assert len(api.renewed) == 2  # the dropped one, and the one after it


def test_first_renewal_ends_with_the_lease(api: ClaimsApi, tmp_path: Path) -> None:
    api.renewals = [429] * 100
    began = time.monotonic()
    ended = run_in_process(an_event(api, "echo never", lease_seconds_left=1.0), tmp_path)
    assert (ended.exit_code, api.finished) == (1, [])
    assert time.monotonic() - began < 10


STUBBORN = "trap '' TERM; (setsid sleep 1000) & echo $!; sleep 1000 & echo $!; wait"
GROUP = "sleep 1000 & echo $!; (sleep 1000; echo no) & echo $!; wait"


@pytest.mark.parametrize(("code", "seconds"), [(GROUP, 5.0), (STUBBORN, 5.0 + 2.0)])
def test_cancel_reaches_the_whole_group_within_five_seconds(
    api: ClaimsApi, tmp_path: Path, code: str, seconds: float
) -> None:
    """A process that ignores the request is killed after two more seconds."""
    with started_runner(an_event(api, code), tmp_path) as runner:
        api.wait_for(lambda: len(api.renewed) == 1)
        api.claim_status = "CANCEL"
        cancelled_at = time.monotonic()
        api.wait_for(lambda: bool(api.finished))
        assert time.monotonic() - cancelled_at < seconds
        api.claim_status = "OK"
        runner.end()
    [finish] = api.finished
    assert (finish["status"], finish["error_message"]) == ("CANCELLED", "Cancelled")
    pids = [int(line) for line in finish["output_text"].split()]
    assert len(pids) == 2
    assert eventually(lambda: not any(exists(pid) for pid in pids))


def test_live_log_comes_with_each_renewal(api: ClaimsApi, tmp_path: Path) -> None:
    code = "echo first; mkfifo go; read < go; echo last"
    with started_runner(an_event(api, code), tmp_path, PUNCTUAL_SANDBOX="none") as runner:
        api.wait_for(lambda: any(item.get("log") for item in api.renewed))
        assert api.renewed[1]["log"] == "first\n"
        assert "started_at" not in api.renewed[1]
        [fifo] = runner.temporary.rglob("go")
        fifo.write_text("\n")
        runner.end()
    [finish] = api.finished
    assert (finish["log"], finish["log_offset"]) == ("last\n", len("first\n"))
    assert api.log() == "first\nlast\n"


def test_run_stops_when_the_claim_is_lost(api: ClaimsApi, tmp_path: Path) -> None:
    with started_runner(an_event(api, STUBBORN), tmp_path) as runner:
        api.wait_for(lambda: len(api.renewed) == 1)
        api.claim_status = "LOST"
        ended = runner.end()
    assert (ended.exit_code != 0, api.finished) == (True, [])


def test_run_stops_when_no_renewal_succeeds(api: ClaimsApi, tmp_path: Path) -> None:
    began = time.monotonic()
    with started_runner(an_event(api, STUBBORN), tmp_path) as runner:
        api.wait_for(lambda: len(api.renewed) == 1)
        api.renewals = ["hang"] * 100
        ended = runner.end()
    assert (ended.exit_code != 0, api.finished) == (True, [])
    assert 10 <= time.monotonic() - began < 25


def test_timeout_is_reported(api: ClaimsApi, tmp_path: Path) -> None:
    run_in_process(an_event(api, "sleep 100", timeout_seconds=1), tmp_path)
    [finish] = api.finished
    assert (finish["status"], finish["error_message"]) == ("TIMED_OUT", "Timed out after 1 s")


@pytest.mark.parametrize("size", [256 * 1024, 256 * 1024 + 1])
def test_large_output_is_uploaded(api: ClaimsApi, tmp_path: Path, size: int) -> None:
    run_in_process(an_event(api, f"head -c {size} /dev/zero | tr '\\0' x"), tmp_path)
    [finish] = api.finished
    if size == 256 * 1024:
        assert (finish["output_text"], api.uploads) == ("x" * size, [])
        return
    data, headers = api.objects["/objects/output"]
    assert data == b"x" * size
    assert (headers["Content-Length"], headers["If-None-Match"]) == (str(size), "*")
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert finish["output_upload"] == "upload-1"
    assert "output_text" not in finish
    assert api.uploads == [
        {"claim": "a-signed-claim", "size": size, "content_type": "text/plain; charset=utf-8"}
    ]


def test_output_that_is_not_text_is_uploaded(api: ClaimsApi, tmp_path: Path) -> None:
    run_in_process(an_event(api, "printf '\\377\\000a'"), tmp_path)
    assert api.objects["/objects/output"][0] == b"\xff\x00a"
    assert api.finished[0]["log"] == "\ufffd\0a"


def test_upload_with_a_lost_answer_is_stored_once(api: ClaimsApi, tmp_path: Path) -> None:
    api.puts = [503, "drop"]
    run_in_process(an_event(api, "head -c 300000 /dev/zero | tr '\\0' x"), tmp_path)
    [finish] = api.finished
    assert (finish["status"], finish["output_upload"]) == ("SUCCESS", "upload-4")
    assert (len(api.objects["/objects/output"][0]), api.refused_puts) == (300_000, 2)


def test_output_of_an_earlier_claim_is_replaced_by_a_second_address(
    api: ClaimsApi, tmp_path: Path
) -> None:
    """The earlier claim has stored it after this claim asked for its first address."""
    api.objects["/objects/output"] = (b"of the claim before", {})
    api.replaces_at_upload = 2
    run_in_process(an_event(api, "head -c 300000 /dev/zero | tr '\\0' x"), tmp_path)
    [finish] = api.finished
    assert (finish["status"], finish["output_upload"]) == ("SUCCESS", "upload-2")
    assert (api.objects["/objects/output"][0], api.refused_puts) == (b"x" * 300_000, 1)


def test_refused_upload_fails_the_attempt(api: ClaimsApi, tmp_path: Path) -> None:
    api.upload_status = 422
    run_in_process(an_event(api, "head -c 300000 /dev/zero; exit 4"), tmp_path)
    [finish] = api.finished
    assert (finish["status"], finish["exit_code"], finish["retryable"]) == ("FAILED", 4, True)
    assert finish["error_message"] == (
        "The output could not be stored: The API refused the call with HTTP 422"
    )


def test_upload_of_a_lost_claim_ends_the_run_without_a_finish(
    api: ClaimsApi, tmp_path: Path
) -> None:
    api.upload_status = 409
    run_in_process(an_event(api, "head -c 300000 /dev/zero"), tmp_path)
    assert api.finished == []


def test_large_output_of_a_waited_run_is_uploaded(api: ClaimsApi, tmp_path: Path) -> None:
    size = 3 * 1024 * 1024
    ended = run_in_process(
        an_event(api, f"head -c {size} /dev/zero | tr '\\0' x", **WAIT), tmp_path
    )
    assert len(json.dumps(ended.answer)) < 5 * 1024 * 1024
    assert (ended.output, ended.answer["output_upload"]) == (b"", "upload-1")
    assert len(api.objects["/objects/output"][0]) == size
    log = api.log()
    assert log + ended.log.decode() == "x" * size
    assert ended.answer["log_offset"] == len(log)


def test_endless_output_is_cut_and_flagged(api: ClaimsApi, tmp_path: Path) -> None:
    event = an_event(api, "head -c 12000000 /dev/zero | tr '\\0' x")
    run_in_process(event, tmp_path)
    [finish] = api.finished
    assert (finish["output_truncated"], finish["logs_truncated"]) == (True, True)
    limit = 10 * 1024 * 1024
    assert len(api.objects["/objects/output"][0]) == limit
    assert len(api.log()) == limit


def test_discarded_output_is_not_sent(api: ClaimsApi, tmp_path: Path) -> None:
    code = "head -c 12000000 /dev/zero | tr '\\0' x"
    run_in_process(an_event(api, code, output="discard"), tmp_path)
    [finish] = api.finished
    assert finish.keys().isdisjoint({"log", "output_text", "output_upload"})
    assert (finish["output_truncated"], finish["logs_truncated"]) == (False, False)
    assert (api.uploads, finish["status"]) == ([], "SUCCESS")
    ended = run_in_process(an_event(api, "echo a", output="discard", **WAIT), tmp_path)
    assert (ended.output, ended.log) == (b"", b"")


def test_shutdown_without_a_cancel_leaves_the_run_to_its_lease(
    api: ClaimsApi, tmp_path: Path
) -> None:
    code = "echo up; sleep 1000"
    with started_runner(an_event(api, code), tmp_path, PUNCTUAL_SANDBOX="none") as runner:
        api.wait_for(lambda: any(item.get("log") for item in api.renewed))
        runner.terminate()
        ended = runner.end()
    assert (ended.exit_code != 0, api.finished) == (True, [])


def test_shutdown_with_a_cancel_finishes_as_cancelled(api: ClaimsApi, tmp_path: Path) -> None:
    code = "echo up; sleep 1000"
    with started_runner(an_event(api, code), tmp_path) as runner:
        api.wait_for(lambda: any(item.get("log") for item in api.renewed))
        api.claim_status = "CANCEL"
        runner.terminate()
        api.wait_for(lambda: bool(api.finished))
        api.claim_status = "OK"
        runner.end()
    [finish] = api.finished
    assert finish["status"] == "CANCELLED"


def test_unreadable_event_is_named(api: ClaimsApi, tmp_path: Path) -> None:
    event = an_event(api, "echo") | {"format": 2}
    with started_runner(event, tmp_path) as runner:
        ended = runner.end()
    assert (ended.exit_code, ended.errors) == (
        64,
        "The runner cannot read its event: The event must have format 1\n",
    )


def test_event_comes_from_an_address(api: ClaimsApi, tmp_path: Path) -> None:
    api.artifacts["event"] = json.dumps(an_event(api, "echo here")).encode()
    run_in_process({}, tmp_path, PUNCTUAL_RUN_URL=f"{api.url}/event")
    assert api.finished[0]["output_text"] == "here\n"
