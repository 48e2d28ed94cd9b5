"""The client and a real node, waited for and awaited: a job's whole life."""

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
from tests.support.client_ways import both_ways

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


@both_ways
def test_a_job_is_made_read_changed_paused_resumed_and_cancelled(
    opened: Any, url: str, name: str
) -> None:
    with opened(url) as way:
        jobs = way.client.jobs
        made = way.do(
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
        assert (made.interval, made.status, made.version) == (timedelta(hours=1), "SCHEDULED", 1)
        assert made.payload == {"a": [1, None, "é"]}
        assert made.retry["backoff_seconds"] == 1.5
        assert made.next_run_time > now()
        assert way.do(jobs.get(made.job_id)) == made

        changed = way.do(jobs.update(made, priority="HIGH", if_match=made))
        assert (changed.priority, changed.version) == ("HIGH", 2)
        with pytest.raises(PreconditionFailed):
            way.do(jobs.update(made, priority="LOW", if_match=made))

        assert way.do(jobs.pause(made)).status == "PAUSED"
        assert way.do(jobs.status(made)).next_run_time is None
        assert way.do(jobs.resume(made, missed="SKIP")).status == "SCHEDULED"
        assert way.do(jobs.cancel(made)).status == way.do(jobs.cancel(made)).status == "CANCELLED"
        with pytest.raises(Conflict):
            way.do(jobs.pause(made))


@both_ways
def test_a_run_is_waited_for_and_leaves_output_and_logs(opened: Any, url: str, name: str) -> None:
    with opened(url) as way:
        jobs, runs = way.client.jobs, way.client.runs
        job = way.do(jobs.create(name=name, task=PRINTS, payload=1, **LATER))
        run = way.do(jobs.run(job, payload={"n": 7}, wait=True, timeout=timedelta(seconds=20)))
        assert run.raise_for_outcome().payload == {"n": 7}
        assert [one.status for one in run.attempts] == ["SUCCESS"]
        assert run.duration > timedelta(0)
        assert way.do(runs.output(run)).text == 'héllo {"n":7}\n'
        assert way.do(runs.logs(run)).text == 'héllo {"n":7}\n'
        assert "".join(way.all(runs.follow_logs(job, run.run_id))) == 'héllo {"n":7}\n'

        again = way.do(way.client.wait_for(way.do(runs.retry(run)), timeout=20))
        assert (again.trigger, again.retried_from, again.succeeded) == ("RETRY", run.run_id, True)
        listed = way.all(runs.list(job, status=["SUCCESS", "FAILED"]))
        assert [one.run_id for one in listed] == [again.run_id, run.run_id]
        assert way.all(runs.list(job, trigger="RETRY", limit=1))[0].run_id == again.run_id
        with pytest.raises(Conflict):
            way.do(runs.cancel(run))


@both_ways
def test_a_run_that_fails_or_hangs_says_so(opened: Any, url: str, name: str) -> None:
    with opened(url) as way:
        jobs = way.client.jobs
        job = way.do(jobs.create(name=name, task=FAILS, max_retries=0, **LATER))
        failed = way.do(jobs.run(job, wait=True, timeout=20))
        with pytest.raises(RunFailed, match="has ended FAILED"):
            failed.raise_for_outcome()
        assert failed.exit_code == 3

        job = way.do(jobs.create(name=name, task=HANGS, **LATER))
        with pytest.raises(WaitTimeout, match=r"after 0\.5 s") as told:
            way.do(jobs.run(job, wait=True, timeout=0.5))
        assert not told.value.run.ended
        way.do(way.client.runs.cancel(told.value.run))
        ended = way.do(way.client.wait_for(told.value.run, timeout=20))
        assert ended.status == "CANCELLED"


@both_ways
def test_logs_are_followed_while_they_are_written(opened: Any, url: str, name: str) -> None:
    code = "import time\nfor n in range(3):\n    print(n, flush=True)\n    time.sleep(0.2)"
    with opened(url) as way:
        job = way.do(way.client.jobs.create(name=name, task=script(code), **LATER))
        pieces = way.all(way.client.runs.follow_logs(way.do(way.client.jobs.run(job))))
    assert "".join(pieces) == "0\n1\n2\n"
    assert len(pieces) > 1


@both_ways
def test_many_jobs_are_made_and_listed_over_pages(opened: Any, url: str, name: str) -> None:
    wanted = [{"name": f"{name}{n}", "tags": {"of": name}, **LATER} for n in range(450)]
    with opened(url) as way:
        jobs = way.client.jobs
        batch = way.do(jobs.create_many([*wanted, {"name": ""}]))
        assert [*batch.declined] == [450]
        assert {e.field for e in batch.declined[450].problem.errors} == {"name", "schedule_type"}
        listed = [job.job_id for job in way.all(jobs.list(tags={"of": name}))]
        assert sorted(listed) == sorted(batch.job_ids[:450])
        assert len(way.all(jobs.list(tags={"of": name}, limit=201))) == 201
        # The same key again makes nothing more, and answers the same.
        again = way.do(
            jobs.create_many([*wanted, {"name": ""}], idempotency_key=batch.idempotency_key)
        )
        assert again.job_ids == batch.job_ids


@both_ways
def test_what_comes_and_why_is_told(opened: Any, url: str, name: str) -> None:
    fields: dict[str, Any] = {
        "schedule_type": "CRON",
        "cron_expression": "30 2 * * *",
        "timezone": "Europe/Berlin",
    }
    with opened(url) as way:
        client = way.client
        seen = way.do(client.schedules.preview(**fields, from_="2026-03-28T12:00:00Z", count=2))
        assert len(seen.times) == 2
        assert seen.warnings
        job = way.do(client.jobs.create(name=name, **fields))
        mine = [
            one
            for one in way.all(client.schedules.upcoming(to=now() + timedelta(days=2)))
            if one.job_id == job.job_id
        ]
        assert mine[0].utc == job.next_run_time == mine[0].local
        assert way.do(client.jobs.explain(job, mine[0].utc)).outcome == "PLANNED"
        dry = way.do(client.jobs.backfill(job, now() - timedelta(days=3), now(), dry_run=True))
        assert dry.runs == len(dry.times) == way.do(
            client.jobs.backfill(job, now() - timedelta(days=3), now())
        ).runs  # fmt: skip


@both_ways
def test_the_installation_says_how_it_does(opened: Any, url: str) -> None:
    with opened(url) as way:
        client = way.client
        assert way.do(client.health()).ok
        assert way.do(client.stats()).queue is not None
        assert way.do(client.openapi())["openapi"].startswith("3.1")
        me = way.do(client.whoami())
        assert (me.tenant, me.role) == ("local", "admin")


@both_ways
def test_tokens_are_made_shown_once_and_revoked(opened: Any, url: str, name: str) -> None:
    with opened(url) as way:
        tokens = way.client.tokens
        until = now() + timedelta(days=1)
        made = way.do(tokens.create(name=name, role="viewer", expires_at=until))
        assert made.token.startswith("pnc_")
        assert abs(made.expires_at - until) < timedelta(seconds=1)
        assert made.token_id in [one.token_id for one in way.all(tokens.list())]
        assert way.do(tokens.get(made.token_id)).revoked_at is None
        first = way.do(tokens.revoke(made.token_id)).revoked_at
        assert first is not None
        assert way.do(tokens.revoke(made.token_id)).revoked_at == first


@both_ways
def test_who_changed_what_is_told(opened: Any, url: str, name: str) -> None:
    with opened(url) as way:
        job = way.do(way.client.jobs.create(name=name, **LATER))
        way.do(way.client.jobs.pause(job))
        entries = way.all(way.client.audit.list(job_id=job))
    assert [entry.action for entry in entries] == ["job.pause", "job.create"]
    assert entries[0].at <= now()


@both_ways
def test_what_is_wrong_is_named_and_what_is_not_there_too(opened: Any, url: str, name: str) -> None:
    with opened(url) as way:
        jobs = way.client.jobs
        with pytest.raises(Invalid) as told:
            way.do(jobs.create(name="", schedule_type="CRON", tags={"a:b": "c"}))
        assert {one.field for one in told.value.errors} == {"name", "cron_expression", "tags.a:b"}
        with pytest.raises(NotFound):
            way.do(jobs.get("01a1f03b-abb9-7019-9650-e41c1771d654"))
        with pytest.raises(NotFound):
            way.do(jobs.get("a/b c"))
        with pytest.raises(TooLarge):
            way.do(jobs.create(name=name, payload="x" * 600_000, **LATER))


def shown(client: Punctual, job_id: str) -> tuple[Any, ...]:
    """All that a change may change, but who counts how often it was asked for."""
    job = client.jobs.get(job_id)
    kept = {n: v for n, v in job.raw.items() if n not in ("version", "updated_at", "latest_run")}
    return kept, [run.run_id for run in client.runs.list(job_id)]


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
def test_a_change_that_is_repeated_changes_nothing_more(
    url: str, name: str, changes: dict[str, Any]
) -> None:
    """Why it is repeated where nobody knows whether it was made."""
    if "schedule_time" in changes:
        changes = {**changes, "schedule_time": now() + changes["schedule_time"]}
    with Punctual(url) as client:
        job = client.jobs.create(name=name, schedule_type="INTERVAL", interval_seconds=3600)
        client.jobs.update(job, **changes)
        for run in client.runs.list(job):
            client.wait_for(run, timeout=20)
        once = shown(client, job.job_id)
        client.jobs.update(job, **changes)
        assert shown(client, job.job_id) == once


@pytest.mark.parametrize("missed", ["SKIP", "RUN_ONCE", "RUN_ALL", None])
def test_pausing_and_resuming_repeated_change_nothing_more(
    url: str, name: str, missed: Any
) -> None:
    with Punctual(url) as client:
        job = client.jobs.create(name=name, schedule_type="INTERVAL", interval_seconds=3600).job_id
        client.jobs.pause(job)
        once = shown(client, job)
        client.jobs.pause(job)
        assert shown(client, job) == once
        client.jobs.resume(job, missed=missed)
        once = shown(client, job)
        client.jobs.resume(job, missed=missed)
        assert shown(client, job) == once
