"""The audit on AWS: a note in the job state's own write becomes an entry by the stream."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from punctual.aws.dynamodb import keys
from punctual.domain.errors import Unavailable
from punctual.engine.ports.audit_log import AuditFilters
from punctual.engine.ports.rows import JobKey
from punctual.lambdas.ssm_secrets import TOKEN_KEY_PARAMETER
from punctual.lambdas.status.handler import StatusHandler, build_handler
from punctual.web.contract import READ_FUNCTION
from tests.integration.lambdas.test_api import DAILY
from tests.support.aws.moto_faults import lost_answers, refused, unreached
from tests.support.aws.stream_records import Stream, is_state_of
from tests.support.deployed.drivers.api import ADMIN, Api, an_api

SOON = {"name": "n", "schedule_type": "FUTURE", "schedule_time": "2026-03-02T13:00:00Z"}
OTHER = {"lambda": {"tenant": "other", "caller": "b", "role": "admin"}}
VIEWER = {"lambda": {"tenant": "default", "caller": "v", "role": "editor"}}
WRITES = ("PutItem", "UpdateItem", "BatchWriteItem", "BatchGetItem")
Fault = Callable[..., Any]


class World:
    def __init__(self, api: Api) -> None:
        self.api, self.clock = api, api.clock
        self.stream = Stream(api.store)
        self.status: StatusHandler = build_handler(api.runtimes[READ_FUNCTION])
        api.store.clients.ssm.put_parameter(
            Name=f"{api.store.settings.knobs}{TOKEN_KEY_PARAMETER}",
            Value=b64encode(bytes(range(32))).decode(),
            Type="SecureString",
            Overwrite=True,
        )

    def follow(self) -> None:
        """Handle the new stream records, and repeat until all are handled."""
        records = self.stream.catch()
        while records:
            left = self.attempt(records)
            records = [record for record in records if place(record) >= left] if left else []

    def attempt(self, records: list[Any]) -> str:
        try:
            return next(iter(self.status.handle(records)), "")
        except Unavailable:
            return place(records[0])

    def entries(self, query: str = "", **event: Any) -> list[dict[str, Any]]:
        """Return all audit entries, the oldest first, read in small pages."""
        entries: list[dict[str, Any]] = []
        token = ""
        while True:
            answer = self.api("GET", f"/audit?limit=2{query}&next_token={token}", **event)
            assert answer.status == 200, answer.body
            entries += answer.json["entries"]
            token = answer.json["next_token"]
            if not token:
                return entries[::-1]

    def rows(self) -> list[dict[str, Any]]:
        return self.api.store.rows(self.api.store.settings.audit_table)

    def versions(self) -> list[tuple[str, int]]:
        """Return each job once for each of its versions."""
        jobs = self.api("GET", "/jobs?limit=200").json["jobs"]
        return [(job["job_id"], n) for job in jobs for n in range(1, job["version"] + 1)]


def place(record: Any) -> str:
    sequence: str = record["dynamodb"]["SequenceNumber"]
    return sequence


@pytest.fixture
def world() -> Iterator[World]:
    with an_api() as api:
        yield World(api)


def test_each_change_is_audited_after_its_stream_record(world: World) -> None:
    job = world.api("POST", "/jobs", DAILY).json["job_id"]
    steps: list[tuple[str, str, Any]] = [
        ("PATCH", "", {"priority": "HIGH"}),
        ("POST", "/pause", None),
        ("POST", "/resume", {"missed": "SKIP"}),
        ("POST", "/runNow", {"payload": {"secret": "hush"}}),
        ("DELETE", "", None),
    ]
    for method, target, value in steps:
        world.follow()
        world.clock.advance(timedelta(seconds=1))
        assert world.api(method, f"/jobs/{job}{target}", value).status in (200, 202)
    assert len(world.entries()) == len(steps), "changes without a stream record have no entry yet"
    world.follow()
    entries = world.entries()
    assert [entry["action"] for entry in entries] == [
        "job.create",
        "job.update",
        "job.pause",
        "job.resume",
        "run.order",
        "job.cancel",
    ]
    assert {entry["job_id"] for entry in entries} == {job}
    assert {entry["caller"] for entry in entries} == {"admin"}
    assert {entry["address"] for entry in entries} == {"192.0.2.1"}
    assert len({entry["request_id"] for entry in entries}) == len(entries)
    assert entries[1]["before"] == {"priority": "NORMAL"}
    assert entries[1]["after"] == {"priority": "HIGH"}
    assert entries[4]["after"] == {"payload_given": True}
    assert "hush" not in json.dumps(entries)


def test_audit_note_is_in_job_state_until_next_swap(world: World) -> None:
    job_id = world.api("POST", "/jobs", SOON).json["job_id"]
    (head,) = [row for row in world.api.store.rows("jobs") if is_state_of(row, job_id)]
    assert json.loads(head[keys.AUDIT_NOTE_ATTR]["S"])[1] == "job.create"
    world.clock.advance(timedelta(seconds=3_600))
    world.api.runtimes[READ_FUNCTION].evaluator.evaluate_jobs([JobKey("default", job_id)])
    (head,) = [row for row in world.api.store.rows("jobs") if is_state_of(row, job_id)]
    assert keys.AUDIT_NOTE_ATTR not in head
    world.follow()
    assert len(world.entries()) <= 1, "the stream of this test has only the last image of a row"


def test_audit_is_readable_only_by_admins_of_the_tenant(world: World) -> None:
    world.api("POST", "/jobs", DAILY)
    world.follow()
    assert len(world.entries()) == 1
    assert world.entries(authorizer=OTHER) == []
    answer = world.api("GET", "/audit", authorizer=VIEWER)
    assert (answer.status, answer.json["code"]) == (403, "FORBIDDEN")
    token = world.api("GET", "/audit?limit=1").json["next_token"]
    if token:
        assert world.api("GET", f"/audit?next_token={token}", authorizer=OTHER).status == 422


def test_repeated_stream_records_change_no_audit_row(world: World) -> None:
    for number in range(3):
        world.api("POST", "/jobs", {**DAILY, "name": f"daily {number}"})
        world.clock.advance(timedelta(seconds=0.3))
    records = world.stream.catch()
    assert world.status.handle(records) == []
    rows = world.rows()
    assert world.status.handle(records) == []
    assert world.rows() == rows, "a repeated batch has the same row key"
    for record in records:
        assert world.status.handle([record]) == []
    assert len(world.entries()) == 3


def test_existing_audit_row_is_never_overwritten(world: World) -> None:
    world.api("POST", "/jobs", DAILY)
    records = world.stream.catch()
    world.status.handle(records)
    (row,) = world.rows()
    forged = {**row, keys.DATA_ATTR: {"B": b"forged"}}
    table, client = world.api.store.settings.audit_table, world.api.store.clients.dynamodb
    client.put_item(TableName=table, Item=forged, ConditionExpression="attribute_exists(pk)")
    world.status.handle(records)
    assert world.rows() == [forged], "a put never replaces a row"


def test_audit_entries_of_a_batch_share_one_row(world: World) -> None:
    jobs = [{**SOON, "name": f"n{n}"} for n in range(40)]
    assert world.api("POST", "/jobs/batch", {"jobs": jobs}).status == 207
    world.follow()
    assert len(world.rows()) == 1
    entries = world.entries()
    assert sorted(entry["after"]["name"] for entry in entries) == sorted(
        job["name"] for job in jobs
    )


def test_request_repeated_with_idempotency_key_has_one_audit_entry(world: World) -> None:
    key = {"idempotency-key": "k"}
    for _ in range(2):
        assert world.api("POST", "/jobs", DAILY, headers=key).status == 202
    world.follow()
    assert len(world.entries()) == 1


def changed(world: World) -> None:
    """Create, change and delete a job, and ignore the answers."""
    answer = world.api("POST", "/jobs", DAILY)
    jobs = [job["job_id"] for job in world.api("GET", "/jobs").json["jobs"]]
    assert answer.status in (202, 503)
    for job in jobs:
        for method, target, value in (
            ("PATCH", "", {"priority": "HIGH"}),
            ("POST", "/pause", None),
            ("POST", "/resume", None),
            ("DELETE", "", None),
        ):
            world.follow()
            world.clock.advance(timedelta(seconds=1))
            world.api(method, f"/jobs/{job}{target}", value)
    world.follow()


@pytest.mark.parametrize("times", [1, 5])
@pytest.mark.parametrize("operation", WRITES)
@pytest.mark.parametrize("fault", [lost_answers, unreached, refused])
def test_changes_and_audit_entries_match_after_faults(
    world: World, fault: Fault, operation: str, times: int
) -> None:
    """A fault hits the API or the status function. Versions and audit entries still match."""
    client = world.api.store.clients.dynamodb
    more = ("ThrottlingException",) if fault is refused else ()
    with fault(client, operation, times, *more):
        changed(world)
    told = [entry["job_id"] for entry in world.entries() if entry["action"].startswith("job.")]
    assert sorted(told) == sorted(job for job, _ in world.versions())


@pytest.mark.parametrize("fault", [lost_answers, unreached, refused])
@pytest.mark.parametrize("times", [1, 2, 3, 4, 5, 8])
def test_token_is_audited_before_it_exists(world: World, fault: Fault, times: int) -> None:
    """A token that a fault prevented may have an entry. An existing token always has one."""
    client = world.api.store.clients.dynamodb
    more = ("ThrottlingException",) if fault is refused else ()
    with fault(client, "PutItem", times, *more):
        for n in range(2):
            answer = world.api("POST", "/tokens", {"name": f"ci-{n}", "role": "viewer"})
            assert answer.status in (201, 503)
            world.clock.advance(timedelta(seconds=1))
    token_ids = {token["token_id"] for token in world.api("GET", "/tokens").json["tokens"]}
    noted = [entry["subject_token_id"] for entry in world.entries("&action=token.create")]
    assert token_ids <= set(noted)
    assert noted or fault is not lost_answers
    assert len(noted) == len(set(noted))


def test_token_audit_entries_have_caller_and_no_secret(world: World) -> None:
    other_token = world.api(
        "POST", "/tokens", {"name": "ci", "role": "viewer", "tenant": "acme"}
    ).json
    mine = world.api("POST", "/tokens", {"name": "me", "role": "admin"}).json
    world.clock.advance(timedelta(seconds=1))
    for _ in range(2):
        assert world.api("DELETE", f"/tokens/{mine['token_id']}").status == 200
    entries = world.entries()
    assert sorted(entry["action"] for entry in entries) == [
        "token.create",
        "token.create",
        "token.revoke",
    ]
    assert mine["token"] not in json.dumps(entries)
    theirs = {"lambda": {**ADMIN["lambda"], "tenant": "acme"}}
    (entry,) = world.entries(authorizer=theirs)
    assert (entry["subject_token_id"], entry["after"]["tenant"]) == (
        other_token["token_id"],
        "acme",
    )


def test_change_with_failed_publish_is_audited(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise ValueError("this event is refused")

    monkeypatch.setattr(world.status, "_publish", never)
    world.api("POST", "/jobs", DAILY)
    records = world.stream.catch()
    with pytest.raises(ValueError, match="this event is refused"):
        world.status.handle(records)
    assert len(world.entries()) == 1


@pytest.mark.timeout(300)
def test_audit_page_reads_bounded_rows_and_continues(world: World) -> None:
    """A filter with few matches yields short pages instead of one long read."""
    audit = world.api.runtimes[READ_FUNCTION].ports.audit_log
    job = world.api("POST", "/jobs", DAILY).json["job_id"]
    world.follow()
    for _ in range(230):
        world.clock.advance(timedelta(seconds=5))
        world.api("POST", "/tokens", {"name": "x", "role": "viewer"})
    wanted = AuditFilters(job_id=job)
    page = audit.page("default", wanted, 50, None, world.clock())
    assert (page.entries, page.next_cursor is None) == ([], False)
    last_page = audit.page("default", wanted, 50, page.next_cursor, world.clock())
    assert [entry.subject.job_id for entry in last_page.entries] == [job]
