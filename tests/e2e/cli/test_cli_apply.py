"""Jobs declared in files: created, changed, unchanged and cancelled."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from punctual.client import Punctual
from punctual_cli.apply.fields import declared_fields, find_differences, whole
from tests.e2e.cli.program import Program

FILE = """\
set: billing
defaults:
  timezone: Europe/Berlin
  tags: {team: money}
jobs:
  - name: payouts
    schedule_type: CRON
    cron_expression: 0 9 L * *
    task:
      type: http
      url: https://bank.example/payouts
      headers: {X-Api-Key: written-out, X-Other: "1"}
    payload: {a: [1, 2.5, null, "yes"]}
    max_retries: 5
  - name: report
    schedule_type: CRON
    cron_expression: 0 6 * * mon-fri
    task:
      type: script
      runtime: bash
      code: |
        echo one
        echo two
"""


@pytest.fixture
def file(program: Program) -> Path:
    path = program.home / "jobs.yaml"
    path.write_text(FILE)
    return path


def alive(client: Punctual) -> dict[str, str]:
    jobs = client.jobs.list(status=("SCHEDULED", "PAUSED"))
    return {job.name: job.job_id for job in jobs}


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule_type": "INTERVAL", "interval_seconds": 60},
        {"schedule_type": "CRON", "cron_expression": "0 1 * * *"},
        {"schedule_type": "CRON", "cron_expression": "cron(0 1 * * ? *)"},
        {"schedule_type": "FUTURE", "schedule_time": "2037-06-01T12:00:00+02:00"},
        {
            "schedule_type": "INTERVAL",
            "interval_seconds": 60,
            "delivery": "AT_MOST_ONCE",
            "output": "discard",
            "task": {"type": "http", "url": "https://a.example"},
            "retry": {"multiplier": 3},
            "end_time": "2037-06-01T00:00:00.1234Z",
        },
    ],
)
def test_declared_defaults_equal_those_of_the_server(
    client: Punctual, program: Program, fields: Any
) -> None:
    created = client.jobs.create(name="x", **fields).raw
    assert find_differences(whole(created), whole({"name": "x", **fields})) == []
    declared = declared_fields(created)
    assert find_differences(whole(declared), whole(created)) == []
    assert set(declared) == {"name", *fields}


def test_apply_shows_the_diff_and_a_second_apply_changes_nothing(
    program: Program, file: Path, client: Punctual
) -> None:
    first = program("apply", "-f", "jobs.yaml", "--yes").out
    assert first.splitlines() == [
        "+ create payouts (set billing)",
        "    schedule_type: CRON",
        "    cron_expression: 0 9 L * *",
        "    timezone: Europe/Berlin",
        "    task.type: http",
        "    task.url: https://bank.example/payouts",
        "    task.headers.X-Api-Key: (hidden)",
        "    task.headers.X-Other: 1",
        '    payload.a: [1,2.5,null,"yes"]',
        "    max_retries: 5",
        "    tags.team: money",
        "+ create report (set billing)",
        "    schedule_type: CRON",
        "    cron_expression: 0 6 * * mon-fri",
        "    timezone: Europe/Berlin",
        "    task.type: script",
        "    task.runtime: bash",
        "    task.code:",
        "      echo one",
        "      echo two",
        "    tags.team: money",
        "",
        "2 to create, 0 to change, 0 to cancel; 0 unchanged.",
        "2 created, 0 changed, 0 cancelled; 0 unchanged.",
    ]
    before = {job.job_id: job.version for job in client.jobs.list(status="SCHEDULED")}
    repeated = program("apply", "-f", "jobs.yaml", "--yes").out
    assert repeated == "0 to create, 0 to change, 0 to cancel; 2 unchanged.\n"
    assert {job.job_id: job.version for job in client.jobs.list(status="SCHEDULED")} == before


def test_apply_shows_and_sends_only_changed_fields(
    program: Program, file: Path, client: Punctual
) -> None:
    program("apply", "-f", "jobs.yaml", "--yes")
    ids = alive(client)
    file.write_text(
        FILE.replace("written-out", "another")
        .replace("    max_retries: 5\n", "")
        .replace("echo two", "echo 2\n        echo three")
        .replace('"yes"', "true")
    )
    dry = program("apply", "-f", "jobs.yaml", "--dry-run").out
    assert dry.splitlines() == [
        "~ change payouts (set billing)",
        "    task.headers.X-Api-Key: (hidden) → (hidden)",
        '    payload.a: [1,2.5,null,"yes"] → [1,2.5,null,true]',
        "    max_retries: 5 → 3",
        "~ change report (set billing)",
        "    task.code:",
        "      @@ -1,2 +1,3 @@",
        "       echo one",
        "      -echo two",
        "      +echo 2",
        "      +echo three",
        "",
        "0 to create, 2 to change, 0 to cancel; 0 unchanged.",
    ]
    program("apply", "-f", "jobs.yaml", "--check", code=1)
    assert client.jobs.get(ids["payouts"]).max_retries == 5
    plan = program.json("apply", "-f", "jobs.yaml", "--yes")
    assert [(entry["name"], entry["fields"]) for entry in plan["change"]] == [
        ("payouts", ["max_retries", "payload", "task"]),
        ("report", ["task"]),
    ]
    assert client.jobs.get(ids["payouts"]).max_retries == 3
    assert alive(client) == ids
    program("apply", "-f", "jobs.yaml", "--check")


def test_prune_cancels_only_jobs_missing_from_the_set(
    program: Program, file: Path, client: Punctual
) -> None:
    program("jobs", "create", "by-hand", "--every", "1h")
    program("apply", "-f", "jobs.yaml", "--yes")
    (program.home / "other.yaml").write_text(
        "set: other\njobs:\n  - {name: other, schedule_type: INTERVAL, interval_seconds: 60}\n"
    )
    program("apply", "-f", "other.yaml", "--yes")
    assert sorted(job.name for job in client.jobs.list(status="SCHEDULED")) == [
        *("by-hand", "other", "payouts", "report")
    ]
    file.write_text(FILE[: FILE.index("  - name: report")])
    output = program("apply", "-f", "jobs.yaml", "--yes").out
    assert "  keep   report (set billing): not in the file; --prune cancels it" in output
    pruned = program("apply", "-f", "jobs.yaml", "--prune", "--yes").out
    assert pruned.startswith("- cancel report (set billing)\n")
    assert pruned.endswith("0 created, 0 changed, 1 cancelled; 1 unchanged.\n")
    remaining = list(client.jobs.list(status="SCHEDULED"))
    assert sorted(job.name for job in remaining) == ["by-hand", "other", "payouts"]
    assert {job.tags.get("punctual-set") for job in remaining} == {None, "billing", "other"}


def test_prune_without_a_set_cancels_nothing(program: Program, client: Punctual) -> None:
    program("jobs", "create", "by-hand", "--every", "1h")
    text = "jobs:\n  - {name: x, schedule_type: INTERVAL, interval_seconds: 60}\n"
    error = program("apply", "-f", "-", "--prune", "--yes", code=2, stdin=text).err
    assert "--prune requires a set" in error
    assert set(alive(client)) == {"by-hand"}


def test_every_error_is_reported_with_its_line_and_nothing_is_changed(
    program: Program, client: Punctual
) -> None:
    (program.home / "bad.yaml").write_text(
        "set: s\n"
        "defaults: {max_retries: -1}\n"
        "jobs:\n"
        "  - name: a\n"
        "    schedule_type: CRON\n"
        "    cron_expression: 0 99 * * *\n"
        "    max_retries: 1\n"
        "  - name: a\n"
        "    schedule_type: INTERVAL\n"
        "    retry:\n"
        "      multiplier: 0.5\n"
        "  - name: fine\n"
        "    schedule_type: INTERVAL\n"
        "    interval_seconds: 60\n"
        "    max_retries: 0\n"
        "    paused: maybe\n"
    )
    result = program("apply", "-f", "bad.yaml", "--yes", code=4)
    assert result.out == ""
    assert result.err.splitlines() == [
        "Error: 6 errors in bad.yaml. Nothing was changed.",
        "  bad.yaml:2: a: max_retries: must be at least 0",
        "  bad.yaml:6: a: cron_expression: 99 is out of range in the hour field: it takes 0 to 23",
        "  bad.yaml:8: a is declared twice, first on line 4",
        "  bad.yaml:8: a: interval_seconds: is required when schedule_type is INTERVAL",
        "  bad.yaml:11: a: retry.multiplier: must be at least 1",
        "  bad.yaml:16: paused must be true or false",
    ]
    assert alive(client) == {}
    errors = program("apply", "-f", "bad.yaml", "--yes", "--json", code=4).error["errors"]
    assert errors[0] == {"field": "bad.yaml:2", "message": "a: max_retries: must be at least 0"}


def test_invalid_yaml_error_names_the_line(program: Program) -> None:
    error = program("apply", "-f", "-", code=2, stdin="jobs:\n  - name: [\n").err
    assert "standard input:3: this is not valid YAML" in error
    assert program("apply", "-f", "none.yaml", code=2).err == (
        "Error: none.yaml: No such file or directory.\n"
    )


def test_server_refusal_names_the_line_and_other_jobs_are_applied(
    program: Program, client: Punctual
) -> None:
    text = (
        "jobs:\n"
        "  - {name: good, schedule_type: INTERVAL, interval_seconds: 60}\n"
        "  - name: refused\n"
        "    schedule_type: INTERVAL\n"
        "    interval_seconds: 60\n"
        "    task: {type: script, runtime: bash, artifact_id: abc}\n"
    )
    error = program("apply", "-f", "-", "--yes", code=4, stdin=text).err
    assert "Error: 1 of 2 steps failed. The others are done." in error
    assert "standard input:6: refused: task.artifact_id: names no artifact" in error
    assert set(alive(client)) == {"good"}


def test_job_without_a_set_joins_the_set_that_names_it(
    program: Program, file: Path, client: Punctual
) -> None:
    program("jobs", "create", "payouts", "--cron", "0 9 L * *")
    ids = alive(client)
    output = program("apply", "-f", "jobs.yaml", "--yes").out
    assert "    the job had no set, and joins this one" in output
    assert alive(client)["payouts"] == ids["payouts"]
    assert client.jobs.get(ids["payouts"]).tags == {"punctual-set": "billing", "team": "money"}


def test_export_applied_again_changes_nothing(
    program: Program, file: Path, client: Punctual
) -> None:
    program("apply", "-f", "jobs.yaml", "--yes")
    program(*("jobs", "create", "by-hand", "--every", "1h", "--payload", '{"on": "2026-12-24"}'))
    program(*("jobs", "create", "twin", "--cron", "rate(5 minutes)", "--priority", "low"))
    program(*("jobs", "create", "twin", "--at", "2037-06-01", "--set", "delivery=AT_MOST_ONCE"))
    program("jobs", "pause", "by-hand")
    text = program("export").out
    (program.home / "all.yaml").write_text(text)
    output = program("apply", "-f", "all.yaml", "--check", "--prune").out
    assert output == "0 to create, 0 to change, 0 to cancel; 5 unchanged.\n"
    assert text.count("job_id: ") == 2
    assert "paused: true" in text
    assert program("apply", "-f", "-", "--check", stdin=text).out == output
    assert "set: billing" in program("export", "--set", "billing").out
    assert "by-hand" not in program("export", "--set", "billing").out


def test_export_recreates_the_same_jobs(program: Program, file: Path, client: Punctual) -> None:
    program("apply", "-f", "jobs.yaml", "--yes")
    program("jobs", "pause", "report")
    text = program("export").out
    for job_id in alive(client).values():
        client.jobs.cancel(job_id)
    program("apply", "-f", "-", "--yes", stdin=text)
    assert program("export").out == text
    assert client.jobs.get(alive(client)["report"]).status == "PAUSED"


def test_paused_is_applied_only_if_declared(program: Program, file: Path, client: Punctual) -> None:
    program("apply", "-f", "jobs.yaml", "--yes")
    program("jobs", "pause", "report")
    program("apply", "-f", "jobs.yaml", "--check")
    file.write_text(FILE + "    paused: false\n")
    output = program("apply", "-f", "jobs.yaml", "--yes").out
    assert "    paused: true → false" in output
    assert client.jobs.get(alive(client)["report"]).status == "SCHEDULED"


def test_concurrent_applies_create_each_job_once(
    program: Program, file: Path, client: Punctual
) -> None:
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: program("apply", "-f", "jobs.yaml", "--yes"), range(3)))
    assert len(done) == 3
    assert len(list(client.jobs.list(status="SCHEDULED"))) == 2


def test_cancelled_job_is_created_again(program: Program, file: Path, client: Punctual) -> None:
    program("apply", "-f", "jobs.yaml", "--yes")
    before = alive(client)
    program("jobs", "cancel", "report")
    assert program("apply", "-f", "jobs.yaml", "--yes").out.endswith(
        "1 created, 0 changed, 0 cancelled; 1 unchanged.\n"
    )
    assert alive(client)["report"] != before["report"]


def test_apply_without_a_terminal_requires_yes(
    program: Program, file: Path, client: Punctual
) -> None:
    result = program("apply", "-f", "jobs.yaml", code=2)
    assert "2 to create" in result.out
    assert result.err.splitlines() == [
        "Error: Nothing was changed. The confirmation needs a terminal.",
        "Confirm with --yes.",
    ]
    assert alive(client) == {}


ONE_JOB = "set: {set}\njobs:\n  - {{name: {name}, schedule_type: INTERVAL, interval_seconds: 60}}\n"


def write_job(path: Path, name: str, set_name: str = "s") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(ONE_JOB.format(set=set_name, name=name))


def test_apply_reads_every_named_file(program: Program, client: Punctual) -> None:
    write_job(program.home / "a.yaml", "a")
    write_job(program.home / "b.yaml", "b")
    output = program("apply", "-f", "a.yaml", "-f", "b.yaml", "--yes").out
    assert output.endswith("2 created, 0 changed, 0 cancelled; 0 unchanged.\n")
    assert set(alive(client)) == {"a", "b"}


def test_apply_reads_a_folder_and_its_subfolders_without_hidden_files(
    program: Program, client: Punctual
) -> None:
    write_job(program.home / "jobs" / "a.yml", "a")
    write_job(program.home / "jobs" / "deep" / "b.yaml", "b")
    write_job(program.home / "jobs" / ".git" / "c.yaml", "hidden")
    (program.home / "jobs" / "notes.txt").write_text("not a job")
    (program.home / "jobs" / "d.json").write_text(
        '{"jobs": [{"name": "d", "schedule_type": "INTERVAL", "interval_seconds": 60}]}'
    )
    # A file that is named in addition to its folder is read once.
    output = program("apply", "-f", "jobs", "-f", "jobs/a.yml", "--yes").out
    assert output.endswith("3 created, 0 changed, 0 cancelled; 0 unchanged.\n")
    assert set(alive(client)) == {"a", "b", "d"}


def test_apply_of_a_folder_without_jobs_fails(program: Program) -> None:
    (program.home / "empty").mkdir()
    error = program("apply", "-f", "empty", code=2).err
    assert error.splitlines() == [
        "Error: empty has no file with the suffix .json, .yaml, .yml.",
        "Name a file, or a folder with job files.",
    ]


def test_prune_keeps_jobs_of_all_files(program: Program, client: Punctual) -> None:
    for name in ("a", "b", "gone"):
        write_job(program.home / "jobs" / f"{name}.yaml", name)
    program("apply", "-f", "jobs", "--yes")
    (program.home / "jobs" / "gone.yaml").unlink()
    program("apply", "-f", "jobs", "--prune", "--yes")
    assert set(alive(client)) == {"a", "b"}


def test_errors_of_several_files_are_named_and_nothing_is_changed(
    program: Program, client: Punctual
) -> None:
    write_job(program.home / "a.yaml", "a")
    write_job(program.home / "b.yaml", "a")
    (program.home / "c.yaml").write_text("jobs:\n  - {name: c, schedule_type: INTERVAL}\n")
    error = program("apply", "-f", "a.yaml", "-f", "b.yaml", "-f", "c.yaml", "--yes", code=4).err
    assert error.splitlines() == [
        "Error: 2 errors in 2 files. Nothing was changed.",
        "  b.yaml:3: a is declared twice, first on a.yaml:3",
        "  c.yaml:2: c: interval_seconds: is required when schedule_type is INTERVAL",
    ]
    assert alive(client) == {}


def test_long_yaml_is_refused_before_it_is_parsed(program: Program) -> None:
    (program.home / "long.yaml").write_text("jobs: [" + "\n" * 2_000_000)
    error = program("apply", "-f", "long.yaml", code=2).err
    assert "long.yaml:1: the YAML has 2,000,007 bytes; the limit is 2,000,000" in error
