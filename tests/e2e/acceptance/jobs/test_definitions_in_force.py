"""Past and future occurrences follow the definition in force at each time."""

from datetime import UTC, datetime, timedelta

from tests.support.acceptance.contract import (
    ENDED,
    NEVER_SOON,
    Api,
    Json,
    eventually,
    fields_of,
    instant,
    iso,
)

SECOND = timedelta(seconds=1)
WEEK = {"from": "2026-01-05T00:00:00Z", "to": "2026-01-12T00:00:00Z"}


def explain(api: Api, job_id: str, at: datetime | str) -> Json:
    text = at if isinstance(at, str) else iso(at)
    return api.get(f"/jobs/{job_id}/explain", at=text)


def would_run(api: Api, job_id: str, start: datetime, end: datetime) -> list[datetime]:
    body = {"from": iso(start), "to": iso(end), "dry_run": True}
    answer = api("POST", f"/jobs/{job_id}/backfill", body)
    assert answer.status_code == 200, answer.text
    return [instant(at) for at in answer.json()["times"]]


def passed(at: datetime) -> datetime:
    """Wait until the clock is past `at`, and return it."""
    eventually(lambda: datetime.now(UTC) > at)
    return at


def test_occurrences_beyond_max_runs_are_neither_planned_nor_backfilled(api: Api) -> None:
    every = {"schedule_type": "INTERVAL", "interval_seconds": 1, "max_runs": 2}
    job = api.create(**every)
    job_id, first = job["job_id"], instant(job["next_run_time"])
    far = explain(api, job_id, first + 5 * SECOND)
    api.job_in(job_id, "COMPLETED")
    last = max(instant(run["scheduled_time"]) for run in api.runs(job_id))
    assert len(api.runs(job_id, status="SUCCESS")) == 2
    ahead = explain(api, job_id, last + 3600 * SECOND)
    gone = explain(api, job_id, passed(last + SECOND))
    for explanation in (far, ahead, gone):
        assert (explanation["outcome"], explanation["next"]) == ("NOT_SCHEDULED", None)
        assert "max_runs" in explanation["reason"]
    assert explain(api, job_id, last - SECOND)["next"] == iso(last)
    assert [instant(gone["previous"]), instant(ahead["previous"])] == [last, last]
    assert explain(api, job_id, last)["next"] is None
    assert would_run(api, job_id, first - SECOND, passed(last + 3 * SECOND)) == []


def test_interval_from_completion_has_no_next_time_until_a_run_ends(api: Api) -> None:
    every = {"schedule_type": "INTERVAL", "interval_seconds": 1, "interval_from": "COMPLETED"}
    job_id = api.create(**every, max_runs=2)["job_id"]
    api.job_in(job_id, "COMPLETED")
    times = [run["scheduled_time"] for run in api.runs(job_id)]
    for at in times:
        explanation = explain(api, job_id, at)
        assert (explanation["outcome"], explanation["occurrence"], explanation["next"]) == (
            "SUCCESS",
            at,
            None,
        )
    job = api.create(**{**every, "interval_seconds": 3600})
    first = instant(job["next_run_time"])
    explanation = explain(api, job["job_id"], first)
    assert (explanation["outcome"], explanation["next"]) == ("PLANNED", None)
    assert explain(api, job["job_id"], first - SECOND)["next"] == iso(first)
    assert explain(api, job["job_id"], first + 3600 * SECOND)["outcome"] == "NOT_SCHEDULED"


def test_backfill_uses_the_schedule_in_force_at_each_time(api: Api) -> None:
    even = {"schedule_type": "CRON", "cron_expression": "*/2 * * * * *"}
    job_id = api.create(**even)["job_id"]
    eventually(lambda: len(api.runs(job_id, status="SUCCESS")) >= 2)
    start = instant(api.runs(job_id, status="SUCCESS")[0]["scheduled_time"])
    job = api("PATCH", f"/jobs/{job_id}", {"cron_expression": "1-59/2 * * * * *"}).json()
    changed = instant(job["updated_at"])
    eventually(lambda: all(run["status"] in ENDED for run in api.runs(job_id)))
    backfilled = {iso(at) for at in would_run(api, job_id, start, changed - SECOND)}
    not_run = {run["scheduled_time"] for run in api.runs(job_id, status=["SKIPPED", "MISSED"])}
    assert backfilled <= not_run  # runs that were late on a busy machine
    odd = start + SECOND
    assert explain(api, job_id, odd)["outcome"] == "NOT_SCHEDULED"


def test_times_before_a_job_use_its_first_definition(api: Api) -> None:
    weekdays = {"schedule_type": "CRON", "cron_expression": "0 6 * * mon-fri"}
    job_id = api.create(**weekdays, exclude=["2026-01-07"], max_runs=3)["job_id"]
    change: Json = {"cron_expression": "0 7 * * *", "exclude": [], "max_runs": None}
    assert api("PATCH", f"/jobs/{job_id}", change).status_code == 200
    times = would_run(api, job_id, *(datetime.fromisoformat(at) for at in WEEK.values()))
    assert [at.day for at in times] == [5, 6, 8, 9]
    assert {at.hour for at in times} == {6}
    assert explain(api, job_id, times[0])["occurrence"] == iso(times[0])
    assert explain(api, job_id, times[0] + 3600 * SECOND)["occurrence"] is None
    assert explain(api, job_id, "2026-01-07T06:00:00Z")["outcome"] == "EXCLUDED"
    assert api.order(job_id, "backfill", WEEK) == {"runs": 4}
    assert api.order(job_id, "backfill", WEEK) == {"runs": 0}
    assert explain(api, job_id, times[0])["run_id"] is not None


def test_cancelled_job_refuses_every_backfill(api: Api) -> None:
    job_id = api.create(**NEVER_SOON)["job_id"]
    api("DELETE", f"/jobs/{job_id}")
    nothing = {"from": "2026-01-05T00:00:00Z", "to": "2026-01-05T00:00:01Z"}
    for body in (nothing, {**nothing, "dry_run": True}, WEEK):
        assert api("POST", f"/jobs/{job_id}/backfill", body).status_code == 409
    wrong = {**nothing, "to": "yesterday"}
    assert fields_of(api("POST", f"/jobs/{job_id}/backfill", wrong)) == {"to"}
