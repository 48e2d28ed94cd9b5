"""The `script` task as real processes."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from punctual.tasks.contract import Outcome, StopReason, StopSignal
from punctual.tasks.script import process
from punctual.tasks.script.process_group import (
    ProcessGroup,
    group_of,
    kill_leftover_group,
    start_time_by_ps,
    start_time_of,
)
from punctual.tasks.script.run_folder import remove_leftovers
from punctual.tasks.script.task import ScriptTask
from tests.support.scripts.script_runs import (
    LONG,
    PATIENCE,
    RUN,
    GroupRecorder,
    Log,
    an_attempt,
    default_sandbox,
    eventually,
    execute,
    exists,
    unconfined,
)

TAIL = 2048


def test_script_output_and_log_are_stored(tmp_path: Path) -> None:
    log = Log()
    code = "echo one; echo two >&2; echo three"
    assert execute(tmp_path, an_attempt(code), log=log) == Outcome(
        "SUCCESS",
        output=b"one\nthree\n",
        output_type="text/plain; charset=utf-8",
        exit_code=0,
    )
    assert sorted(log.data.split()) == [b"one", b"three", b"two"]


@pytest.mark.parametrize(
    ("runtime", "code"),
    [
        ("bash", 'read line; echo "$line $1 $2"'),
        ("python", "import sys; print(input(), *sys.argv[1:])"),
        (
            "node",
            "console.log(require('fs').readFileSync(0, 'utf8').trim(), ...process.argv.slice(2))",
        ),
    ],
)
def test_runtime_gets_payload_and_arguments(tmp_path: Path, runtime: str, code: str) -> None:
    attempt = an_attempt(
        code, runtime, payload={"ü": 1}, args=["{{payload.ü}}", "a b"], resources={"memory_mb": 512}
    )
    assert execute(tmp_path, attempt).output.decode() == '{"ü":1} 1 a b\n'


def test_payload_ends_with_one_newline(tmp_path: Path) -> None:
    assert execute(tmp_path, an_attempt("cat", payload="x\ny")).output == b'"x\\ny"\n'


def test_script_environment_has_only_documented_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "ours")
    code = "import json, os; print(json.dumps({**os.environ, 'cwd': os.getcwd()}))"
    attempt = an_attempt(code, "python", env={"MINE": "{{attempt}}", "LANG": "de_DE.UTF-8"})
    environment = json.loads(execute(tmp_path, attempt).output)

    folder = Path(environment["HOME"]).parent
    assert folder.parent == tmp_path
    environment.pop("LC_CTYPE", None)
    assert environment == {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "LANG": "de_DE.UTF-8",
        "MINE": "2",
        "PUNCTUAL_JOB_ID": "job-1",
        "PUNCTUAL_RUN_ID": RUN,
        "PUNCTUAL_ATTEMPT": "2",
        "PUNCTUAL_SCHEDULED_TIME": "2026-12-01T10:00:00.000Z",
        "cwd": str(folder / "work"),
    }


def test_script_language_is_c_utf_8(tmp_path: Path) -> None:
    assert execute(tmp_path, an_attempt('echo "$LANG"')).output == b"C.UTF-8\n"


def test_run_folder_is_private_and_removed_after_any_change(tmp_path: Path) -> None:
    code = (
        'stat -c %a .. "$HOME" "$TMPDIR"; umask; mkdir -p "$HOME/a/b"; echo x > "$HOME/a/b/c"; '
        'ln -s / "$HOME/a/root"; chmod 000 "$HOME/a/b" "$HOME/a"; chmod 000 .. '
    )
    assert execute(tmp_path, an_attempt(code)).output == b"700\n700\n700\n0077\n"


def test_unread_payload_does_not_block_the_script(tmp_path: Path) -> None:
    outcome = execute(tmp_path, an_attempt("exec <&-; echo done", payload="x" * 5_000_000))
    assert (outcome.status, outcome.output) == ("SUCCESS", b"done\n")


def test_large_payload_can_be_echoed_while_it_is_sent(tmp_path: Path) -> None:
    payload = "x" * 3_000_000
    assert execute(tmp_path, an_attempt("cat", payload=payload)).output == (
        json.dumps(payload).encode() + b"\n"
    )


def test_nonzero_exit_code_fails_with_the_error_output(tmp_path: Path) -> None:
    outcome = execute(tmp_path, an_attempt("echo out; echo no such luck >&2; exit 3"))
    assert (outcome.status, outcome.retryable, outcome.exit_code) == ("FAILED", True, 3)
    assert outcome.error == "Exit code 3\nno such luck"
    assert outcome.output == b"out\n"


def test_error_ends_with_the_last_two_kilobytes_of_error_output(tmp_path: Path) -> None:
    code = "import sys; sys.stderr.buffer.write(b'start' + b'\\xc3\\xbc' * 5000 + b'e'); exit(1)"
    error = execute(tmp_path, an_attempt(code, "python")).error
    assert error == "Exit code 1\n" + "ü" * ((TAIL - 1) // 2) + "e"


def test_error_replaces_bytes_that_are_not_text(tmp_path: Path) -> None:
    code = r"printf 'a\0b\377c' >&2; exit 1"
    assert execute(tmp_path, an_attempt(code)).error == "Exit code 1\na\ufffdb\ufffdc"


@pytest.mark.parametrize(("name", "number"), [("SEGV", 11), ("KILL", 9), ("TERM", 15)])
def test_error_names_the_signal(tmp_path: Path, name: str, number: int) -> None:
    outcome = execute(tmp_path, an_attempt(f"kill -{name} $$"))
    assert (outcome.status, outcome.error) == ("FAILED", f"Killed by SIG{name}")
    assert outcome.exit_code == 128 + number


def test_broken_pipe_ends_a_writer_as_in_a_terminal(tmp_path: Path) -> None:
    outcome = execute(tmp_path, an_attempt('yes | head -1; echo "${PIPESTATUS[0]}"'))
    assert outcome.output == b"y\n141\n"


def test_long_output_is_truncated_and_the_script_goes_on(tmp_path: Path) -> None:
    log = Log()
    code = "head -c 11000000 /dev/zero; head -c 2000 /dev/zero >&2; echo end >&2; exit 4"
    outcome = execute(tmp_path, an_attempt(code), log=log)
    assert (outcome.exit_code, len(outcome.output), len(log.data)) == (4, 10 * 2**20, 10 * 2**20)
    assert outcome.output_truncated
    assert outcome.logs_truncated
    assert outcome.error.endswith("end")


def test_log_is_written_while_the_script_runs(tmp_path: Path) -> None:
    stop = StopSignal()
    log = Log(b"alive\n", lambda: stop.request_stop("CANCEL"))
    outcome = execute(
        tmp_path,
        an_attempt("print('alive'); __import__('threading').Event().wait()", "python"),
        stop=stop,
        log=log,
    )
    assert outcome.status == "CANCELLED"
    assert outcome.output == b"alive\n"


@pytest.mark.parametrize("reason", ["CANCEL", "SHUTDOWN", "LOST"])
def test_stop_request_ends_the_whole_process_group(tmp_path: Path, reason: StopReason) -> None:
    stop = StopSignal()
    log = Log(b"go\n", lambda: stop.request_stop(reason))
    code = "sleep 1000 & echo $!; (sleep 1000) & echo $!; echo $$; echo go; wait"
    outcome = execute(tmp_path, an_attempt(code), stop=stop, log=log)
    *pids, _ = outcome.output.split()
    assert (outcome.status, outcome.error) == ("CANCELLED", Outcome.stopped(reason).error)
    assert len(pids) == 3
    assert not [pid for pid in pids if exists(int(pid))]


def test_stop_request_before_the_launcher_is_ready_starts_nothing(tmp_path: Path) -> None:
    recorder = GroupRecorder()

    class SecondTime(StopSignal):
        """A stop request that comes between the first and the second question for it."""

        questions = 0

        def reason(self) -> str:
            self.questions += 1
            return "CANCEL" if self.questions > 1 else ""

    began = time.monotonic()
    outcome = execute(tmp_path, an_attempt("sleep 1000"), stop=SecondTime(), recorder=recorder)
    assert outcome.status == "CANCELLED"
    assert time.monotonic() - began < PATIENCE


def test_script_may_clean_up_after_a_stop_request(tmp_path: Path) -> None:
    stop = StopSignal()
    log = Log(b"go\n", lambda: stop.request_stop("CANCEL"))
    code = "trap 'echo bye; exit 0' TERM; echo go; while :; do sleep 0.01; done"
    outcome = execute(tmp_path, an_attempt(code), stop=stop, log=log)
    assert (outcome.status, outcome.output, outcome.exit_code) == ("CANCELLED", b"go\nbye\n", 0)


@pytest.mark.parametrize("reason", ["CANCEL", "LOST"])
def test_script_that_ignores_a_stop_request_is_killed(tmp_path: Path, reason: StopReason) -> None:
    stop = StopSignal()
    log = Log(b"go\n", lambda: stop.request_stop(reason))
    code = "trap '' TERM; echo go; while :; do sleep 0.01; done"
    grace = 0.2 if reason == "CANCEL" else LONG
    outcome = execute(tmp_path, an_attempt(code), stop=stop, log=log, grace=grace)
    assert (outcome.status, outcome.exit_code) == ("CANCELLED", 137)


def test_lost_claim_ends_the_grace_period(tmp_path: Path) -> None:
    stop = StopSignal()
    stop_log = Log(b"questions\n", lambda: stop.request_stop("LOST"))

    class TwoLogs(Log):
        def log(self, data: bytes) -> None:
            super().log(data)
            stop_log.log(data)

    log = TwoLogs(b"go\n", lambda: stop.request_stop("CANCEL"))
    code = "trap 'echo questions' TERM; echo go; while :; do sleep 0.01; done"
    outcome = execute(tmp_path, an_attempt(code), stop=stop, log=log, grace=LONG)
    assert (outcome.status, outcome.exit_code) == ("CANCELLED", 137)


def test_timeout_kills_the_script_and_keeps_its_output(tmp_path: Path) -> None:
    code = "echo half; echo why >&2; sleep 1000"
    outcome = execute(tmp_path, an_attempt(code, seconds=0.5))
    assert outcome.status == "TIMED_OUT"
    assert outcome.error == "Timed out after 0.5 s\nwhy"
    assert outcome.output == b"half\n"


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs adoption of orphans")


@linux_only
@pytest.mark.parametrize(
    "escape",
    [
        'setsid sleep 1000 & echo $! > "$TMPDIR/pid"',
        """(setsid sh -c 'echo $$ > "$TMPDIR/pid"; exec sleep 1000' &)""",
        """setsid sh -c 'setsid sleep 1000 & echo $! > "$TMPDIR/pid"; sleep 1000' &""",
        'nohup sleep 1000 & echo $! > "$TMPDIR/pid"; disown',
    ],
)
@pytest.mark.parametrize("end", ["exit 0", "sleep 1000"])
def test_detached_processes_end_with_their_run(tmp_path: Path, escape: str, end: str) -> None:
    stop = StopSignal()
    log = Log(b"\n", lambda: stop.request_stop("CANCEL") if end != "exit 0" else None)
    wait = 'until [ -s "$TMPDIR/pid" ]; do sleep 0.01; done; cat "$TMPDIR/pid"'
    outcome = execute(tmp_path, an_attempt(f"{escape}\n{wait}\n{end}"), stop=stop, log=log)
    assert outcome.status == ("SUCCESS" if end == "exit 0" else "CANCELLED")
    assert not exists(int(outcome.output))


def test_child_with_open_output_does_not_delay_the_run(tmp_path: Path) -> None:
    outcome = execute(tmp_path, an_attempt("sleep 1000 & echo $!"))
    assert outcome.status == "SUCCESS"
    assert not exists(int(outcome.output))


def test_run_waits_for_a_script_that_closes_its_streams(tmp_path: Path) -> None:
    outcome = execute(tmp_path, an_attempt("echo a; exec <&- >&- 2>&-; sleep 0.3; exit 5"))
    assert (outcome.output, outcome.exit_code) == (b"a\n", 5)


def test_script_that_kills_its_launcher_dies_with_it(tmp_path: Path) -> None:
    code = "echo $$; sleep 1000 & echo $!; kill -9 $PPID; sleep 1000"
    log = Log()
    outcome = execute(tmp_path, an_attempt(code), log=log, sandbox=unconfined())
    assert outcome.status == "FAILED"
    assert outcome.error == "The launcher of the script was killed"
    assert eventually(lambda: not [pid for pid in log.data.split() if exists(int(pid))])


@pytest.fixture
def not_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the launcher without `waitid` and `pidfd_open`, as on macOS."""
    elsewhere = (
        "import os, sys\n"
        "for name in ('waitid', 'pidfd_open'):\n"
        "    vars(os).pop(name, None)\n"
        "sys.platform = 'darwin'\n"
    )
    monkeypatch.setattr(process, "LAUNCHER_CODE", elsewhere + process.LAUNCHER_CODE)


@pytest.mark.usefixtures("not_linux")
@pytest.mark.parametrize("end", ["exit 3", "sleep 1000"])
def test_process_group_ends_with_the_run_on_other_systems(tmp_path: Path, end: str) -> None:
    stop = StopSignal()
    log = Log(b"\n", lambda: stop.request_stop("CANCEL") if end != "exit 3" else None)
    attempt = an_attempt(f"sleep 1000 & echo $!; {end}")
    outcome = execute(tmp_path, attempt, stop=stop, log=log, sandbox=unconfined())
    assert outcome.status == ("FAILED" if end == "exit 3" else "CANCELLED")
    assert outcome.exit_code == (3 if end == "exit 3" else 143)
    assert eventually(lambda: not exists(int(outcome.output)))


def test_script_has_its_own_session_and_no_descriptor_of_the_node(tmp_path: Path) -> None:
    code = "import os; print(os.getpid(), os.getsid(0), os.getpgrp(), *os.listdir('/dev/fd'))"
    with (tmp_path.parent / "ours").open("w") as ours:
        os.set_inheritable(ours.fileno(), True)
        root = tmp_path / "root"
        pid, session, group, *open_ = execute(root, an_attempt(code, "python")).output.split()
    assert pid == session == group
    assert {int(number) for number in open_} <= {0, 1, 2, 3}


def test_process_limits_are_set(tmp_path: Path) -> None:
    code = "ulimit -c; ulimit -n; ulimit -f; ulimit -v; ulimit -u; cat /proc/self/oom_score_adj"
    attempt = an_attempt(code, resources={"memory_mb": 100})
    core, files, size, memory, processes, score = execute(tmp_path, attempt).output.split()
    assert (core, size, memory, score) == (b"0", b"1048576", b"unlimited", b"1000")
    assert int(files) <= 1024
    assert int(processes) <= 4096


def test_node_heap_limit_is_below_the_memory_limit(tmp_path: Path) -> None:
    code = "console.log(require('v8').getHeapStatistics().heap_size_limit / 1048576 < 400)"
    attempt = an_attempt(code, "node", resources={"memory_mb": 400})
    assert execute(tmp_path, attempt).output == b"true\n"


def test_missing_interpreter_fails_without_retry(tmp_path: Path) -> None:
    outcome = execute(tmp_path, an_attempt("1", "node"), path="/nowhere")
    assert outcome.retryable is False
    assert outcome.error == "node is not installed here (looked for it in /nowhere)"


@pytest.mark.parametrize(
    ("task", "why"),
    [
        ({"runtime": "binary"}, "Artifacts are not available"),
        ({"code": None, "artifact_id": "a"}, "Artifacts are not available"),
        ({"runtime": "perl"}, "no runtime 'perl'"),
        ({"env": {"PUNCTUAL_JOB_ID": "x"}}, "may not be the name"),
        ({"env": {"A=B": "x"}}, "may not be the name"),
        ({"env": {"": "x"}}, "may not be the name"),
        ({"env": {"A": "a\0b"}}, "holds a NUL"),
        ({"env": {"A": "\ud800"}}, "not valid Unicode"),
        ({"args": ["a\0b"]}, "An argument holds a NUL"),
        ({"code": "a\0b"}, "code holds a NUL"),
        ({"args": ["x" * 5_000_000]}, "could not be started: Argument list too long"),
    ],
)
def test_invalid_script_task_fails_without_retry(
    tmp_path: Path, task: dict[str, Any], why: str
) -> None:
    outcome = execute(tmp_path, an_attempt(**({"code": "echo"} | task)))
    assert (outcome.status, outcome.retryable) == ("FAILED", False)
    assert why in outcome.error


def test_secrets_are_in_the_environment_only(tmp_path: Path) -> None:
    log = Log()
    code = (
        'printf "%s" "${KEY:0:4}"; echo "${KEY:4}"; echo "$KEY" >&2; '
        'tr "\\0" " " < /proc/$PPID/cmdline; tr "\\0" " " < /proc/$PPID/environ; exit 1'
    )
    attempt = an_attempt(code, env={"KEY": "{{secret:a}}"})
    outcome = execute(tmp_path, attempt, log=log, sandbox=unconfined())
    assert outcome.error == "Exit code 1\n[secret]"
    assert outcome.output.startswith(b"[secret]\n")
    assert b"hush" not in outcome.output + log.data


def test_truncated_error_output_shows_no_part_of_a_secret(tmp_path: Path) -> None:
    code = f'printf "%s" "$KEY" >&2; head -c {TAIL - 3} /dev/zero | tr "\\0" x >&2; exit 1'
    outcome = execute(tmp_path, an_attempt(code, env={"KEY": "{{secret:abcdef}}"}))
    assert "def" not in outcome.error
    assert outcome.error.endswith("et]" + "x" * (TAIL - 3))


def test_process_groups_are_recorded_at_start_and_at_end(tmp_path: Path) -> None:
    recorder = GroupRecorder()
    outcome = execute(tmp_path, an_attempt("echo $$; sleep 0.2"), recorder=recorder)
    ((run_id, group),) = recorder.started
    assert run_id == RUN
    assert recorder.ended == recorder.started
    assert (recorder.alive_at_start, recorder.alive_at_end) == ([True], [False])
    assert group.pid == group.pgid == int(outcome.output)
    assert group.start_time > 0


def test_failed_write_of_the_group_file_ends_the_script(tmp_path: Path) -> None:
    class FullDisk(GroupRecorder):
        def on_started(self, run_id: str, group: ProcessGroup) -> None:
            super().on_started(run_id, group)
            raise OSError("disk full")

    recorder = FullDisk()
    outcome = execute(tmp_path, an_attempt("sleep 1000"), recorder=recorder)
    assert outcome == Outcome.failed("The task failed inside Punctual: OSError")
    assert not exists(recorder.started[0][1].pid)


def test_failed_write_of_the_log_ends_the_script(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError("disk full")

    log = Log(b"\n", fail)
    outcome = execute(tmp_path, an_attempt("echo $$; sleep 1000"), log=log)
    assert outcome.error.endswith("OSError")
    assert not exists(int(log.data))


def test_leftover_group_is_killed_only_if_its_start_time_matches(tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    group = group_of(process.pid)
    assert not kill_leftover_group(group.pgid, group.start_time + 1)
    assert not kill_leftover_group(group.pgid, 0)
    assert not kill_leftover_group(0, group.start_time)
    assert process.poll() is None
    assert kill_leftover_group(group.pgid, group.start_time)
    assert process.wait(PATIENCE) == -9
    assert not kill_leftover_group(group.pgid, group.start_time)
    assert start_time_of(group.pid) == 0


def test_start_time_of_a_process_is_known_without_proc() -> None:
    began = start_time_by_ps(os.getpid())
    assert abs(time.time() - began) < 86_400
    assert began == start_time_by_ps(os.getpid())
    assert start_time_by_ps(2**22 + 1) == 0


def test_leftover_run_folders_are_removed(tmp_path: Path) -> None:
    for name in ("run-a", "run-b", "other"):
        (tmp_path / name / "deep").mkdir(parents=True)
    assert remove_leftovers(tmp_path) == 2
    assert [folder.name for folder in tmp_path.iterdir()] == ["other"]


def test_script_dies_with_its_node(tmp_path: Path) -> None:
    program = f"""
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from punctual.tasks.contract import Attempt, StopSignal
from punctual.tasks.script.sandbox import choose_sandbox
from punctual.tasks.script.task import ScriptTask

class Log:
    def log(self, data):
        sys.stdout.buffer.write(data)
        sys.stdout.flush()

code = "trap '' TERM; setsid sleep 1000 & echo $$ $!; sleep 1000"
task = {{"type": "script", "runtime": "bash", "code": code}}
attempt = Attempt("t", "j", "r", "n", 1, datetime(2026, 1, 1, tzinfo=UTC), task, None,
                  timedelta(seconds=300), 1)
sandbox = choose_sandbox("none", Path(), is_shared=False)
task = ScriptTask(Path({str(tmp_path)!r}), sandbox, monotonic=time.monotonic)
task.run(attempt, StopSignal(), Log())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as node:
        assert node.stdout is not None
        pids = [int(pid) for pid in node.stdout.readline().split()]
        assert len(pids) == 2
        assert all(exists(pid) for pid in pids)
        node.kill()
    assert eventually(lambda: not any(exists(pid) for pid in pids))
    assert remove_leftovers(tmp_path) == 1


def test_concurrent_scripts_keep_their_own_output(tmp_path: Path) -> None:
    outcomes: dict[int, Outcome] = {}
    task = ScriptTask(tmp_path, default_sandbox(tmp_path), monotonic=time.monotonic)

    def work(number: int) -> None:
        attempt = an_attempt("cat", payload=[number] * 1000)
        outcomes[number] = task.run(attempt, StopSignal(), Log())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert {number: json.loads(outcome.output) for number, outcome in outcomes.items()} == {
        number: [number] * 1000 for number in range(8)
    }
