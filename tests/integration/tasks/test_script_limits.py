"""Limits of a run: memory, disk and processes. Beyond one the run ends with its processes."""

import os
import time
from pathlib import Path

import pytest

from punctual.tasks.contract import Outcome
from punctual.tasks.limits import RunLimits
from tests.support.kernel import needs
from tests.support.scripts.other_user import run_python
from tests.support.scripts.script_runs import (
    RUN,
    an_attempt,
    eventually,
    execute,
    exists,
    unconfined,
)

pytestmark = needs("children of processes")
MB = 1024 * 1024
SMALL_DISK = RunLimits(disk_bytes=4 * MB)
FEW_PROCESSES = RunLimits(processes=5)
WAIT = "__import__('threading').Event().wait(60)"


def run_python_code(
    root: Path,
    code: str,
    limits: RunLimits = RunLimits(),  # noqa: B008
    mb: int = 64,
) -> Outcome:
    attempt = an_attempt(code, "python", resources={"memory_mb": mb})
    return execute(root, attempt, limits=limits)


def test_run_over_the_memory_limit_fails_with_the_limit(tmp_path: Path) -> None:
    outcome = run_python_code(tmp_path, f"x = bytearray(150_000_000); {WAIT}")
    assert (outcome.status, outcome.exit_code) == ("FAILED", 137)
    assert outcome.error == (
        "The script used more than 64 MB of memory, the limit of its run: raise "
        "task.resources.memory_mb"
    )


def test_memory_has_a_default_limit(tmp_path: Path) -> None:
    attempt = an_attempt(f"x = bytearray(700_000_000); {WAIT}", "python")
    assert "more than 512 MB" in execute(tmp_path, attempt).error


def test_memory_of_detached_processes_counts(tmp_path: Path) -> None:
    code = (
        "import os\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        f"        os.write(1, b'%d\\n' % os.getpid()); x = bytearray(40_000_000); {WAIT}\n"
        f"{WAIT}"
    )
    outcome = run_python_code(tmp_path, code)
    assert "more than 64 MB" in outcome.error
    assert not [pid for pid in outcome.output.split() if exists(int(pid))]


def test_shared_memory_counts_once(tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "x = bytearray(30_000_000)\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(60)\n"
        "time.sleep(0.5); print('done')"
    )
    outcome = run_python_code(tmp_path, code)
    assert (outcome.status, outcome.output) == ("SUCCESS", b"done\n")


def test_reserved_addresses_are_not_memory(tmp_path: Path) -> None:
    code = "import mmap, time; x = mmap.mmap(-1, 2**33); time.sleep(0.3); print('done')"
    assert run_python_code(tmp_path, code).output == b"done\n"


def test_node_runs_within_128_megabytes(tmp_path: Path) -> None:
    code = "setTimeout(() => console.log('done'), 300)"
    attempt = an_attempt(code, "node", resources={"memory_mb": 128})
    assert execute(tmp_path, attempt).output == b"done\n"


DISK_USERS = {
    "in small files": "for n in range(2000): open(f'{n}', 'w').write('x')",
    "in large files": "for n in range(3): open(f'{n}', 'wb').write(bytes(2**21))",
    "in empty files": "for n in range(2000): open(f'{n}', 'w')",
    "in a closed folder": (
        "import os; os.mkdir('a')\n"
        "for n in range(3): open(f'a/{n}', 'wb').write(bytes(2**21))\n"
        "os.chmod('a', 0)"
    ),
    "in a deleted file": (
        "import os; kept = [open(f'{n}', 'wb') for n in range(3)]\n"
        "for n, file in enumerate(kept): file.write(bytes(2**21)); file.flush(); os.unlink(f'{n}')"
    ),
    "in files without a name": (
        "import os; kept = [os.memfd_create(f'{n}') for n in range(3)]\n"
        "for file in kept: os.write(file, bytes(2**21))"
    ),
}


@pytest.mark.parametrize("code", DISK_USERS.values(), ids=DISK_USERS)
def test_run_over_the_disk_limit_fails(tmp_path: Path, code: str) -> None:
    outcome = run_python_code(tmp_path, f"{code}\n{WAIT}", SMALL_DISK)
    assert outcome.status == "FAILED"
    assert outcome.error == "The script left more than 4 MB in its folder, the limit of a run"


def test_folder_of_very_many_files_is_measured_completely(tmp_path: Path) -> None:
    """The folder is measured in parts, and only the last ones exceed the limit."""
    code = "for n in range(9000): open(f'{n}', 'w')"
    outcome = run_python_code(tmp_path, f"{code}\n{WAIT}", RunLimits(disk_bytes=8500 * 4096))
    assert "in its folder, the limit of a run" in outcome.error


def test_hard_links_count_once(tmp_path: Path) -> None:
    code = (
        "import os, time; open('a', 'wb').write(bytes(2**21))\n"
        "for n in range(100): os.link('a', f'{n}')\n"
        "time.sleep(1.5); print('done')"
    )
    assert run_python_code(tmp_path, code, SMALL_DISK).output == b"done\n"


def test_error_names_the_limit_of_one_file(tmp_path: Path) -> None:
    outcome = execute(
        tmp_path, an_attempt("exec head -c 5000000 /dev/zero > big"), limits=SMALL_DISK
    )
    assert outcome.status == "FAILED"
    assert outcome.error == "The script wrote more than 4 MB to one file, the limit of a run"


DEEP = "import os\nfor _ in range(3000): os.mkdir('folder'); os.chdir('folder')"


def test_too_deeply_nested_folders_end_the_run(tmp_path: Path) -> None:
    outcome = run_python_code(tmp_path, f"{DEEP}\n{WAIT}", RunLimits())
    assert "nested its folders too deep" in outcome.error


def test_run_over_the_process_limit_ends_with_all_processes(tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "for _ in range(20):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid(); os.write(1, b'%d\\n' % os.getpid()); time.sleep(60); os._exit(0)\n"
        "time.sleep(60)"
    )
    outcome = run_python_code(tmp_path, code, FEW_PROCESSES, 512)
    assert outcome.error == "The script had more than 5 processes at once, the limit of a run"
    pids = [int(pid) for pid in outcome.output.split()]
    assert pids
    assert not [pid for pid in pids if exists(pid)]


def test_chain_of_forking_processes_ends_with_the_run(tmp_path: Path) -> None:
    """Each process ends before it can be killed. The next has its own session."""
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    until = time.monotonic() + 30\n"
        "    while time.monotonic() < until:\n"
        "        os.setsid()\n"
        "        if os.fork(): os._exit(0)\n"
        "    open('survived', 'w')\n"
        "time.sleep(0.3)"
    )
    attempt = an_attempt(code, "python")
    began = time.monotonic()
    outcome = execute(tmp_path, attempt)
    assert outcome.status == "SUCCESS"
    assert time.monotonic() - began < 25
    assert eventually(lambda: not _pids_with(f"PUNCTUAL_RUN_ID={RUN}".encode()))


BOMB = """
import resource, sys, tempfile
from pathlib import Path
from tests.support.scripts.script_runs import RUN, an_attempt, execute
resource.setrlimit(resource.RLIMIT_NPROC, (60, 60))  # this user has no other processes
outcome = execute(Path(tempfile.mkdtemp()), an_attempt(sys.stdin.read(), "python"))
print(outcome.status, RUN)
"""


def test_endlessly_forking_processes_end_with_the_run() -> None:
    """Each killed process makes room for another, unless all are stopped first."""
    code = (
        "import os, time\n"
        "until = time.monotonic() + 20\n"
        "if os.fork() == 0:\n"
        "    while time.monotonic() < until:\n"
        "        try:\n"
        "            if os.fork() == 0: os.setsid()\n"
        "        except OSError: pass\n"
        "    os._exit(0)\n"
        "time.sleep(0.5)"
    )
    began = time.monotonic()
    status, run_id = run_python("nobody", "-c", BOMB, stdin=code).split()
    assert status == "SUCCESS"
    assert not _pids_with(f"PUNCTUAL_RUN_ID={run_id}".encode())
    assert time.monotonic() - began < 18  # the processes end by themselves after 20 s


def test_folder_without_permissions_is_measured(tmp_path: Path) -> None:
    """The launcher is not root, because root needs no permission."""
    code = """
import os, tempfile
from punctual.tasks.script.usage import file_sizes
top = tempfile.mkdtemp()
os.mkdir(f"{top}/a")
with open(f"{top}/a/file", "wb") as file: file.write(bytes(10**6))
os.chmod(f"{top}/a", 0)
print(sum(file_sizes(top)) > 10**6)
"""
    user = "nobody" if os.geteuid() == 0 else "ours"
    assert run_python(user, "-c", code) == "True\n"


def test_limits_hold_without_a_sandbox(tmp_path: Path) -> None:
    attempt = an_attempt(
        f"x = bytearray(150_000_000); {WAIT}", "python", resources={"memory_mb": 64}
    )
    assert "more than 64 MB" in execute(tmp_path, attempt, sandbox=unconfined()).error


def _pids_with(mark: bytes) -> list[str]:
    pids = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                pids.append(name)
        except OSError:
            continue
    return pids
