"""Job commands, from creation to cancellation."""

import json

from tests.e2e.cli.program import Program, normalized

NIGHTLY = ("jobs", "create", "nightly", "--cron", "0 2 * * *", "--tz", "Europe/Berlin")
ALIVE = ("--status", "scheduled", "--status", "paused")


def test_create_shows_only_fields_that_differ_from_defaults(program: Program) -> None:
    output = program(*NIGHTLY, "--bash", "echo hi", "--tag", "team=data", "--retries", "1").out
    shown_lines = normalized(output).splitlines()
    assert shown_lines[:6] == [
        "Created nightly.",
        "Name         nightly",
        "Id           <id>",
        "Status       SCHEDULED",
        "Schedule     0 2 * * *",
        "             At <time>, in Europe/Berlin",
    ]
    assert shown_lines[7:15] == [
        "Timezone     Europe/Berlin",
        "Task         type: script",
        "             runtime: bash",
        "             code: echo hi",
        "Max retries  1",
        "Tags         team: data",
        "Created      <day> <time> CET (<ago>) by local",
        "Version      1",
    ]


def test_json_output_equals_the_api_response(program: Program) -> None:
    created = program.json(*NIGHTLY, "--payload", '{"n": [1, "é"]}', "--set", "retry.multiplier=3")
    assert created["cron_expression"] == "0 2 * * *"
    assert created["payload"] == {"n": [1, "é"]}
    assert created["retry"]["multiplier"] == 3
    shown_job = program.json("jobs", "show", "nightly")
    assert {k: v for k, v in shown_job.items() if k != "next_run_time"}.keys() >= created.keys() - {
        "next_run_time"
    }
    assert shown_job["job_id"] == created["job_id"]


def test_options_override_a_job_file(program: Program) -> None:
    text = "name: of-a-file\nschedule_type: CRON\ncron_expression: 0 1 * * *\nmax_retries: 1\n"
    (program.home / "job.yaml").write_text(text)
    created = program.json("jobs", "create", "-f", "job.yaml", "--retries", "7")
    assert (created["name"], created["max_retries"]) == ("of-a-file", 7)
    by_pipe = program.json(
        "jobs",
        "create",
        "other",
        "-f",
        "-",
        stdin=json.dumps({"schedule_type": "INTERVAL", "interval_seconds": 60}),
    )
    assert (by_pipe["name"], by_pipe["interval_seconds"]) == ("other", 60)


def test_script_file_is_sent_completely(program: Program) -> None:
    (program.home / "work.py").write_text("print('from a file')\n")
    created = program.json("jobs", "create", "script", "--every", "1h", "--script", "work.py")
    assert created["task"] == {
        "type": "script",
        "runtime": "python",
        "code": "print('from a file')\n",
    }


def test_program_of_the_node_is_sent_with_its_command_line(program: Program) -> None:
    options = ("--interpreter", "/srv/venv/bin/python3", "--working-directory", "/srv")
    create = ("jobs", "create", "report", *options, "--arg", "-m", "--arg", "mypackage")
    refused = program(*create, code=4)
    assert "task.interpreter: must lie in a path that PUNCTUAL_SCRIPT_PATHS opens" in refused.err
    assert "task.working_directory: must lie in a path that" in refused.err
    assert "task.args" not in refused.err
    assert "task.runtime" not in refused.err


def test_each_job_of_a_file_is_accepted_or_refused(program: Program) -> None:
    jobs = [
        {"name": f"many-{n}", "schedule_type": "CRON", "cron_expression": f"{n} 99 * * *"}
        if n == 3
        else {"name": f"many-{n}", "schedule_type": "CRON", "cron_expression": f"{n} 9 * * *"}
        for n in range(5)
    ]
    (program.home / "jobs.json").write_text(json.dumps(jobs))
    result = program("jobs", "create", "-f", "jobs.json", code=4)
    assert result.out == "4 of 5 jobs created.\n"
    assert "many-3: cron_expression: 99 is out of range in the hour field" in result.err
    for number in (0, 1, 2, 4):
        program("jobs", "cancel", f"many-{number}")
    results = program("jobs", "create", "-f", "jobs.json", "--json", code=4)
    assert ["job_id" in entry for entry in results.json] == [True, True, True, False, True]
    assert results.error["exit_code"] == 4


def test_job_list_fits_80_columns(program: Program) -> None:
    program(*NIGHTLY)
    long = "a job with a name that is much too long for a table of eighty columns"
    program("jobs", "create", long, "--every", "5m")
    program("jobs", "pause", long)
    output = program("jobs", "list", *ALIVE).out
    assert max(map(len, output.splitlines())) <= 80
    head, first, second = normalized(output).splitlines()
    assert head.split() == ["NAME", "SCHEDULE", "STATUS", "NEXT", "LAST"]
    assert first.split("  ")[0].endswith("…")
    assert "PAUSED" in first
    assert second.startswith("nightly")
    assert "0 2 * * * Berlin" in second


def test_pause_shows_when_the_job_resumes_and_why(program: Program) -> None:
    program(*NIGHTLY)
    options = ("--until", "+90m", "--note", "the warehouse moves")
    paused = program("jobs", "pause", "nightly", *options)
    assert normalized(paused.out) == "PAUSED  nightly; resumes <day> <time> CET (in <ago>)\n"
    lines = normalized(program("jobs", "show", "nightly").out).splitlines()
    (at,) = (index for index, line in enumerate(lines) if line.startswith("Paused  "))
    assert lines[at].endswith(" by local")
    assert [line.strip() for line in lines[at + 1 : at + 3]] == [
        "the warehouse moves",
        "until <day> <time> CET (in <ago>)",
    ]
    refused = program("jobs", "pause", "nightly", "--until", "yesterday", code=4)
    assert "until: must lie in the future" in refused.err


def test_pipe_receives_full_names(program: Program) -> None:
    long = "a job with a name that is much too long for a table of eighty columns"
    program("jobs", "create", long, "--every", "5m")
    assert long in program.with_env(COLUMNS=None)("jobs", "list", *ALIVE).out


def test_list_filters_and_prints_ids_only(program: Program) -> None:
    a = program.json(*NIGHTLY, "--tag", "team=a")["job_id"]
    b = program.json("jobs", "create", "other", "--every", "60", "--tag", "team=b")["job_id"]
    assert program("jobs", "list", "-q", *ALIVE).out.split() == [b, a]
    assert program("jobs", "list", "-q", *ALIVE, "--tag", "team=a").out.split() == [a]
    assert program("jobs", "list", "-q", *ALIVE, "--type", "interval").out.split() == [b]
    assert program.json("jobs", "list", "--name-prefix", "nig", "-q", *ALIVE) == [a]
    result = program("jobs", "list", "-q", *ALIVE, "-n", "1")
    assert result.out.split() == [b]
    assert "Use --limit 0 to list all" in result.err


def test_update_changes_nested_fields_and_keeps_the_rest(program: Program) -> None:
    program(*NIGHTLY, "--http", "https://a.example/x", "--header", "X-A: 1", "--tag", "team=a")
    changed = program.json(
        "jobs", "update", "nightly", "--set", "task.url=https://b.example/y", "--tag", "env=prod"
    )
    assert changed["task"]["url"] == "https://b.example/y"
    assert changed["task"]["headers"] == {"X-A": "1"}
    assert changed["tags"] == {"team": "a", "env": "prod"}
    assert changed["cron_expression"] == "0 2 * * *"


def test_unset_restores_a_default(program: Program) -> None:
    program(*NIGHTLY, "--retries", "9")
    assert program.json("jobs", "update", "nightly", "--unset", "max_retries")["max_retries"] == 3
    assert program("jobs", "update", "nightly", code=2).err.startswith("Error: Nothing to change")


def test_update_of_an_older_version_is_refused(program: Program) -> None:
    version = program.json(*NIGHTLY)["version"]
    program("jobs", "update", "nightly", "--retries", "1", "--if-version", str(version))
    result = program(
        "jobs", "update", "nightly", "--retries", "2", "--if-version", str(version), code=4
    )
    assert "Another client changed the job" in result.err


def test_pause_resume_and_cancel_print_the_status(program: Program) -> None:
    program(*NIGHTLY)
    assert program("jobs", "pause", "nightly").out == "PAUSED  nightly\n"
    resumed = program("jobs", "resume", "nightly", "--missed", "skip").out
    assert normalized(resumed).startswith("SCHEDULED  nightly; next run <day> <time> CET (in")
    assert program("jobs", "cancel", "nightly").out == "CANCELLED  nightly\n"
    assert program("jobs", "resume", "nightly", code=4).err.startswith(
        "Error: The job is CANCELLED"
    )


def test_ambiguous_name_asks_for_an_id(program: Program) -> None:
    once = ("jobs", "create", "nightly", "--at", "2037-06-01 02:00")
    ids = {program.json(*once)["job_id"] for _ in range(2)}
    error = program("jobs", "show", "nightly", code=4).err
    assert "2 jobs are named 'nightly'. Use an id:" in error
    assert all(job_id in error for job_id in ids)
    cancelled_id = min(ids)
    program("jobs", "cancel", cancelled_id)
    assert program.json("jobs", "show", "nightly")["job_id"] == (ids - {cancelled_id}).pop()


def test_explain_shows_the_outcome(program: Program) -> None:
    program(*NIGHTLY)
    output = program("jobs", "explain", "nightly", "--at", "2037-06-01 02:00").out
    assert "Outcome  PLANNED" in output
    assert program.json("jobs", "explain", "nightly", "--at", "2037-06-01")["outcome"] == (
        "NOT_SCHEDULED"
    )


def test_explain_uses_the_time_zone_of_the_job(program: Program) -> None:
    at = ("--cron", "0 9 * * *", "--tz", "Asia/Kolkata")  # the time zone of the program is Berlin
    program("jobs", "create", "morning", *at)
    output = program("jobs", "explain", "morning", "--at", "2037-06-01 09:00").out
    assert "At       2037-06-01 09:00:00 IST" in output
    assert "Outcome  PLANNED" in output
    gap = ("--cron", "30 2 * * *", "--tz", "America/New_York")
    program("jobs", "create", "in-the-gap", *gap)
    skipped = program.json("jobs", "explain", "in-the-gap", "--at", "2037-03-08 02:30")
    assert (skipped["outcome"], skipped["at"]) == ("PLANNED", "2037-03-08T07:00:00.000Z")


def test_explain_without_a_time_uses_the_last_due_occurrence(program: Program) -> None:
    program("jobs", "create", "each-second", "--every", "1s", "--bash", "true")
    first = program.json("jobs", "explain", "each-second")
    assert first["occurrence"] is not None
    program("jobs", "create", "at-once", "--bash", "true")
    program("runs", "watch", "at-once")
    explanation = program.json("jobs", "explain", "at-once")
    assert explanation["outcome"] == "SUCCESS"
    assert program.json("runs", "show", "at-once", explanation["run_id"])["status"] == "SUCCESS"
    program("jobs", "cancel", "each-second")


def test_backfill_shows_the_times_before_it_starts_runs(program: Program) -> None:
    program(
        *("jobs", "create", "hourly", "--cron", "0 * * * *", "--bash", "true"),
        *("--set", "start_time=2026-01-01T00:00:00Z"),
    )
    range_ = ("--from", "-5h", "--to", "-1h")
    dry = program.json("jobs", "backfill", "hourly", *range_, "--dry-run")
    assert (dry["runs"], dry["dry_run"], len(dry["times"])) == (4, True, 4)
    refused = program("jobs", "backfill", "hourly", *range_, code=2)
    assert "4 runs to start:" in refused.out
    assert "--yes" in refused.err
    assert program("jobs", "backfill", "hourly", *range_, "--yes").out.endswith("4 runs started.\n")
    repeated = program("jobs", "backfill", "hourly", *range_, "--yes").out
    assert repeated.startswith("The range has no missed occurrence.")


def test_notify_options_set_webhooks(program: Program) -> None:
    hook = "https://hooks.example/?a=b"
    created = program.json(
        *NIGHTLY, "--notify", f"failed,TIMED_OUT={hook}", "--notify", f"SUCCESS={hook}"
    )
    expected = [{"on": ["FAILED", "TIMED_OUT"], "url": hook}, {"on": ["SUCCESS"], "url": hook}]
    assert created["notify"] == expected
    changed = program.json("jobs", "update", "nightly", "--notify", f"MISSED={hook}")
    assert changed["notify"] == [{"on": ["MISSED"], "url": hook}]
    assert program.json("jobs", "update", "nightly", "--unset", "notify")["notify"] == []
    assert (
        "--notify must be STATUS=URL"
        in program("jobs", "create", "x", "--notify", hook[:8], code=2).err
    )
    secret = program("webhook-secret").out.strip()
    assert secret.startswith("whsec_")
    assert program.json("webhook-secret") == {"secret": secret}


def test_second_recurring_job_of_a_name_names_the_first(program: Program) -> None:
    first = program.json(*NIGHTLY)["job_id"]
    refused = program(*NIGHTLY, "--json", code=4)
    assert refused.error["code"] == "NAME_TAKEN"
    assert first in refused.error["message"]
    program("jobs", "cancel", "nightly")
    second = program.json(*NIGHTLY)["job_id"]
    assert program.json("jobs", "show", "nightly")["job_id"] == second
