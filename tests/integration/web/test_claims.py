"""The calls by claim over HTTP, on a node that asks all other callers for tokens."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from punctual.engine.ports.rows import JobKey
from punctual.web.models.claims import MAX_CLAIM_OUTPUT_BYTES, MAX_LOG_PIECE_BYTES
from punctual.web.views.run import run_json
from tests.support.builders import ManualClock
from tests.support.claims.node import ClaimsNode, statuses
from tests.support.node.node_world import NOON

STARTED = "2026-11-18T12:00:01Z"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ClaimsNode]:
    node = ClaimsNode(tmp_path, ManualClock(NOON))
    yield node
    node.close()


def test_claim_is_renewed_and_finished_without_a_token(node: ClaimsNode) -> None:
    claim = node.start_run()
    renewed = node.renew({"claim": claim, "runner_id": "r1", "started_at": STARTED, "log": "é\n"})
    assert renewed.json == {
        "results": [{"status": "OK", "lease_until": "2026-11-18T12:00:20.000Z"}]
    }
    assert node.log_text(claim) == "é\n".encode()
    end = {"claim": claim, "runner_id": "r1", "status": "SUCCESS", "output": {"rows": [1]}}
    assert statuses(node.finish({**end, "exit_code": 0, "log": "end\n", "log_offset": 3})) == ["OK"]
    view = node.run(claim)
    assert (view.run.status, view.detail.exit_code) == ("SUCCESS", 0)
    assert json.loads(node.output(claim)) == {"rows": [1]}
    assert node.log_text(claim) == "é\nend\n".encode()
    assert statuses(node.finish({**end, "output": "other"})) == ["OK"]
    assert json.loads(node.output(claim)) == {"rows": [1]}
    assert node.get("/v1/jobs").status == 401


def test_text_output_keeps_its_type(node: ClaimsNode) -> None:
    claim = node.start_run()
    end = {"claim": claim, "status": "SUCCESS", "output_text": "a\0b", "output_truncated": True}
    assert statuses(node.finish(end)) == ["OK"]
    detail = node.run(claim).detail
    assert (detail.output_type, detail.output_truncated) == ("text/plain; charset=utf-8", True)
    assert node.output(claim) == b"a\0b"


def test_released_run_goes_to_a_worker_of_the_node_as_the_same_attempt(node: ClaimsNode) -> None:
    task = {"type": "http", "url": "http://127.0.0.1:9/"}
    claim = node.start_run(delivery="AT_MOST_ONCE", task=task)
    assert statuses(node.finish({"claim": claim, "status": "RELEASED"})) == ["OK"]
    node.world.node.step()
    node.world.gate.open.set()
    node.world.settle()
    assert node.world.gate.attempts == [1]
    assert node.run(claim).run.status == "SUCCESS"
    assert statuses(node.renew({"claim": claim})) == ["LOST"]


def test_log_of_a_lost_attempt_goes_with_the_history_of_its_run(node: ClaimsNode) -> None:
    claim = node.start_run(delivery="AT_MOST_ONCE")
    assert statuses(node.renew({"claim": claim, "log": "begun\n"})) == ["OK"]
    node.world.until(45)
    assert node.run(claim).run.status == "FAILED"
    assert node.log_text(claim) == b"begun\n"
    logs = node.world.folder / "blobs" / "logs"
    assert [path.read_bytes() for path in logs.rglob("*") if path.is_file()] == [b"begun\n"]
    month_later = NOON + timedelta(days=31)
    while node.world.store.purge(month_later, 100):
        pass
    assert [path for path in logs.rglob("*") if path.is_file()] == []


def test_upload_of_a_released_claim_is_not_the_output_of_the_next_one(node: ClaimsNode) -> None:
    def upload(claim: str) -> Any:
        body = {"claim": claim, "size": 3, "content_type": "text/csv"}
        return node.post("/v1/claims/upload", body).json

    claim = node.start_run(max_retries=0)
    early = upload(claim)
    assert node.put_upload(early["upload_url"], b"bad")
    assert statuses(node.finish({"claim": claim, "status": "RELEASED"})) == ["OK"]
    again = node.claim_again(claim)
    link = upload(again)
    assert node.put_upload(link["upload_url"], b"own")
    assert not node.put_upload(link["upload_url"], b"two")
    assert not node.put_upload(early["upload_url"], b"bad")
    end = {"claim": again, "status": "SUCCESS", "output_upload": link["output_upload"]}
    assert statuses(node.finish(end)) == ["OK"]
    assert node.run(claim).run.attempt == 1
    assert node.output(claim) == b"own"
    outputs = node.world.folder / "blobs" / "outputs"
    assert {path.read_bytes() for path in outputs.rglob("*") if path.is_file()} == {b"bad", b"own"}
    month_later = NOON + timedelta(days=31)
    while node.world.store.purge(month_later, 100):
        pass
    assert [path for path in outputs.rglob("*") if path.is_file()] == []


def test_run_of_a_silent_executor_goes_to_another_one(node: ClaimsNode) -> None:
    claim = node.start_run(task={"type": "http", "url": "http://127.0.0.1:9/"})
    node.world.gate.open.set()
    node.world.until(45)
    node.world.settle()
    assert node.world.gate.attempts == [2]
    end = {"claim": claim, "status": "FAILED", "error_message": "late"}
    assert statuses(node.finish(end)) == ["LOST"]
    assert node.run(claim).run.status == "SUCCESS"


def forged_claims(node: ClaimsNode) -> dict[str, str]:
    """Return claims that hold nothing, by what is wrong with them."""
    claim, other = node.start_run("acme"), node.start_run("globex")
    ended = node.start_run()
    assert statuses(node.finish({"claim": ended, "status": "FAILED", "retryable": False})) == ["OK"]
    assert statuses(node.renew({"claim": claim}, {"claim": other})) == ["OK", "OK"]
    return {
        "empty": "",
        "text": "not a claim",
        "control characters": "a\0b",
        "long": "x" * 100_000,
        "truncated": claim[:-1],
        "altered": ("A" if claim[0] != "A" else "B") + claim[1:],
        "exchanged": claim.split(".")[0] + "." + other.split(".")[1],
        "another installation": claim.split(".")[0] + "." + "A" * 43,
        "ended": ended,
    }


def test_every_wrong_claim_is_lost_with_the_same_answer(node: ClaimsNode) -> None:
    wrong = forged_claims(node)
    renewed = [node.renew({"claim": claim, "log": "x"}) for claim in wrong.values()]
    assert {(answer.status, answer.body) for answer in renewed} == {
        (200, b'{"results":[{"status":"LOST"}]}')
    }
    del wrong["ended"]  # its own end again is answered OK
    ends = [{"claim": claim, "status": "SUCCESS", "output": 1} for claim in wrong.values()]
    assert statuses(node.finish(*ends)) == ["LOST"] * len(ends)
    uploads = [
        node.post("/v1/claims/upload", {"claim": claim, "size": 1, "content_type": "text/csv"})
        for claim in wrong.values()
    ]
    assert {(answer.status, answer.json["code"]) for answer in uploads} == {(409, "CLAIM_LOST")}
    assert len({answer.json["detail"] for answer in uploads}) == 1


def test_each_of_five_hundred_claims_is_answered(node: ClaimsNode) -> None:
    claim = node.start_run()
    items = [{"claim": "x"}] * 499 + [{"claim": claim}]
    assert statuses(node.renew(*items)) == ["LOST"] * 499 + ["OK"]
    too_many = node.renew(*items, {"claim": "x"})
    assert (too_many.status, set(too_many.fields)) == (422, {"claims"})
    assert node.renew().status == 422


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("claim", 1),
        ("runner_id", ""),
        ("runner_id", "x" * 65),
        ("runner_id", "a b"),
        ("started_at", "now"),
        ("progress", {"percent": 101}),
        ("progress", {"text": "x" * 257}),
        ("log", 1),
        ("log", "é" * (MAX_LOG_PIECE_BYTES // 2 + 1)),
        ("log_offset", -1),
        ("log_offset", "0"),
        ("speed", 1),
    ],
)
def test_wrong_field_of_a_renewal_is_named(node: ClaimsNode, field: str, value: Any) -> None:
    answer = node.renew({"claim": "x"}, {"claim": "y", field: value})
    assert answer.status == 422
    (name,) = answer.fields
    assert name.startswith(f"claims.1.{field}")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("status", "DONE"),
        ("exit_code", 2**31),
        ("retryable", "no"),
        ("error_message", "x" * 8_193),
        ("output", "x" * MAX_CLAIM_OUTPUT_BYTES),
        ("output_text", "x" * (MAX_CLAIM_OUTPUT_BYTES + 1)),
        ("started_at", "2026-11-18"),
    ],
)
def test_wrong_field_of_a_finish_is_named(node: ClaimsNode, field: str, value: Any) -> None:
    answer = node.finish({"claim": "x", "status": "SUCCESS", field: value})
    assert (answer.status, set(answer.fields)) == (422, {f"claims.0.{field}"})


def test_finish_takes_one_output_only(node: ClaimsNode) -> None:
    answer = node.finish({"claim": "x", "status": "SUCCESS", "output": 1, "output_text": "1"})
    assert (answer.status, set(answer.fields)) == (422, {"claims.0.output_text"})


@pytest.mark.parametrize(
    ("field", "value"),
    [("size", 0), ("size", 5 * 1024**3 + 1), ("content_type", ""), ("content_type", "é")],
)
def test_wrong_field_of_an_upload_is_named(node: ClaimsNode, field: str, value: Any) -> None:
    body = {"claim": "x", "size": 1, "content_type": "text/csv", field: value}
    answer = node.post("/v1/claims/upload", body)
    assert (answer.status, set(answer.fields)) == (422, {field})


def test_body_may_have_five_mebibytes(node: ClaimsNode) -> None:
    logs = [{"claim": "x", "log": "x" * 1_000_000}] * 5
    assert statuses(node.renew(*logs)) == ["LOST"] * 5
    assert node.renew(*logs, {"claim": "x", "log": "x" * 300_000}).status == 413


def test_progress_of_a_renewal_is_shown_while_the_run_goes_on(node: ClaimsNode) -> None:
    claim = node.start_run(max_retries=1, retry={"backoff_seconds": 1, "jitter": False})

    def shown() -> Any:
        return run_json(node.run(claim), "")["progress"]

    def report(**progress: Any) -> None:
        assert statuses(node.renew({"claim": claim, "progress": progress})) == ["OK"]

    assert shown() is None
    report(percent=12.5, text="sorting")
    assert statuses(node.renew({"claim": claim})) == ["OK"]
    report()
    assert shown() == {"percent": 12.5, "text": "sorting"}
    report(percent=0)
    assert shown() == {"percent": 0, "text": None}
    assert statuses(node.finish({"claim": claim, "status": "FAILED"})) == ["OK"]
    assert shown() is None


def test_progress_costs_no_version_of_the_job_state(node: ClaimsNode) -> None:
    claim = node.start_run()
    identity = node.claim_tokens.read(claim)
    assert identity is not None
    key = JobKey(identity.tenant, identity.job_id)

    def version() -> int:
        stored = node.world.do(lambda: node.world.store.job_states.load([key]))
        return int(stored[key].state.version)

    before = version()
    progress = {"percent": 50, "text": "half"}
    assert statuses(node.renew({"claim": claim, "progress": progress})) == ["OK"]
    assert version() == before
