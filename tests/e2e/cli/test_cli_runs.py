"""Run commands: wait, watch, read."""

import re
import subprocess

from tests.e2e.cli.program import PROGRAM, WITHIN, Program, normalized


def create_job(program: Program, name: str, code: str, *more: str) -> None:
    program("jobs", "create", name, "--cron", "0 0 1 1 *", "--bash", code, *more)


def test_successful_run_exits_with_0(program: Program) -> None:
    create_job(program, "good", "cat; echo logged >&2", "--payload", '{"a": 1}')
    output = normalized(program("jobs", "run", "good", "--wait", "--payload", '"mine"').out)
    lines = output.splitlines()
    assert lines[0] == "Run <id>"
    assert lines[-1] == "<time>  SUCCESS after <ago>"
    assert program("runs", "output", "good").out == '"mine"\n'
    assert "logged" in program("runs", "logs", "good").out


def test_failed_run_exits_with_1_and_shows_the_error(program: Program) -> None:
    create_job(program, "bad", "echo no such table >&2; exit 3", "--retries", "0")
    result = program("jobs", "run", "bad", "--wait", code=1)
    assert "FAILED" in result.out
    assert result.err.startswith("The run is FAILED: ")
    assert "no such table" in result.err
    details = program("runs", "show", "bad").out
    assert "Exit code  3" in details
    assert program("runs", "watch", "bad", code=1).out.count("FAILED") == 1
    run = program.json("jobs", "run", "bad", "--wait", code=1)
    assert (run["status"], run["exit_code"]) == ("FAILED", 3)


def test_retried_run_shows_its_attempts(program: Program) -> None:
    create_job(
        *(program, "shaky", '[ "$PUNCTUAL_ATTEMPT" -gt 1 ]', "--retries", "1"),
        *("--set", "retry.backoff_seconds=0"),
    )
    program("jobs", "run", "shaky", "--wait")
    details = program("runs", "show", "shaky").out
    table = normalized(details).partition("\n\n")[2].splitlines()
    assert table[0].split() == ["ATTEMPT", "STATUS", "STARTED", "TOOK", "ERROR"]
    assert [row.split()[:2] for row in table[1:]] == [["1", "FAILED"], ["2", "SUCCESS"]]
    assert max(map(len, details.splitlines())) <= 80


def test_expired_wait_exits_with_7(program: Program) -> None:
    create_job(program, "slow", "sleep 60")
    result = program("jobs", "run", "slow", "--wait", "--timeout", "1s", code=7)
    assert "The run is RUNNING after 1 s." in result.err
    assert "The run continues. Follow it with: punctual runs watch" in result.err
    assert "cancel requested" in program("runs", "cancel", "slow").out
    assert program("runs", "watch", "slow", code=1).err == "The run is CANCELLED.\n"
    assert program("runs", "cancel", "slow", code=4).err.startswith("Error: The run")


def test_watch_json_prints_a_stream_of_states(program: Program) -> None:
    create_job(program, "good", "true")
    program("jobs", "run", "good", "--wait")
    states = program("runs", "watch", "good", "--json").lines
    assert [state["status"] for state in states] == ["SUCCESS"]


def test_logs_are_followed_to_the_end(program: Program) -> None:
    create_job(program, "talks", "for n in 1 2 3; do echo $n; sleep 0.3; done")
    program("jobs", "run", "talks")
    assert program("runs", "logs", "talks", "--follow").out == "1\n2\n3\n"
    pieces = program("runs", "logs", "talks", "--json").lines
    assert "".join(piece["text"] for piece in pieces) == "1\n2\n3\n"


def test_run_is_retried_with_its_original_payload(program: Program) -> None:
    create_job(program, "echoes", "cat")
    first = program.json("jobs", "run", "echoes", "--wait", "--payload", "[7]")
    retry = program.json("runs", "retry", "echoes", first["run_id"], "--wait")
    assert retry["retried_from"] == first["run_id"]
    assert program("runs", "output", "echoes").out == "[7]\n"
    other = ("--payload", '{"corrected": true}')
    program("runs", "retry", "echoes", first["run_id"], "--wait", *other)
    assert program("runs", "output", "echoes").out == '{"corrected":true}\n'


def test_runs_are_listed_by_job_reason_and_duration(program: Program) -> None:
    quick, slow = "listed-quick", "listed-slow"
    create_job(program, quick, "true", "--tag", "suite=listed")
    create_job(program, slow, "sleep 1.1", "--tag", "suite=listed")
    for name in (quick, slow):
        program("jobs", "run", name, "--wait")

    def listed(*options: str) -> list[str]:
        return [run["job_name"] for run in program.json("runs", "list", *options)]

    assert listed("--job-name", quick) == [quick]
    assert listed("--tag", "suite=listed") == [slow, quick]
    assert listed("--tag", "suite:listed", "--min-duration", "1s") == [slow]
    assert listed("--tag", "suite:listed", "--max-duration", "1s") == [quick]
    assert listed("--tag", "suite:listed", "--reason", "lost") == []
    error = program("runs", "list", quick, "--job-name", quick, code=2).err
    assert error.startswith("Error: --job-name and --tag select runs of all jobs")
    assert "is not a duration" in program("runs", "list", "--min-duration", "x", code=2).err


def test_output_file_has_the_exact_bytes(program: Program) -> None:
    create_job(program, "bytes", r"printf '\000\377'")
    program("jobs", "run", "bytes", "--wait")
    result = program("runs", "output", "bytes", "-o", "out.bin")
    assert (program.home / "out.bin").read_bytes() == b"\x00\xff"
    assert result.err == "Wrote 2 bytes to out.bin.\n"


def test_long_output_goes_to_a_file_and_to_a_pipe(program: Program) -> None:
    create_job(program, "long", "seq 1000000")
    program("jobs", "run", "long", "--wait")
    lines = "".join(f"{number}\n" for number in range(1, 1_000_001))
    result = program("runs", "output", "long", "--to", "long.txt")
    assert result.err == f"Wrote {len(lines):,} bytes to long.txt.\n"
    assert (program.home / "long.txt").read_text() == lines
    assert program("runs", "output", "long").out == lines
    assert program("runs", "output", "long", "--to", "none/long.txt", code=2).err == (
        "Error: none/long.txt: No such file or directory.\n"
    )


def test_run_list_fits_80_columns_with_full_ids(program: Program) -> None:
    create_job(program, "a job with a name that is rather long", "true")
    program("jobs", "run", "a job with a name that is rather long", "--wait")
    output = program("runs", "list", "-n", "3").out
    assert max(map(len, output.splitlines())) <= 80
    head, first, *_ = normalized(output).splitlines()
    assert head.split() == ["JOB", "RUN", "STATUS", "SCHEDULED", "TOOK"]
    assert re.fullmatch(r"a job.*…\s+<id>  SUCCESS\s+<ago>\s+<ago>", first)
    of_job = program("runs", "list", "a job with a name that is rather long").out
    assert of_job.splitlines()[0].split() == ["RUN", "STATUS", "SCHEDULED", "TOOK"]


def test_runs_are_filtered(program: Program) -> None:
    create_job(program, "good", "true")
    run = program.json("jobs", "run", "good", "--wait")
    list_command = ("runs", "list", "good", "-q")
    assert program(*list_command, "--status", "success", "--from", "-1h").out.split() == [
        run["run_id"]
    ]
    assert program(*list_command, "--trigger", "schedule").out == ""
    assert program(*list_command, "--to", "-1h").out == ""
    assert program("runs", "list", "good", "--status", "failed").out == "No runs.\n"


def test_runs_are_filtered_by_the_displayed_time(program: Program) -> None:
    create_job(program, "yearly", "true", "--tz", "UTC")
    range_ = ("--from", "2024-12-31T00:00:00Z", "--to", "2026-01-02T00:00:00Z")
    program("jobs", "backfill", "yearly", *range_, "--yes")
    list_ = ("runs", "list", "yearly")
    for run in program.json(*list_):
        program("runs", "watch", "yearly", run["run_id"])
    by_schedule = program(*list_, *range_).out.splitlines()
    assert by_schedule[0].split() == ["RUN", "STATUS", "SCHEDULED", "TOOK"]
    assert all(" d ago" in line for line in by_schedule[1:])
    assert len(by_schedule) == 3
    assert program(*list_, *range_, "--by", "started").out == "No runs.\n"
    started = program(*list_, "--from", "-1h", "--by", "started").out.splitlines()
    assert started[0].split() == ["RUN", "STATUS", "STARTED", "TOOK"]
    assert len(started) == 3
    assert not any(" d ago" in line for line in started)
    assert program(*list_, "--from", "-1h").out == "No runs.\n"
    ended = program("runs", "list", "-q", "--from", "-1h", "--by", "ended").out.split()
    assert set(program(*list_, "-q").out.split()) <= set(ended)


def test_job_without_runs_has_no_run_to_show(program: Program) -> None:
    create_job(program, "fresh", "true")
    error = program("runs", "show", "fresh", code=3).err
    assert error.splitlines() == [
        "Error: Job 'fresh' has no run yet.",
        "Run it now with `punctual jobs run fresh`.",
    ]


def test_idempotency_key_creates_one_run(program: Program) -> None:
    create_job(program, "good", "true")
    ids = {program.json("jobs", "run", "good", "--key", "k-1")["run_id"] for _ in range(2)}
    assert len(ids) == 1


def test_closed_pipe_prints_no_error(program: Program) -> None:
    create_job(program, "talks", "for n in $(seq 20000); do echo line $n; done")
    program("jobs", "run", "talks", "--wait")
    shell = f"{PROGRAM} runs logs talks | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", shell],
        env=program.env,
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["line 1", "141"]


HOSTILE = (
    r"printf '\033[31mred\033[0m \033]0;title\007 \033]52;c;ZXZpbA==\007 \302\233 over\rwritten\n'"
)
ESCAPED = r"\x1b]0;title\x07 \x1b]52;c;ZXZpbA==\x07 \x9b over\rwritten"


def test_logs_keep_colours_and_escape_other_control_characters(program: Program) -> None:
    create_job(program, "hostile", HOSTILE)
    program("jobs", "run", "hostile", "--wait")
    expected = f"\x1b[31mred\x1b[0m {ESCAPED}\n"
    assert program("runs", "logs", "hostile").out == expected
    assert program("runs", "logs", "hostile", "--follow").out == expected
    raw = program("runs", "logs", "hostile", "--raw").out
    assert "\x1b]52;c;ZXZpbA==\x07" in raw
    assert "\x9b" not in program("runs", "logs", "hostile", "--json").out


def test_terminal_output_keeps_colours_and_escapes_other_control_characters(
    program: Program,
) -> None:
    create_job(program, "hostile", HOSTILE)
    program("jobs", "run", "hostile", "--wait")
    with program.terminal("runs", "output", "hostile") as terminal:
        assert terminal.ends() == 0
    assert f"\x1b[31mred\x1b[0m {ESCAPED}" in terminal.raw
    with program.terminal("runs", "output", "hostile", "--raw") as terminal:
        assert terminal.ends() == 0
    assert "\x1b]0;title\x07" in terminal.raw
    # A pipe receives the exact bytes.
    assert "\x1b]0;title\x07" in program("runs", "output", "hostile").out


def test_followed_logs_are_not_repeated_in_the_error(program: Program) -> None:
    create_job(program, "bad", "echo no such table >&2; exit 3", "--retries", "0")
    program("jobs", "run", "bad", "--wait", code=1)
    result = program("runs", "logs", "bad", "-f", code=1)
    assert result.out == "no such table\n"
    assert result.err == "The run is FAILED: Exit code 3\n"


def test_run_without_output_is_reported_with_advice(program: Program) -> None:
    create_job(program, "silent", "true")
    run = program.json("jobs", "run", "silent", "--wait")
    error = program("runs", "output", "silent", code=3).err
    assert error.splitlines() == [
        "Error: The run has no output, or none yet. The run is SUCCESS.",
        f"Show the run with: punctual runs show {run['job_id']} {run['run_id']}",
    ]


def test_run_with_discarded_output_is_reported(program: Program) -> None:
    create_job(program, "secretive", "echo out", "--output", "discard")
    run = program.json("jobs", "run", "secretive", "--wait")
    assert run["output_discarded"]
    for kind in ("output", "logs"):
        error = program("runs", kind, "secretive", code=3).err.splitlines()[0]
        assert error == (
            f"Error: The run has no {kind}: its job discards output and logs "
            '("output": "discard"). The run is SUCCESS.'
        )
    assert "discarded (the job's output is discard)" in program("runs", "show", "secretive").out
    assert re.search(r"^Output +discard$", program("jobs", "show", "secretive").out, re.M)
    changed = program.json("jobs", "update", "secretive", "--output", "keep")
    assert changed["output"] == "keep"
    program("jobs", "run", "secretive", "--wait")
    assert program("runs", "output", "secretive").out == "out\n"


def test_run_details_show_the_due_time(program: Program) -> None:
    create_job(program, "due", "true")
    program("jobs", "run", "due", "--wait")
    assert "\nDue " in program("runs", "show", "due").out


def test_punctual_port_applies_to_client_commands(program: Program, node_url: str) -> None:
    port = node_url.split(":")[2].split("/")[0]
    here = program.with_env(PUNCTUAL_URL=None, PUNCTUAL_PORT=port)
    assert here.json("health")["status"] in ("ok", "late")
    assert "PUNCTUAL_PORT must be a port from 1 to 65535; got 'x'." in (
        program.with_env(PUNCTUAL_URL=None, PUNCTUAL_PORT="x")("jobs", "list", code=2).err
    )


def test_cron_nickname_followed_by_a_command_is_refused(program: Program) -> None:
    error = program("jobs", "create", "x", "--cron", "@daily /opt/x", code=4).err
    assert "@daily is a whole expression; nothing may follow it" in error


def test_failures_are_listed_and_acknowledged_by_job(program: Program) -> None:
    assert program("failures").out == "No failures.\n"
    failing = ("--bash", "echo no space left >&2; exit 3", "--retries", "0")
    job = program.json("jobs", "create", "backup", "--every", "1d", *failing)
    program("jobs", "run", "backup", "--wait", code=1)
    (failure,) = program.json("failures")
    assert (failure["job_id"], failure["count"]) == (job["job_id"], 1)
    assert failure["acknowledged"] is None
    shown = program("failures", "acknowledge", "backup", "--note", "a disk is on its way").out
    head, line = shown.splitlines()
    assert head.split() == ["JOB", "ERROR", "RUNS", "LAST", "ACKNOWLEDGED"]
    assert line.startswith("backup  ")
    assert program.json("failures", "list")[0]["acknowledged"]["note"] == "a disk is on its way"
    assert program("failures", "--quiet").out == failure["failure_id"] + "\n"
    program("failures", "acknowledge", failure["failure_id"])
    assert "Usage: punctual failures" in program("failures", "--help").out
    program("jobs", "update", "backup", "--bash", "true")
    program("jobs", "run", "backup", "--wait")
    assert program("failures").out == "No failures.\n"
    assert "no open failure" in program("failures", "acknowledge", "backup", code=3).err


def test_status_says_in_one_sentence_how_things_stand(program: Program) -> None:
    program("jobs", "create", "backup", "--every", "1d", "--bash", "exit 3", "--retries", "0")
    quiet = program("status").out
    assert re.fullmatch(r"OK  1 job, on time\. Next start in \d+ (h|d)\.\n", quiet), quiet
    program("jobs", "run", "backup", "--wait", code=1)
    bad = program("status", code=1).out.splitlines()
    assert bad[:2] == ["BAD      1 job, on time.", "         1 failure is not acknowledged."]
    assert bad[2].startswith("         Next start in ")
    assert bad[-2].startswith("Since    ")
    assert bad[-1] == "Look at  punctual failures"
    program("failures", "acknowledge", "backup")
    known = program("status").out.splitlines()
    assert known[:2] == ["WARN     1 job, on time.", "         1 known failure."]
    value = program.json("status")
    assert (value["verdict"], value["facts"][1]["code"]) == ("WARN", "KNOWN_FAILURES")
