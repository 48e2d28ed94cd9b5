"""The commands forecast and diff: their text, their plot in a terminal, and their errors."""

import re

import pytest

from tests.e2e.cli.program import Program

BERLIN = ("--tz", "Europe/Berlin", "--bash", "true")
JOBS = """jobs:
  - {name: nightly, schedule_type: CRON, cron_expression: 0 3 * * *, timezone: Europe/Berlin,
     task: {type: script, runtime: bash, code: 'true'}}
  - {name: fresh, schedule_type: INTERVAL, interval_seconds: 60}
"""


def create(program: Program, name: str, *args: str) -> None:
    program("jobs", "create", name, *args)


def test_forecast_is_a_table_where_output_is_no_terminal(program: Program) -> None:
    create(program, "often", "--every", "10m", "--bash", "true")
    lines = program("forecast", "--hours", "3").out.splitlines()
    assert re.fullmatch(r"1[78] starts of 1 job within 3 h", lines[0])
    assert lines[1].startswith("Busiest minute: ")
    assert lines[3].split() == ["FROM", "STARTS"]
    assert sum(int(line.split()[-1]) for line in lines[4:]) in (17, 18)
    assert len(lines[4:]) <= 29
    assert program.json("forecast", "--hours", "3")["step_seconds"] == 60


def test_forecast_in_a_terminal_is_a_plot(program: Program) -> None:
    create(program, "often", "--every", "10m", "--bash", "true")
    with program.terminal("forecast", "--hours", "168") as terminal:
        assert terminal.ends() == 0
    rows = [line for line in terminal.shown.splitlines() if "█" in line]
    assert 28 <= len(rows) <= 29
    assert max(map(len, rows)) <= 80
    assert "\x1b[36m█" in terminal.raw
    with program.with_env(LANG="C", PYTHONIOENCODING="ascii").terminal("forecast") as terminal:
        assert terminal.ends() == 0
    assert "####" in terminal.shown


def test_forecast_says_what_it_assumes(program: Program) -> None:
    assert program("forecast").out == "Nothing starts within 24 h.\n"
    create(program, "after", "--every", "1h", "--bash", "true", "--set", "interval_from=COMPLETED")
    result = program("forecast")
    assert "1 job with an interval from completion" in result.err


def test_diff_of_a_job_shows_moved_times(program: Program) -> None:
    create(program, "nightly", "--cron", "0 2 * * *", *BERLIN)
    lines = program("diff", "nightly", "--cron", "0 3 * * *", "--days", "10").out.splitlines()
    assert lines[0].startswith("nightly: ")
    moves = [line for line in lines if line.endswith("02:00 → 03:00")]
    assert len(moves) == 8
    assert any(line.startswith("~ and ") for line in lines)
    answer = program.json("diff", "nightly", "--cron", "0 2 * * *")
    assert answer["moved"]["count"] == 0
    assert answer["unchanged"]["count"] in (30, 31)


def test_diff_of_another_kind_of_schedule_adds_and_removes(program: Program) -> None:
    create(program, "nightly", "--cron", "0 2 * * *", *BERLIN)
    out = program("diff", "nightly", "--every", "90m", "--days", "2").out
    assert "added" in out
    assert "- " in out


def test_diff_of_two_expressions_needs_no_job(program: Program) -> None:
    out = program("diff", "0 2 * * *", "*/30 2 * * *", "--tz", "Europe/Berlin").out
    assert re.search(r"(30|31) added, (30|31) unchanged until", out)


def test_diff_of_files_shows_changed_and_new_schedules(program: Program) -> None:
    create(program, "nightly", "--cron", "0 2 * * *", *BERLIN)
    (program.home / "jobs.yaml").write_text(JOBS)
    out = program("diff", "-f", "jobs.yaml").out
    assert out.startswith("nightly: ")
    assert "02:00 → 03:00" in out
    assert out.endswith("+ fresh is new\n")
    answer = program.json("diff", "-f", "jobs.yaml")
    assert ([job["name"] for job in answer["changed"]], answer["created"]) == (
        ["nightly"],
        ["fresh"],
    )
    assert [job["name"] for job in program.json("jobs", "list", "--status", "SCHEDULED")] == [
        "nightly"
    ]
    program("apply", "-f", "jobs.yaml", "--yes")
    assert program("diff", "-f", "jobs.yaml").out == "No schedule changes.\n"


def test_occurrences_of_a_job_are_outcomes_and_planned_times(program: Program) -> None:
    create(program, "hourly", "--every", "1h", "--bash", "true")
    program("jobs", "run", "hourly", "--wait")
    lines = program("jobs", "occurrences", "hourly", "--to", "+150m").out.splitlines()
    assert lines[0].split() == ["SCHEDULED", "STATUS", "RUN", "WHY"]
    statuses = ["SUCCESS", "PLANNED", "PLANNED"]
    assert [
        next(word for word in line.split() if word in statuses) for line in lines[1:]
    ] == statuses
    items = program.json("jobs", "occurrences", "hourly", "--from", "+1m", "--to", "+150m")
    assert [(item["status"], item["count"], item["run"]) for item in items] == [
        ("PLANNED", 1, None)
    ] * 2
    out = program("jobs", "occurrences", "hourly", "--from", "-9d", "--to", "-8d").out
    assert out == "Nothing happened and nothing is planned in this range.\n"


@pytest.mark.parametrize(
    ("args", "code", "expected"),
    [
        (("diff",), 2, "What to compare is missing."),
        (("diff", "nightly"), 2, "The new schedule is missing."),
        (("diff", "a", "-f", "x"), 2, "cannot be combined"),
        (("diff", "0 2 * * *", "0 3 * * *", "--every", "5m"), 2, "take only --tz"),
        (("diff", "0 2 * * *", "99 3 * * *"), 4, "99 is out of range"),
        (("diff", "nightly", "--set", "priority=HIGH"), 2, "not a field of a schedule"),
        (("diff", "unknown", "--every", "5m"), 3, "There is no job"),
        (("forecast", "--hours", "169"), 2, "less than or equal to 168"),
    ],
)
def test_wrong_comparison_is_refused(
    program: Program, args: tuple[str, ...], code: int, expected: str
) -> None:
    create(program, "nightly", "--cron", "0 2 * * *", *BERLIN)
    assert expected in program(*args, code=code).err
