"""Renewals, ends and uploads by claim: what each answers, and what it leaves in the store."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from punctual.domain.errors import Unavailable
from punctual.domain.run import Reason, RunStatus
from punctual.engine.execution.claims import (
    ClaimFinish,
    ClaimLost,
    ClaimRenewal,
    ClaimStatus,
)
from punctual.engine.ports.blobs import Blob
from tests.support.claims.scene import ClaimsScene
from tests.support.simulation.small_ports import MemoryBlobs

OK, CANCEL, LOST = ClaimStatus.OK, ClaimStatus.CANCEL, ClaimStatus.LOST
JSON = "application/json"


@pytest.fixture
def scene() -> ClaimsScene:
    return ClaimsScene()


def renew(scene: ClaimsScene, claim: str, **fields: Any) -> ClaimStatus:
    (answer,) = scene.claims.renew([ClaimRenewal(claim, **fields)])
    return answer.status


def finish(scene: ClaimsScene, claim: str, status: str = "SUCCESS", **fields: Any) -> ClaimStatus:
    (answer,) = scene.claims.finish([ClaimFinish(claim, status, **fields)])
    return answer


def test_renewal_extends_the_lease_to_twenty_seconds_from_now(scene: ClaimsScene) -> None:
    claim = scene.start_run()
    scene.wait(6)
    (answer,) = scene.claims.renew([ClaimRenewal(claim, "runner")])
    assert answer.status is OK
    assert answer.lease_until is not None
    assert (answer.lease_until - scene.world.now).total_seconds() == 20


def test_renewal_of_a_container_keeps_its_longer_lease(scene: ClaimsScene) -> None:
    own, identity = scene.start_run(), scene.tokens.read(scene.start_run())
    assert identity is not None
    container = scene.tokens.sign(identity._replace(lease_seconds=240))
    answers = scene.claims.renew(
        [ClaimRenewal("forged"), ClaimRenewal(container), ClaimRenewal(own)]
    )
    leases = [answer.lease_until and answer.lease_until - scene.world.now for answer in answers]
    assert [lease and lease.total_seconds() for lease in leases] == [None, 240, 20]


def test_first_runner_binds_the_claim_and_others_lose_it(scene: ClaimsScene) -> None:
    claim = scene.start_run()
    assert renew(scene, claim, runner_id="one", has_started=True) is OK
    assert renew(scene, claim, runner_id="two", has_started=True, log=b"x") is LOST
    assert renew(scene, claim, log=b"x") is LOST
    assert finish(scene, claim, runner_id="two") is LOST
    assert finish(scene, claim) is LOST
    assert scene.blobs == {}
    assert renew(scene, claim, runner_id="one") is OK
    assert finish(scene, claim, runner_id="one") is OK


def test_two_runners_in_one_batch_leave_one_holder(scene: ClaimsScene) -> None:
    claim = scene.start_run()
    answers = scene.claims.renew([ClaimRenewal(claim, "one"), ClaimRenewal(claim, "two")])
    assert [answer.status for answer in answers] == [OK, LOST]


def test_lease_of_a_runner_that_stopped_ends_and_its_claim_is_lost(scene: ClaimsScene) -> None:
    claim = scene.start_run()
    assert renew(scene, claim, runner_id="one", has_started=True) is OK
    scene.wait(41)
    scene.evaluate()
    run = scene.live_run(claim)
    assert run is not None
    assert (run.status, run.attempt) == (RunStatus.QUEUED, 2)
    assert renew(scene, claim, runner_id="one") is LOST
    assert finish(scene, claim, runner_id="one") is LOST


def test_cancel_request_is_answered_and_the_run_ends_as_cancelled(scene: ClaimsScene) -> None:
    claim = scene.start_run()
    tenant, job_id, run_id = scene.identity(claim)[:3]
    scene.world.jobs.cancel_run(tenant, job_id, run_id)
    assert renew(scene, claim, runner_id="one", has_started=True) is CANCEL
    assert renew(scene, claim, runner_id="one") is CANCEL
    assert finish(scene, claim, "FAILED", runner_id="one", error="stopped") is OK
    row = scene.row(claim)
    assert row is not None
    assert row.run.status is RunStatus.CANCELLED


def test_finish_stores_output_log_and_outcome(scene: ClaimsScene) -> None:
    claim = scene.start_run()
    output = json.dumps({"rows": 3}).encode()
    fields: dict[str, Any] = {
        "output": output,
        "output_type": JSON,
        "exit_code": 0,
        "log": b"done\n",
    }
    assert finish(scene, claim, **fields) is OK
    row = scene.row(claim)
    assert row is not None
    assert (row.run.status, row.detail.exit_code) == (RunStatus.SUCCESS, 0)
    assert (row.detail.output_size, row.detail.output_type) == (len(output), JSON)
    assert scene.blobs[row.detail.output_blob] == output
    assert scene.blobs[row.detail.log_blob] == b"done\n"
    assert row.detail.log_size == 5


def test_finish_sent_again_gets_the_same_answer_and_changes_nothing(scene: ClaimsScene) -> None:
    claim = scene.start_run()
    assert finish(scene, claim, runner_id="one", output=b"1", output_type=JSON) is OK
    before = scene.snapshot()
    assert finish(scene, claim, runner_id="one", output=b"22", output_type=JSON) is OK
    assert finish(scene, claim, runner_id="two", output=b"22", output_type=JSON) is OK
    assert finish(scene, claim, "FAILED", runner_id="one", log=b"late") is OK
    assert scene.snapshot() == before


def test_finish_twice_in_one_batch_ends_the_run_once(scene: ClaimsScene) -> None:
    claim = scene.start_run()
    same = ClaimFinish(claim, "SUCCESS", "one")
    assert scene.claims.finish([same, same]) == [OK, OK]
    assert len(scene.snapshot()["runs"]) == 1


def test_finish_of_a_failed_attempt_is_known_after_the_next_one_started(
    scene: ClaimsScene,
) -> None:
    claim = scene.start_run(max_retries=2)
    assert finish(scene, claim, "FAILED", error="no") is OK
    assert finish(scene, claim, "FAILED", error="no") is OK
    scene.wait(60)
    scene.evaluate()
    (second,) = scene.claim_runs()
    assert second.run.attempt == 2
    assert finish(scene, claim, "FAILED", error="no") is OK
    assert renew(scene, claim) is LOST
    assert finish(scene, scene.sign(second)) is OK


def test_end_of_a_lost_attempt_is_lost_also_after_the_run_ended(scene: ClaimsScene) -> None:
    claim = scene.start_run()
    scene.wait(101)
    scene.evaluate()
    (second,) = scene.claim_runs()
    assert finish(scene, claim) is LOST
    assert finish(scene, scene.sign(second)) is OK
    before = scene.snapshot()
    assert finish(scene, claim, output=b"late", output_type=JSON, log=b"late") is LOST
    assert renew(scene, claim, log=b"late") is LOST
    assert scene.snapshot() == before


def test_failure_without_retry_ends_the_run(scene: ClaimsScene) -> None:
    claim = scene.start_run(max_retries=3)
    assert finish(scene, claim, "FAILED", retryable=False, error="bad input") is OK
    row = scene.row(claim)
    assert row is not None
    assert (row.run.status, row.detail.error) == (RunStatus.FAILED, "bad input")


@pytest.mark.parametrize("delivery", ["AT_LEAST_ONCE", "AT_MOST_ONCE"])
def test_released_run_is_queued_at_once_with_the_same_number(
    scene: ClaimsScene, delivery: str
) -> None:
    claim = scene.start_run(delivery=delivery)
    assert finish(scene, claim, "RELEASED") is OK
    assert finish(scene, claim, "RELEASED") is OK
    assert finish(scene, claim, "SUCCESS") is LOST
    assert renew(scene, claim) is LOST
    (again,) = scene.claim_runs()
    assert again.run.attempt == 1
    assert finish(scene, claim, "RELEASED") is LOST
    assert finish(scene, scene.sign(again)) is OK


def test_timed_out_attempt_is_recorded_as_such(scene: ClaimsScene) -> None:
    claim = scene.start_run(max_retries=0)
    assert finish(scene, claim, "TIMED_OUT", error="Timed out after 60 s") is OK
    row = scene.row(claim)
    assert row is not None
    assert row.run.status is RunStatus.TIMED_OUT


def test_log_is_read_while_the_run_goes_on_and_whole_at_its_end(scene: ClaimsScene) -> None:
    claim = scene.start_run()
    assert scene.log_text(claim) == b""
    assert renew(scene, claim, log=b"one\n") is OK
    assert renew(scene, claim, log=b"two\n", log_offset=4) is OK
    assert renew(scene, claim, log=b"two\n", log_offset=4) is OK
    assert scene.log_text(claim) == b"one\ntwo\n"
    assert scene.log_text(claim, 4) == b"two\n"
    assert scene.log_text(claim, 6) == b"o\n"
    assert scene.log_text(claim, 8) == b""
    assert finish(scene, claim, log=b"end\n", log_offset=8) is OK
    assert scene.log_text(claim) == b"one\ntwo\nend\n"
    assert scene.log_text(claim, 8) == b"end\n"
    assert [name for name in scene.blobs if ".parts/" in name] == []


def test_log_of_a_lost_attempt_stays_readable(scene: ClaimsScene) -> None:
    claim = scene.start_run(delivery="AT_MOST_ONCE")
    assert renew(scene, claim, log=b"begun\n") is OK
    scene.wait(101)
    scene.evaluate()
    row = scene.row(claim)
    assert row is not None
    assert (row.run.status, row.run.reason) == (RunStatus.FAILED, Reason.LOST)
    assert scene.log_text(claim) == b"begun\n"
    assert scene.log_text(claim, 6) == b""


def test_long_log_grows_in_few_parts_and_stays_the_same(
    scene: ClaimsScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("punctual.engine.execution.log_parts.LOG_PART_BYTES", 100)
    monkeypatch.setattr("punctual.engine.execution.log_parts.MAX_LOG_BYTES", 10_000)
    claim = scene.start_run()
    whole = b""
    for number in range(600):
        line = b"line %d\n" % number
        assert renew(scene, claim, log=line, log_offset=len(whole)) is OK
        whole += line
        parts = [name for name in scene.blobs if ".parts/" in name]
        assert len(parts) == -(-len(whole) // 100)
        place = 7 * number % len(whole)
        assert scene.log_text(claim, place) == whole[place:]
    assert finish(scene, claim, log=b"end\n", log_offset=len(whole)) is OK
    assert scene.log_text(claim) == whole + b"end\n"
    assert [name for name in scene.blobs if ".parts/" in name] == []


def test_part_that_arrives_again_late_loses_nothing(scene: ClaimsScene) -> None:
    claim = scene.start_run()
    lines = [b"line %d\n" % number for number in range(200)]
    offsets = [sum(map(len, lines[:number])) for number in range(200)]
    for number in range(200):
        assert renew(scene, claim, log=lines[number], log_offset=offsets[number]) is OK
        late = max(0, number - 20)
        assert renew(scene, claim, log=lines[late], log_offset=offsets[late]) is OK
    assert scene.log_text(claim) == b"".join(lines)


def test_log_with_parts_that_vanish_during_the_end_is_stored_by_the_next_call(
    scene: ClaimsScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = scene.start_run()
    assert renew(scene, claim, log=b"one\n") is OK
    with monkeypatch.context() as patch:
        patch.setattr(MemoryBlobs, "get_many", lambda _self, names: [None] * len(names))
        with pytest.raises(Unavailable, match="by another call"):
            finish(scene, claim, log=b"end\n", log_offset=4)
    assert finish(scene, claim, log=b"end\n", log_offset=4) is OK
    assert scene.log_text(claim) == b"one\nend\n"


def test_log_is_cut_at_its_limit(scene: ClaimsScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("punctual.engine.execution.log_parts.MAX_LOG_BYTES", 10)
    claim = scene.start_run()
    assert renew(scene, claim, log=b"12345678") is OK
    assert renew(scene, claim, log=b"90abc", log_offset=8) is OK
    assert renew(scene, claim, log=b"def", log_offset=13) is OK
    assert scene.log_text(claim) == b"1234567890"
    assert finish(scene, claim, log=b"end", log_offset=16) is OK
    assert scene.log_text(claim) == b"1234567890"
    row = scene.row(claim)
    assert row is not None
    assert row.detail.log_truncated


def test_job_that_discards_output_keeps_neither_output_nor_log(scene: ClaimsScene) -> None:
    claim = scene.start_run(output="discard")
    assert renew(scene, claim, log=b"one\n") is OK
    upload = scene.claims.upload(claim, 3, "text/csv")
    assert scene.world.memory.blobs.upload(upload.url, b"a,b")
    fields: dict[str, Any] = {
        "log": b"two\n",
        "log_offset": 4,
        "output_upload": upload.output_upload,
    }
    assert finish(scene, claim, **fields) is OK
    row = scene.row(claim)
    assert row is not None
    assert row.detail.discarded
    assert scene.blobs == {}


def test_parts_of_lost_attempts_go_with_the_end_of_the_run(scene: ClaimsScene) -> None:
    claim = scene.start_run()
    assert renew(scene, claim, log=b"first\n") is OK
    scene.wait(101)
    scene.evaluate()
    (second,) = scene.claim_runs()
    assert len(scene.blobs) == 1
    assert finish(scene, scene.sign(second), log=b"second\n") is OK
    assert list(scene.blobs.values()) == [b"second\n"]
    assert scene.log_text(claim) == b"second\n"


def test_log_of_a_released_claim_is_not_that_of_the_next_one(scene: ClaimsScene) -> None:
    claim = scene.start_run()
    assert renew(scene, claim, log=b"of the first claim\n") is OK
    assert finish(scene, claim, "RELEASED") is OK
    (again,) = scene.claim_runs()
    own = scene.sign(again)
    assert scene.log_text(own) == b""
    assert renew(scene, own, log=b"own ") is OK
    assert scene.log_text(own) == b"own "
    assert finish(scene, own, log=b"end\n", log_offset=4) is OK
    assert list(scene.blobs.values()) == [b"own end\n"]


@pytest.mark.parametrize("moment", ["before the release", "after it", "after the next link"])
@pytest.mark.parametrize("finishes_with", ["upload", "text", "nothing"])
def test_upload_of_a_released_claim_is_not_the_output_of_the_next_one(
    scene: ClaimsScene, moment: str, finishes_with: str
) -> None:
    blobs = scene.world.memory.blobs
    claim = scene.start_run(max_retries=0)
    early = scene.claims.upload(claim, 3, "text/csv")
    if moment == "before the release":
        assert blobs.upload(early.url, b"bad")
    assert finish(scene, claim, "RELEASED") is OK
    (again,) = scene.claim_runs()
    assert again.run.attempt == 1
    own = scene.sign(again)
    fields: dict[str, Any] = {}
    if moment == "after it":
        assert blobs.upload(early.url, b"bad")
    if finishes_with == "upload":
        link = scene.claims.upload(own, 3, "text/csv")
        if moment == "after the next link":
            assert blobs.upload(early.url, b"bad")
            assert not blobs.upload(link.url, b"own"), "the runner then asks for another link"
            link = scene.claims.upload(own, 3, "text/csv")
        assert blobs.upload(link.url, b"own")
        assert not blobs.upload(early.url, b"bad")
        assert not blobs.upload(link.url, b"two")
        fields = {"output_upload": link.output_upload}
    elif finishes_with == "text":
        fields = {"output": b"own", "output_type": "text/csv"}
    assert finish(scene, own, **fields) is OK
    blobs.upload(early.url, b"bad")
    row = scene.row(claim)
    assert row is not None
    assert row.run.status is RunStatus.SUCCESS
    output = scene.blobs[row.detail.output_blob] if row.detail.output_blob else b""
    assert output == (b"" if finishes_with == "nothing" else b"own")


def test_claim_that_announces_the_upload_of_an_earlier_one_has_failed(scene: ClaimsScene) -> None:
    claim = scene.start_run(max_retries=0)
    early = scene.claims.upload(claim, 3, "text/csv")
    assert finish(scene, claim, "RELEASED") is OK
    (again,) = scene.claim_runs()
    own = scene.sign(again)
    link = scene.claims.upload(own, 3, "text/csv")
    assert scene.world.memory.blobs.upload(early.url, b"bad")
    assert finish(scene, own, output_upload=link.output_upload) is OK
    row = scene.row(claim)
    assert row is not None
    assert (row.run.status, row.detail.output_blob) == (RunStatus.FAILED, "")
    assert row.detail.error == "The output that the executor announced was not uploaded."


def test_link_of_an_old_claim_replaces_no_later_output(scene: ClaimsScene) -> None:
    """The call for the link has read the job state before the claim was released."""
    blobs = scene.world.memory.blobs
    claim = scene.start_run()
    old = scene.identity(claim)
    assert finish(scene, claim, "RELEASED") is OK
    (again,) = scene.claim_runs()
    own = scene.sign(again)
    assert finish(scene, own, output=b"own", output_type="text/csv") is OK
    row = scene.row(claim)
    assert row is not None
    late = blobs.upload_link(row.detail.output_blob, 3, "text/csv", token=old.token)
    assert not blobs.upload(late.url, b"bad")
    with pytest.raises(Unavailable, match="later claim"):
        blobs.put(row.detail.output_blob, b"bad", "text/csv", old.token)
    assert scene.blobs[row.detail.output_blob] == b"own"


def test_uploaded_output_becomes_that_of_the_run(scene: ClaimsScene) -> None:
    claim = scene.start_run()
    upload = scene.claims.upload(claim, 3, "text/csv")
    again = scene.claims.upload(claim, 3, "text/csv")
    assert upload == again
    assert scene.world.memory.blobs.upload(upload.url, b"a,b")
    assert not scene.world.memory.blobs.upload(upload.url, b"c,d")
    assert finish(scene, claim, output_upload=upload.output_upload) is OK
    row = scene.row(claim)
    assert row is not None
    assert (row.detail.output_size, row.detail.output_type) == (3, "text/csv")
    assert scene.blobs[row.detail.output_blob] == b"a,b"


def test_upload_that_was_not_made_fails_the_attempt(scene: ClaimsScene) -> None:
    claim = scene.start_run(max_retries=0)
    upload = scene.claims.upload(claim, 3, "text/csv")
    assert finish(scene, claim, output_upload=upload.output_upload) is OK
    row = scene.row(claim)
    assert row is not None
    assert row.run.status is RunStatus.FAILED
    assert row.detail.error == "The output that the executor announced was not uploaded."


def test_upload_of_another_claim_is_not_the_output_of_this_one(scene: ClaimsScene) -> None:
    claim, other = scene.start_run(max_retries=0), scene.start_run("other")
    upload = scene.claims.upload(other, 3, "text/csv")
    assert scene.world.memory.blobs.upload(upload.url, b"a,b")
    assert finish(scene, claim, output_upload=upload.output_upload) is OK
    row = scene.row(claim)
    assert row is not None
    assert (row.run.status, row.detail.output_blob) == (RunStatus.FAILED, "")


def test_claim_that_does_not_hold_its_run_gets_no_upload(scene: ClaimsScene) -> None:
    ended, forged = scene.start_run(), "forged"
    finish(scene, ended)
    for claim in (ended, forged):
        with pytest.raises(ClaimLost, match="does not hold its run"):
            scene.claims.upload(claim, 3, "text/csv")


def test_each_item_of_a_batch_is_answered(scene: ClaimsScene) -> None:
    claims = [scene.start_run(f"tenant-{number}") for number in range(4)]
    renewals = [ClaimRenewal(claims[0]), ClaimRenewal("x"), *map(ClaimRenewal, claims[1:])]
    answers = scene.claims.renew(renewals)
    assert [answer.status for answer in answers] == [OK, LOST, OK, OK, OK]
    ends = [ClaimFinish(claim, "SUCCESS") for claim in ("x", *claims, "y")]
    assert scene.claims.finish(ends) == [LOST, OK, OK, OK, OK, LOST]


def test_store_that_fails_leaves_the_run_held(
    scene: ClaimsScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_self: MemoryBlobs, blobs: Sequence[Blob]) -> Sequence[Unavailable]:
        return [Unavailable("full")] * len(blobs)

    claim = scene.start_run()
    with monkeypatch.context() as patch:
        patch.setattr(MemoryBlobs, "put_many", fail)
        for _ in range(2):
            with pytest.raises(Unavailable, match="full"):
                finish(scene, claim, log=b"end")
    assert renew(scene, claim) is OK
    assert finish(scene, claim, log=b"end") is OK
