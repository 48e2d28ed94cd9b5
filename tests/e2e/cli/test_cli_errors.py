"""Errors of the program: messages, advice and exit codes."""

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.e2e.cli.program import PROGRAM, WITHIN, Program

AN_ID = "01a1f045-d229-7038-89eb-02a8d89bc224"


@contextmanager
def a_server(status: int, body: Any, **headers: str) -> Iterator[str]:
    """Yield the address of a server with one fixed response."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_PATCH = do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def a_problem(status: int, code: str) -> dict[str, Any]:
    return {"status": status, "code": code, "title": code, "detail": f"It is {code}."}


@pytest.mark.parametrize(
    ("status", "code", "exit_code", "advice"),
    [
        (401, "UNAUTHENTICATED", 5, "punctual login"),
        (403, "FORBIDDEN", 5, "punctual whoami"),
        (404, "NOT_FOUND", 3, "punctual jobs list"),
        (409, "CONFLICT", 4, ""),
        (412, "PRECONDITION_FAILED", 4, "Another client changed the job"),
        (413, "TOO_LARGE", 4, ""),
        (422, "INVALID", 4, ""),
        (500, "INTERNAL", 6, ""),
    ],
)
def test_each_refusal_has_an_exit_code_and_advice(
    program: Program, status: int, code: str, exit_code: int, advice: str
) -> None:
    with a_server(status, a_problem(status, code)) as url:
        result = program("jobs", "pause", AN_ID, "--url", url, code=exit_code)
        assert result.err.startswith(f"Error: It is {code}.\n")
        assert advice in result.err
        as_json = program("jobs", "pause", AN_ID, "--url", url, "--json", code=exit_code)
    assert as_json.out == ""
    assert (as_json.error["code"], as_json.error["exit_code"]) == (code, exit_code)


@pytest.mark.parametrize(
    ("words", "message", "command"),
    [
        ("jobs list --json --nope", "No such option: --nope", "punctual jobs list"),
        ("--json jobs list --nope", "No such option: --nope", "punctual jobs list"),
        ("jobs show --json", "Missing argument 'JOB'.", "punctual jobs show"),
        ("jobs list --json --limit x", "Invalid value for '--limit'", "punctual jobs list"),
        ("--json nope", "No such command 'nope'.", "punctual"),
        ("--json", "Missing command.", "punctual"),
        ("--json jobs", "Missing command.", "punctual jobs"),
    ],
)
def test_usage_error_is_reported_as_json_on_request(
    program: Program, words: str, message: str, command: str
) -> None:
    result = program(*words.split(), code=2)
    assert result.out == ""
    assert (result.error["exit_code"], result.error["code"]) == (2, "USAGE")
    assert result.error["message"].startswith(message)
    assert result.error["advice"].startswith(f"See `{command} --help`")
    assert result.error["errors"] == []


def test_argument_after_double_dash_does_not_select_json(program: Program) -> None:
    result = program("jobs", "show", "--", AN_ID, "--json", code=2)
    assert "Usage: punctual jobs show" in result.err


def test_rate_limit_error_names_the_delay(program: Program) -> None:
    with a_server(429, a_problem(429, "LIMIT_EXCEEDED"), Retry_After="60") as url:
        result = program("jobs", "pause", AN_ID, "--url", url, code=6)
    assert "Try again in 60 s." in result.err


def test_unreachable_server_error_names_the_remedy(program: Program) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        result = program("jobs", "list", "--url", url, code=6)
    assert "punctual dev" in result.err
    assert "punctual login" in result.err


def test_response_of_another_server_is_reported(program: Program) -> None:
    with a_server(200, b"<html>hello</html>") as url:
        result = program("jobs", "list", "--url", url, code=6)
    assert "may not be a Punctual API" in result.err


def test_health_of_a_late_installation_fails(program: Program) -> None:
    with a_server(503, {"status": "late", "lateness_ms_p99": 20_000.0}) as url:
        result = program("health", "--url", url, code=1)
    assert "Status    late" in result.out
    assert "Lateness  20,000.0 ms p99" in result.out
    assert program.json("health")["status"] == "ok"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("jobs", "show", "missing"), "There is no job 'missing'"),
        (("jobs", "show", AN_ID), "There is no such job"),
        (("runs", "show", AN_ID, AN_ID), "There is no such job"),
        (("tokens", "revoke", "absent"), "There is no token 'absent'"),
    ],
)
def test_not_found_exits_with_3_and_names_what_is_missing(
    program: Program, args: tuple[str, ...], message: str
) -> None:
    result = program(*args, code=3)
    assert message in result.err
    assert result.out == ""


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("jobs", "creat"), "Did you mean 'create'?"),
        (("jobs", "create"), "The name is missing"),
        (("jobs", "create", "x", "--cron", "* * * * *", "--every", "5m"), "cannot be combined"),
        (("jobs", "create", "x", "--every", "soon"), "--every: 'soon' is not a duration"),
        (("jobs", "create", "x", "--at", "soon"), "--at: 'soon' is not a time"),
        (("jobs", "create", "x", "--at", "10:00", "--tz", "Moon/Base"), "is not an IANA time zone"),
        (("jobs", "create", "x", "--payload", "{"), "--payload is not valid JSON"),
        (("jobs", "create", "x", "--set", "novalue"), "--set must be field=value"),
        (("jobs", "create", "x", "--tag", "novalue"), "--tag must be key=value"),
        (("jobs", "create", "x", "--script", "a.rb"), "the suffix must be"),
        (("jobs", "create", "x", "--script", "none.py"), "none.py: No such file"),
        (("jobs", "create", "x", "--method", "GET"), "require --http"),
        (("jobs", "create", "x", "--arg", "a"), "--working-directory and --arg require --script"),
        (("jobs", "create", "x", "--http", "http://a", "--arg", "a"), "options of a script"),
        (("jobs", "create", "x", "--http", "http://a", "--header", "x"), "must be 'NAME: VALUE'"),
        (("jobs", "create", "-f", "."), "Is a directory"),
        (("jobs", "list", "--status", "odd"), "'--status': 'odd' is not one of"),
        (("jobs", "list", "--limit", "-1"), "--limit"),
        (("jobs", "list", "--limit", "x"), "'-n': must be a whole number."),
        (("jobs", "run", "x", "--timeout", "5s"), "requires --wait"),
        (("runs", "show", AN_ID, "x"), "is not the id of a run"),
        (("jobs", "list", "--url", "localhost:8080"), "is not the address of an API"),
        (("jobs", "list", "--url", "http://u:p@h"), "is not the address of an API"),
        (("whoami", "--profile", "none"), "There is no profile 'none'"),
        (("whoami", "--token", "a\nb"), "has invalid characters"),
        (("completion",), "The shell is unknown"),
        (("jobs", "create", "x", "--every", "9999999999w"), "is too long"),
        (("jobs", "create", "x", "--payload", "[" * 50_000), "nested too deep"),
        (("jobs", "show", "\udcff"), "is not valid UTF-8"),
        (
            ("upcoming", "--from", "9999-12-31", "--within", "52w"),
            "date out of range",
        ),
    ],
)
def test_usage_error_exits_with_2(program: Program, args: tuple[str, ...], expected: str) -> None:
    result = program.with_env(COLUMNS="200")(*args, code=2)
    assert expected in result.err
    assert result.out == ""


def test_all_wrong_fields_are_named(program: Program) -> None:
    result = program("jobs", "create", "x", "--cron", "0 99 * * *", "--retries", "-1", code=4)
    assert result.err.splitlines() == [
        "Error: 2 fields are invalid:",
        "  max_retries: must be at least 0",
        "  cron_expression: 99 is out of range in the hour field: it takes 0 to 23",
    ]
    wrong = program("jobs", "create", "x", "--retries", "-1", "--json", code=4).error
    assert wrong["errors"] == [{"field": "max_retries", "message": "must be at least 0"}]


def test_all_errors_of_a_file_are_named_with_a_missing_name(program: Program) -> None:
    result = program("jobs", "create", "-f", "-", stdin='{"a": 1, "max_retries": -1}', code=4)
    assert sorted(result.err.splitlines()[1:]) == [
        "  a: is not a field of this call",
        "  max_retries: must be at least 0",
        "  name: is required",
    ]


def test_error_with_a_question_ends_with_one_question_mark(program: Program) -> None:
    result = program("preview", "0 0 * * *", "--tz", "berlin", code=4)
    assert result.err.rstrip().endswith("did you mean 'Europe/Berlin'?")


def test_json_with_tabs_and_emoji_is_read_as_a_job_file(program: Program) -> None:
    text = json.dumps({"name": "on the \U0001f319", "cron_expression": "0 0 * * *"}, indent="\t")
    job = program.json("jobs", "create", "-f", "-", "--set", "schedule_type=CRON", stdin=text)
    assert job["name"] == "on the \U0001f319"
    program("jobs", "cancel", job["job_id"])


def test_preview_needs_no_server(program: Program) -> None:
    offline = program.with_env(PUNCTUAL_URL="http://127.0.0.1:1/v1")
    args = ("preview", "30 2 * * *", "--tz", "Europe/Berlin", "--from", "2037-03-28", "-n", "2")
    output_lines = offline(*args).out.splitlines()
    assert output_lines[0] == "At 02:30, in Europe/Berlin"
    assert output_lines[3].startswith("Sat 2037-03-28 02:30:00  2037-03-28 01:30:00  in ")
    assert output_lines[4].startswith("Sun 2037-03-29 03:00:00  2037-03-29 01:00:00  in ")
    assert "Clock change: on 29 March 2037 clocks in Europe/Berlin go forward" in " ".join(
        output_lines
    )
    by_api = program.json(*args)
    assert [time["utc"] for time in by_api["times"]] == [
        "2037-03-28T01:30:00.000Z",
        "2037-03-29T01:00:00.000Z",
    ]
    wrong = offline("preview", "99 * * * *", "--tz", "Nowhere", code=4).err
    assert "timezone: 'Nowhere'" in wrong
    assert "cron_expression: 99 is out of range" in wrong


def test_preview_compares_its_times_with_croniter(program: Program) -> None:
    offline = program.with_env(PUNCTUAL_URL="http://127.0.0.1:1/v1")
    berlin = ("--tz", "Europe/Berlin", "--compare", "croniter")
    args = ("preview", "30 2 * * *", *berlin, "-n", "3", "--from")
    assert " agrees on the 3 times." in offline(*args, "2037-03-28").out
    output = offline(*args, "2037-10-25", code=1).out
    words = " ".join(output.split())
    assert "differs at time 2 and agrees on the one time before it" in words
    assert "Mon 2037-10-26 02:30:00 CET Sun 2037-10-25 02:30:00 CET" in words
    assert "Reason: on 25 October 2037 clocks in Europe/Berlin go back" in words
    by_json = program.json(*args, "2037-10-25", code=1)["comparison"]
    assert (by_json["agrees"], by_json["difference"]["position"]) == (False, 2)
    assert "croniter does not read" in offline("preview", "rate(1 day)", *berlin, code=2).err


def test_global_options_work_before_and_after_the_command(program: Program) -> None:
    url = program.env["PUNCTUAL_URL"]
    nowhere = program.with_env(PUNCTUAL_URL=None)
    before = nowhere("--url", url, "--json", "whoami").json
    assert before == nowhere("whoami", "--url", url, "--json").json
    assert before["tenant"] == "local"


def test_pipe_receives_no_colours(program: Program) -> None:
    program("jobs", "create", "x", "--every", "5m")
    for result in (program("jobs", "list"), program("jobs", "show", "none", code=3)):
        assert "\x1b" not in result.out + result.err


def test_job_name_cannot_control_the_terminal(program: Program) -> None:
    program("jobs", "create", "x", "--every", "5m", "--set", 'payload="\\u001b[31m"')
    assert "\x1b" not in program("jobs", "show", "x").out


def test_full_disk_closed_stream_and_ascii_output_are_handled(program: Program) -> None:
    program("jobs", "create", "x", "--every", "5m")
    for command in ("jobs list", "jobs list --json"):
        for redirected, code, expected in (("> /dev/full", 1, "No space left"), (">&-", 0, "")):
            done = subprocess.run(
                ["bash", "-c", f"{PROGRAM} {command} {redirected}"],
                env=program.env,
                capture_output=True,
                text=True,
                timeout=WITHIN,
                check=False,
            )
            assert done.returncode == code, done
            assert expected in done.stderr
            assert "Traceback" not in done.stderr
    quiet = program.with_env(PYTHONIOENCODING="ascii")
    quiet("jobs", "create", "größe", "--every", "5m")
    assert "gr\\xf6\\xdfe" in quiet("jobs", "show", "größe").out


def test_ctrl_c_ends_a_command_with_130(program: Program) -> None:
    with a_server(429, a_problem(429, "LIMIT_EXCEEDED"), Retry_After="3") as url:
        running = subprocess.Popen(
            [PROGRAM, "stats", "--url", url],
            env=program.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        # The program sleeps until the time of the retry.
        _until_it_waits(running.pid)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=WITHIN)
    assert (running.returncode, out, err) == (130, "", "")


def _until_it_waits(pid: int) -> None:
    import time

    ends = time.monotonic() + WITHIN
    while time.monotonic() < ends:
        with open(f"/proc/{pid}/wchan") as file:
            where = file.read()
        if "nanosleep" in where:
            return
        os.sched_yield()
    raise AssertionError("it never came to wait")


def test_upcoming_stats_and_audit_print_tables(program: Program) -> None:
    program("jobs", "create", "soon", "--every", "10m", "--bash", "true")
    upcoming = program("upcoming", "--within", "1h", "-n", "2").out
    assert upcoming.splitlines()[0].split() == ["WHEN", "JOB"]
    assert upcoming.count("soon") == 2
    stats = program("stats").out
    assert stats.startswith("Jobs")
    assert "EXECUTOR" in stats
    audit = program("audit", "--job", "soon").out.splitlines()
    assert audit[0].split() == ["WHEN", "CALLER", "ACTION", "WHAT"]
    assert audit[1].split()[-3:] == ["local", "job.create", "soon"]
    assert max(map(len, audit)) <= 80
    entries = program.json("audit", "--job", "soon", "--action", "job.create")
    assert [entry["action"] for entry in entries] == ["job.create"]
