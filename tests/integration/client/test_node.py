"""The client against a real node, synchronous and asynchronous: the life of a job."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from bench.running import run_node
from punctual.client import (
    Conflict,
    Invalid,
    NotFound,
    PreconditionFailed,
    Punctual,
    RunFailed,
    TooLarge,
    WaitTimeout,
    event,
    script,
)
from tests.support.client.kinds import both_clients

NUMBERS = count()
LATER: dict[str, Any] = {"schedule_type": "FUTURE", "schedule_time": "2199-01-01T00:00:00Z"}
PRINTS = script('import sys; print("héllo", sys.stdin.read().strip())')
FAILS = script("raise SystemExit(3)")
HANGS = script("import time; time.sleep(60)")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_node(tmp_path_factory.mktemp("client") / "data") as node:
        yield f"http://127.0.0.1:{node.port}/v1"


@pytest.fixture
def name() -> str:
    return f"client {next(NUMBERS)}."


def now() -> datetime:
    return datetime.now(UTC)


@both_clients
def test_job_is_created_read_changed_paused_resumed_and_cancelled(
    open_client: Any, url: str, name: str
) -> None:
    with open_client(url) as access:
        jobs = access.client.jobs
        job = access.do(
            jobs.create(
                name=name,
                schedule_type="INTERVAL",
                interval_seconds=timedelta(hours=1),
                start_time=now() + timedelta(days=1),
                task=event("Nightly"),
                payload={"a": [1, None, "é"]},
                retry={"backoff_seconds": timedelta(seconds=1.5)},
                tags={"team": "data"},
            )
        )
        assert (job.interval, job.status, job.version) == (timedelta(hours=1), "SCHEDULED", 1)
        assert job.payload == {"a": [1, None, "é"]}
        assert job.retry["backoff_seconds"] == 1.5
        assert job.next_run_time > now()
        assert access.do(jobs.get(job.job_id)) == job

        changed = access.do(jobs.update(job, priority="HIGH", if_match=job))
        assert (changed.priority, changed.version) == ("HIGH", 2)
        with pytest.raises(PreconditionFailed):
            access.do(jobs.update(job, priority="LOW", if_match=job))

        assert access.do(jobs.pause(job)).status == "PAUSED"
        assert access.do(jobs.status(job)).next_run_time is None
        assert access.do(jobs.resume(job, missed="SKIP")).status == "SCHEDULED"
        assert (
            access.do(jobs.cancel(job)).status == access.do(jobs.cancel(job)).status == "CANCELLED"
        )
        with pytest.raises(Conflict):
            access.do(jobs.pause(job))


@both_clients
def test_run_is_waited_for_and_has_output_and_logs(open_client: Any, url: str, name: str) -> None:
    with open_client(url) as access:
        jobs, runs = access.client.jobs, access.client.runs
        job = access.do(jobs.create(name=name, task=PRINTS, payload=1, **LATER))
        run = access.do(jobs.run(job, payload={"n": 7}, wait=True, timeout=timedelta(seconds=20)))
        assert run.raise_for_outcome().payload == {"n": 7}
        assert [item.status for item in run.attempts] == ["SUCCESS"]
        assert run.duration > timedelta(0)
        assert access.do(runs.output(run)).text == 'héllo {"n":7}\n'
        assert access.do(runs.logs(run)).text == 'héllo {"n":7}\n'
        assert "".join(access.all(runs.follow_logs(job, run.run_id))) == 'héllo {"n":7}\n'

        retried = access.do(access.client.wait_for(access.do(runs.retry(run)), timeout=20))
        assert (retried.trigger, retried.retried_from, retried.succeeded) == (
            "RETRY",
            run.run_id,
            True,
        )
        listed = access.all(runs.list(job, status=["SUCCESS", "FAILED"]))
        assert [item.run_id for item in listed] == [retried.run_id, run.run_id]
        assert access.all(runs.list(job, trigger="RETRY", limit=1))[0].run_id == retried.run_id
        with pytest.raises(Conflict):
            access.do(runs.cancel(run))


@both_clients
def test_failed_and_hanging_runs_raise_errors(open_client: Any, url: str, name: str) -> None:
    with open_client(url) as access:
        jobs = access.client.jobs
        job = access.do(jobs.create(name=name, task=FAILS, max_retries=0, **LATER))
        failed = access.do(jobs.run(job, wait=True, timeout=20))
        with pytest.raises(RunFailed, match="has ended FAILED"):
            failed.raise_for_outcome()
        assert failed.exit_code == 3

        job = access.do(jobs.create(name=name, task=HANGS, **LATER))
        with pytest.raises(WaitTimeout, match=r"after 0\.5 s") as error:
            access.do(jobs.run(job, wait=True, timeout=0.5))
        assert not error.value.run.ended
        access.do(access.client.runs.cancel(error.value.run))
        ended = access.do(access.client.wait_for(error.value.run, timeout=20))
        assert ended.status == "CANCELLED"


@both_clients
def test_logs_are_followed_while_they_are_written(open_client: Any, url: str, name: str) -> None:
    code = "import time\nfor n in range(3):\n    print(n, flush=True)\n    time.sleep(0.6)"
    with open_client(url) as access:
        job = access.do(access.client.jobs.create(name=name, task=script(code), **LATER))
        pieces = access.all(access.client.runs.follow_logs(access.do(access.client.jobs.run(job))))
    assert "".join(pieces) == "0\n1\n2\n"
    assert len(pieces) > 1


@both_clients
def test_many_jobs_are_created_and_listed_over_pages(open_client: Any, url: str, name: str) -> None:
    wanted = [{"name": f"{name}{n}", "tags": {"of": name}, **LATER} for n in range(450)]
    with open_client(url) as access:
        jobs = access.client.jobs
        batch = access.do(jobs.create_many([*wanted, {"name": ""}]))
        assert [*batch.declined] == [450]
        assert {e.field for e in batch.declined[450].problem.errors} == {"name", "schedule_type"}
        listed = [job.job_id for job in access.all(jobs.list(tags={"of": name}))]
        assert sorted(listed) == sorted(batch.job_ids[:450])
        assert len(access.all(jobs.list(tags={"of": name}, limit=201))) == 201
        # The same key creates nothing more, and returns the same ids.
        repeated = access.do(
            jobs.create_many([*wanted, {"name": ""}], idempotency_key=batch.idempotency_key)
        )
        assert repeated.job_ids == batch.job_ids


@both_clients
def test_preview_upcoming_explain_and_backfill_return_occurrences(
    open_client: Any, url: str, name: str
) -> None:
    fields: dict[str, Any] = {
        "schedule_type": "CRON",
        "cron_expression": "30 2 * * *",
        "timezone": "Europe/Berlin",
    }
    with open_client(url) as access:
        client = access.client
        preview = access.do(
            client.schedules.preview(**fields, from_="2026-03-28T12:00:00Z", count=2)
        )
        assert len(preview.times) == 2
        assert preview.warnings
        job = access.do(client.jobs.create(name=name, **fields))
        occurrences = [
            occurrence
            for occurrence in access.all(client.schedules.upcoming(to=now() + timedelta(days=2)))
            if occurrence.job_id == job.job_id
        ]
        assert occurrences[0].utc == job.next_run_time == occurrences[0].local
        assert access.do(client.jobs.explain(job, occurrences[0].utc)).outcome == "PLANNED"
        dry = access.do(client.jobs.backfill(job, now() - timedelta(days=3), now(), dry_run=True))
        assert dry.runs == len(dry.times) == access.do(
            client.jobs.backfill(job, now() - timedelta(days=3), now())
        ).runs  # fmt: skip


@both_clients
def test_health_stats_openapi_and_whoami_are_returned(open_client: Any, url: str) -> None:
    with open_client(url) as access:
        client = access.client
        assert access.do(client.health()).ok
        assert access.do(client.stats()).queue is not None
        assert access.do(client.openapi())["openapi"].startswith("3.1")
        me = access.do(client.whoami())
        assert (me.tenant, me.role) == ("local", "admin")


@both_clients
def test_tokens_are_created_shown_once_and_revoked(open_client: Any, url: str, name: str) -> None:
    with open_client(url) as access:
        tokens = access.client.tokens
        until = now() + timedelta(days=1)
        token = access.do(tokens.create(name=name, role="viewer", expires_at=until))
        assert token.token.startswith("pnc_")
        assert abs(token.expires_at - until) < timedelta(seconds=1)
        assert token.token_id in [row.token_id for row in access.all(tokens.list())]
        assert access.do(tokens.get(token.token_id)).revoked_at is None
        revoked_at = access.do(tokens.revoke(token.token_id)).revoked_at
        assert revoked_at is not None
        assert access.do(tokens.revoke(token.token_id)).revoked_at == revoked_at


@both_clients
def test_audit_entries_of_a_job_are_listed(open_client: Any, url: str, name: str) -> None:
    with open_client(url) as access:
        job = access.do(access.client.jobs.create(name=name, **LATER))
        access.do(access.client.jobs.pause(job))
        entries = access.all(access.client.audit.list(job=job))
    assert [entry.action for entry in entries] == ["job.pause", "job.create"]
    assert entries[0].at <= now()


@both_clients
def test_invalid_fields_and_missing_jobs_raise_errors(
    open_client: Any, url: str, name: str
) -> None:
    with open_client(url) as access:
        jobs = access.client.jobs
        with pytest.raises(Invalid) as error:
            access.do(jobs.create(name="", schedule_type="CRON", tags={"a:b": "c"}))
        assert {field_error.field for field_error in error.value.errors} == {
            "name",
            "cron_expression",
            "tags.a:b",
        }
        with pytest.raises(NotFound):
            access.do(jobs.get("01a1f03b-abb9-7019-9650-e41c1771d654"))
        with pytest.raises(NotFound):
            access.do(jobs.get("a/b c"))
        with pytest.raises(TooLarge):
            access.do(jobs.create(name=name, payload="x" * 600_000, **LATER))


def job_and_run_ids(client: Punctual, job_id: str) -> tuple[Any, ...]:
    """Return all that an update may change, without the fields that count updates."""
    job = client.jobs.get(job_id)
    fields = {n: v for n, v in job.raw.items() if n not in ("version", "updated_at", "latest_run")}
    return fields, [run.run_id for run in client.runs.list(job_id)]


@pytest.mark.parametrize(
    "changes",
    [
        {"priority": "HIGH", "tags": {}},
        {"interval_seconds": 1800},
        {"schedule_type": "CRON", "cron_expression": "0 3 * * *"},
        {"schedule_type": "IMMEDIATE"},
        {"schedule_type": "FUTURE", "schedule_time": timedelta(seconds=-1)},
    ],
    ids=str,
)
def test_repeated_update_changes_nothing(url: str, name: str, changes: dict[str, Any]) -> None:
    """So the client repeats an update after a lost answer."""
    if "schedule_time" in changes:
        changes = {**changes, "schedule_time": now() + changes["schedule_time"]}
    with Punctual(url) as client:
        job = client.jobs.create(name=name, schedule_type="INTERVAL", interval_seconds=3600)
        client.jobs.update(job, **changes)
        for run in client.runs.list(job):
            client.wait_for(run, timeout=20)
        before = job_and_run_ids(client, job.job_id)
        client.jobs.update(job, **changes)
        assert job_and_run_ids(client, job.job_id) == before


@pytest.mark.parametrize("missed", ["SKIP", "RUN_ONCE", "RUN_ALL", None])
def test_repeated_pause_and_resume_change_nothing(url: str, name: str, missed: Any) -> None:
    with Punctual(url) as client:
        job = client.jobs.create(name=name, schedule_type="INTERVAL", interval_seconds=3600).job_id
        client.jobs.pause(job)
        before = job_and_run_ids(client, job)
        client.jobs.pause(job)
        assert job_and_run_ids(client, job) == before
        client.jobs.resume(job, missed=missed)
        before = job_and_run_ids(client, job)
        client.jobs.resume(job, missed=missed)
        assert job_and_run_ids(client, job) == before
