"""Views in the terminal: tables of eighty columns, cards, differences."""

import io
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from punctual.client import AuditEntry, Job, JobVersion, Run, Token
from punctual.client.model import convert_model
from punctual_cli.apply.fields import ABSENT, Difference
from punctual_cli.apply.plan_view import _difference_lines
from punctual_cli.commands import audit, service, tokens
from punctual_cli.input.choices import RunTime
from punctual_cli.output import job_views, run_views
from punctual_cli.session import Session

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
RUN = "01a1f045-e0c0-71f1-bf5a-0506dca926c6"
JOB = "01a1f045-d229-7038-89eb-02a8d89bc224"


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Return a function that draws a view, by default at eighty columns, in London's time."""

    def draw(view: Callable[..., None], *args: Any, columns: int = 80) -> str:
        out = io.StringIO()
        monkeypatch.setenv("COLUMNS", str(columns))
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            view(Session(clock=lambda: NOW), *args)
        return out.getvalue()

    monkeypatch.setenv("TZ", "Europe/London")
    time.tzset()
    yield draw
    monkeypatch.undo()
    time.tzset()


def a_run(**fields: Any) -> Run:
    return convert_model(
        Run, {"run_id": RUN, "job_id": JOB, "status": "SUCCESS", "job_version": 1, **fields}
    )


def a_job(**fields: Any) -> Job:
    return convert_model(
        Job,
        {
            "job_id": JOB,
            "name": "nightly",
            "status": "SCHEDULED",
            "schedule_type": "CRON",
            "cron_expression": "0 2 * * *",
            "timezone": "Europe/Berlin",
            "next_run_time": "2026-12-02T01:00:00.000Z",
            "created_at": "2026-11-01T00:00:00.000Z",
            "updated_at": "2026-11-01T00:00:00.000Z",
            "created_by": "ci",
            "version": 3,
            **fields,
        },
    )


def test_job_table_fits_the_columns(draw: Callable[..., str]) -> None:
    jobs = [
        a_job(latest_run=a_run().raw),
        a_job(
            name="データの掃除を毎晩行うためのとても長い名前のジョブ",
            status="PAUSED",
            next_run_time=None,
        ),
        a_job(
            name="x" * 60,
            schedule_type="INTERVAL",
            interval_seconds=5400,
            next_run_time="2026-12-01T12:05:00.000Z",
            latest_run=a_run(status="TIMED_OUT").raw,
        ),
        a_job(name="once", schedule_type="FUTURE", next_run_time="2027-06-01T00:00:00.000Z"),
    ]
    assert draw(job_views.print_table, jobs).splitlines() == [
        "NAME               SCHEDULE          STATUS     NEXT                   LAST",
        "nightly            0 2 * * * Berlin  SCHEDULED  Dec 2 01:00 (in 13 h)  SUCCESS",
        "データの掃除を毎…  0 2 * * * Berlin  PAUSED     -                      -",
        "xxxxxxxxxxxxxxxx…  every 1 h 30 min  SCHEDULED  12:05 (in 5 min)       TIMED_OUT",
        "once               once              SCHEDULED  2027-06-01 01:00       -",
    ]
    statuses = ["FAILED", "SUCCESS", "MISSED", "SKIPPED", "TIMED_OUT", "CANCELLED", "SUCCESS"]
    recent = [
        {"status": status, "scheduled_time": "2026-12-01T12:00:00.000Z", "run_id": RUN}
        for status in statuses
    ]
    with_outcomes = draw(job_views.print_table, [a_job(recent=recent), a_job()]).splitlines()
    assert [line.split()[-1] for line in with_outcomes] == ["RECENT", "CT·!✓✗", "-"]
    wide = draw(job_views.print_table, [a_job(recent=recent)], columns=140)
    assert wide.split()[-1] == "✓CT·!✓✗"
    wide = draw(job_views.print_table, jobs, columns=140)
    assert wide.splitlines()[1].startswith(f"{JOB}  nightly ")


def test_job_card_shows_all_fields(draw: Callable[..., str]) -> None:
    job = a_job(
        task={"type": "http", "url": "https://a.example", "method": "POST", "follow_redirects": 0},
        max_retries=5,
        payload={"n": [1, 2]},
        latest_run=a_run(status="FAILED", end_time="2026-12-01T11:00:00.000Z").raw,
    )
    assert draw(job_views.print_card, job) == (
        "Name         nightly\n"
        f"Id           {JOB}\n"
        "Status       SCHEDULED\n"
        "Schedule     0 2 * * *\n"
        "             At 02:00, in Europe/Berlin\n"
        "Next run     2026-12-02 01:00:00 GMT (in 13 h)\n"
        f"Latest run   FAILED, 1 h ago: {RUN}\n"
        "Timezone     Europe/Berlin\n"
        "Task         type: http\n"
        "             url: https://a.example\n"
        "Payload      n:\n"
        "               - 1\n"
        "               - 2\n"
        "Max retries  5\n"
        "Created      2026-11-01 00:00:00 GMT (30 d ago) by ci\n"
        "Version      3\n"
    )


def test_run_table_shows_the_chosen_time(draw: Callable[..., str]) -> None:
    times_of_start = {
        "scheduled_time": "2026-12-01T11:57:00.000Z",
        "start_time": "2026-12-01T11:58:00.000Z",
    }
    name = "a name that is rather long"
    runs = [
        a_run(status="RUNNING", job_name=name, **times_of_start),
        a_run(job_name=name, **times_of_start, end_time="2026-12-01T11:58:01.270Z"),
        a_run(status="SKIPPED", scheduled_time="2026-11-30T00:00:00.000Z", count=1_234),
    ]
    rows = draw(run_views.print_table, runs, RunTime.SCHEDULED, True).splitlines()
    assert max(map(len, rows)) <= 82
    assert rows[0].split() == ["JOB", "RUN", "STATUS", "SCHEDULED", "TOOK"]
    assert [row.split(RUN)[1].split() for row in rows[1:]] == [
        ["RUNNING", "3", "min", "ago", "2", "min"],
        ["SUCCESS", "3", "min", "ago", "1.3", "s"],
        ["SKIPPED", "×1,234", "1", "d", "ago", "-"],
    ]
    for run_time, times in (
        (RunTime.STARTED, ["2 min ago", "2 min ago", "-"]),
        (RunTime.ENDED, ["-", "1 min ago", "-"]),
    ):
        header, *rows = draw(run_views.print_table, runs, run_time, False).splitlines()
        assert header.split() == ["RUN", "STATUS", run_time.name, "TOOK"]
        place = header.index(run_time.name)
        assert [row[place : place + 9].strip() for row in rows] == times


def test_run_card_shows_the_reason_for_a_wait(draw: Callable[..., str]) -> None:
    run = a_run(
        status="WAITING",
        reason={"code": "BACKOFF", "text": "It waits before the next attempt."},
        attempt_number=2,
        next_attempt_time="2026-12-01T12:00:30.000Z",
        error_message="first\x1b[31m line\nsecond",
        payload=None,
        trigger="RETRY",
        retried_from=JOB,
    )
    assert draw(run_views.print_card, run) == (
        f"Run           {RUN}\n"
        f"Job           {JOB} (version 1)\n"
        "Status        WAITING\n"
        "Reason        It waits before the next attempt. (BACKOFF)\n"
        f"Trigger       RETRY of {JOB}\n"
        "Next attempt  2026-12-01 12:00:30 GMT (in 30 s)\n"
        "Error         first\\x1b[31m line\n"
        "              second\n"
        "Payload       null\n"
    )
    line = run_views.state_line(Session(clock=lambda: NOW), run)
    assert line == "WAITING (BACKOFF) attempt 2 in 30 s"


@pytest.mark.parametrize(
    ("progress", "shown"),
    [
        ({"percent": 12.5, "text": "sorting\x1b[31m"}, "Progress  12.5 %, sorting\\x1b[31m"),
        ({"percent": 40, "text": None}, "Progress  40 %"),
        ({"percent": None, "text": "sorting"}, "Progress  sorting"),
        (None, None),
    ],
)
def test_run_card_shows_progress(
    draw: Callable[..., str], progress: Any, shown: str | None
) -> None:
    card = draw(run_views.print_card, a_run(status="RUNNING", progress=progress))
    lines = [line for line in card.splitlines() if line.startswith("Progress")]
    assert lines == ([] if shown is None else [shown])


def test_token_table_shows_use_and_expiry(draw: Callable[..., str]) -> None:
    def a_token(name: str, **fields: Any) -> Token:
        values = {"token_id": JOB, "tenant": "t", "name": name, "role": "operator", **fields}
        return convert_model(Token, values)

    rows = draw(
        tokens._print_tokens,
        [
            a_token("ci", last_used_at="2026-12-01T11:59:00.000Z"),
            a_token("ends", expires_at="2026-12-03T12:00:00.000Z"),
            a_token("ended", expires_at="2026-11-30T12:00:00.000Z"),
            a_token("revoked", revoked_at="2026-12-01T11:00:00.000Z"),
        ],
    ).splitlines()
    assert max(map(len, rows)) <= 80
    assert [row.split("operator")[1].split() for row in rows[1:]] == [
        ["1", "min", "ago", "valid"],
        ["never", "ends", "in", "2", "d"],
        ["never", "expired"],
        ["never", "revoked"],
    ]


def test_audit_table_shows_changed_fields(draw: Callable[..., str]) -> None:
    def an_entry(action: str, **fields: Any) -> AuditEntry:
        values = {
            "audit_id": RUN,
            "at": "2026-12-01T11:00:00.000Z",
            "caller": "ci",
            "action": action,
        }
        return convert_model(AuditEntry, {**values, **fields})

    assert draw(
        audit._print_entries,
        [
            an_entry("job.create", job_id=JOB, after={"name": "nightly"}),
            an_entry("job.update", job_id=JOB, before={"a": 1, "b": 2}, after={"a": 2, "b": 2}),
            an_entry("run.order", job_id=JOB, run_id=RUN, count=3),
        ],
    ).splitlines() == [
        "WHEN             CALLER  ACTION      WHAT",
        "11:00 (1 h ago)  ci      job.create  nightly",
        f"11:00 (1 h ago)  ci      job.update  a ({JOB})",
        f"11:00 (1 h ago)  ci      run.order   {RUN} ×3",
    ]


def test_sparkline_scales_to_the_highest_value() -> None:
    assert service.sparkline([0, 1, 50, 100]) == " ▁▄█"
    assert service.sparkline([]) == ""


@pytest.mark.parametrize(
    ("difference", "lines"),
    [
        (Difference("max_retries", 3, 5), ["    max_retries: 3 → 5"]),
        (Difference("tags.a", ABSENT, "x"), ["    tags.a: (none) → x"]),
        (Difference("payload", None, " x"), ['    payload: (default) → " x"']),
        (
            Difference("task.headers.Authorization", "Bearer 1", "Bearer 2"),
            ["    task.headers.Authorization: (hidden) → (hidden)"],
        ),
        (
            Difference("task.headers.X-Token", "plain", "{{secret:t}}"),
            ["    task.headers.X-Token: (hidden) → {{secret:t}}"],
        ),
        (Difference("notify", [], [{"token": "x"}]), ['    notify: [] → [{"token":"(hidden)"}]']),
        (
            Difference("task.code", "a\nb\n", "a\nc\n"),
            ["    task.code:", "      @@ -1,2 +1,2 @@", "       a", "      -b", "      +c"],
        ),
        (
            Difference("task.url", "https://" + "a" * 80, "https://b"),
            ["    task.url:", f"      - https://{'a' * 51}…", "      + https://b"],
        ),
    ],
)
def test_difference_is_shown_in_lines_without_secrets(
    difference: Difference, lines: list[str]
) -> None:
    assert [line.text for line in _difference_lines(difference)] == lines


def test_screen_uses_the_clock_of_the_session() -> None:
    session = Session(clock=lambda: NOW + timedelta(hours=1))
    assert session.screen.relative_time(NOW) == "1 h ago"


def test_versions_show_author_and_changed_fields(draw: Callable[..., str]) -> None:
    at = "2026-12-01T11:00:00.000Z"
    rows = [
        {"version": 3, "at": at, "by": "ci", "changed": ["name", "tags"], "job": {}},
        {"version": 1, "at": at, "by": "ada", "changed": [], "job": {}},
    ]
    versions = [convert_model(JobVersion, row) for row in rows]
    lines = draw(job_views.print_versions, versions).splitlines()
    assert lines[0].split() == ["VERSION", "AT", "BY", "CHANGED"]
    assert lines[1].split()[-3:] == ["ci", "name,", "tags"]
    assert lines[2].split()[-2:] == ["ada", "created"]
