"""Hostile scripts in the runner end within their limits and reach nothing of it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.claims_api import ClaimsApi, a_claims_api
from tests.support.runner.runner_process import (
    EndedRunner,
    an_event,
    run_in_process,
    started_runner,
)
from tests.support.scripts.orphan import orphan_code
from tests.support.scripts.script_runs import eventually, exists

SANDBOXES = ["landlock", "bubblewrap", "none"]
WAIT: dict[str, Any] = {"mode": "wait", "timeout_seconds": 20}


@pytest.fixture
def api() -> Iterator[ClaimsApi]:
    with a_claims_api() as api:
        yield api


def run_hostile(
    api: ClaimsApi, folder: Path, code: str, sandbox: str = "landlock", memory_mb: int = 64
) -> EndedRunner:
    task = {"resources": {"memory_mb": memory_mb}}
    event = an_event(api, code, "python", task=task, **WAIT)
    return run_in_process(
        event, folder, PUNCTUAL_SANDBOX=sandbox, AWS_SECRET_ACCESS_KEY="key of the runner"
    )


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_fork_bomb_ends_with_its_processes(api: ClaimsApi, tmp_path: Path, sandbox: str) -> None:
    code = (
        "import os, time\n"
        "for _ in range(400):\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(1000)\n"
        "time.sleep(1000)"
    )
    began = time.monotonic()
    ended = run_hostile(api, tmp_path, code, sandbox, memory_mb=2000)
    assert ended.answer["error"] == (
        "The script had more than 256 processes at once, the limit of a run"
    )
    assert (ended.answer["must_retire"], time.monotonic() - began < 20) == (False, True)


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_memory_is_limited(api: ClaimsApi, tmp_path: Path, sandbox: str) -> None:
    ended = run_hostile(
        api, tmp_path, "import time; x = bytearray(150_000_000); time.sleep(60)", sandbox
    )
    assert (ended.answer["status"], ended.answer["exit_code"]) == ("FAILED", 137)
    assert ended.answer["error"].startswith("The script used more than 64 MB of memory")


def test_one_file_is_limited(api: ClaimsApi, tmp_path: Path) -> None:
    """A sparse file reaches the limit of one file without filling the disk."""
    ended = run_in_process(an_event(api, "exec truncate -s 2G big", **WAIT), tmp_path)
    assert ended.answer["error"].startswith("The script wrote more than ")
    assert "the limit of a run" in ended.answer["error"]


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_surviving_children_are_killed(api: ClaimsApi, tmp_path: Path, sandbox: str) -> None:
    code = (
        "import os, time\n"
        "reader, writer = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        os.write(writer, b'%d' % os.getpid())\n"
        "        os.closerange(0, 3)\n"
        "        time.sleep(1000)\n"
        "    os._exit(0)\n"
        "print(os.read(reader, 20).decode())"
    )
    ended = run_hostile(api, tmp_path, code, sandbox)
    assert (ended.answer["status"], ended.answer["must_retire"]) == ("SUCCESS", False)
    if sandbox != "bubblewrap":  # which numbers processes anew
        assert eventually(lambda: not exists(int(ended.output)))


def test_child_of_a_killed_launcher_is_killed(api: ClaimsApi, tmp_path: Path) -> None:
    ended = run_hostile(api, tmp_path, orphan_code("{}"), "none")
    assert ended.answer["error"] == "The launcher of the script was killed"
    assert not ended.answer["must_retire"]
    assert not exists(int(ended.output))


STEAL = """
import json, os, resource
found = []
parent = os.getpid()
while parent > 1:
    with open(f"/proc/{parent}/stat") as file:
        parent = int(file.read().rpartition(")")[2].split()[1])
    for name in ("environ", "mem", "maps"):
        try:
            with open(f"/proc/{parent}/{name}", "rb") as file:
                data = file.read(100_000)
        except OSError:
            continue
        if b"key of the runner" in data:
            found.append([parent, name])
print(json.dumps(found), [name for name in os.environ if name.startswith("AWS")])
"""


@pytest.mark.parametrize("sandbox", ["landlock", "none"])
def test_environment_of_the_runner_is_hidden(api: ClaimsApi, tmp_path: Path, sandbox: str) -> None:
    ended = run_hostile(api, tmp_path, STEAL, sandbox)
    assert ended.output == b"[] []\n"


@pytest.mark.parametrize("sandbox", ["landlock", "bubblewrap"])
def test_files_outside_of_the_run_are_closed(api: ClaimsApi, tmp_path: Path, sandbox: str) -> None:
    other = tmp_path / "tmp/of-another-run"
    other.parent.mkdir()
    other.write_text("secret")
    code = f"print(open({str(other)!r}).read())"
    event = an_event(api, code, "python", **WAIT)
    with_error = run_in_process_keeping(event, tmp_path, other, sandbox)
    assert with_error.answer["exit_code"] == 1
    assert other.read_text() == "secret"


def run_in_process_keeping(
    event: dict[str, Any], folder: Path, kept: Path, sandbox: str
) -> EndedRunner:
    with started_runner(event, folder, PUNCTUAL_SANDBOX=sandbox) as runner:
        ended = runner.end()
    assert list(ended.temporary.iterdir()) == [kept]
    return ended


def test_endless_output_ends_at_the_timeout(api: ClaimsApi, tmp_path: Path) -> None:
    event = an_event(api, "yes", timeout_seconds=2, mode="wait")
    ended = run_in_process(event, tmp_path)
    answer = ended.answer
    assert (answer["status"], answer["output_truncated"], answer["logs_truncated"]) == (
        "TIMED_OUT",
        True,
        True,
    )
    assert len(api.objects["/objects/output"][0]) == 10 * 1024 * 1024


def test_log_bomb_of_control_characters_fits_into_the_calls(api: ClaimsApi, tmp_path: Path) -> None:
    """A NUL takes six bytes of JSON."""
    run_in_process(an_event(api, "head -c 3000000 /dev/zero"), tmp_path)
    assert api.log() == "\0" * 3_000_000
