"""A script in a sandbox: what is possible, and the error for what is not."""

import json
import os
import socket
import sys
from pathlib import Path

import pytest

from punctual.tasks.script import bubblewrap, seccomp
from punctual.tasks.script.sandbox import OpenPath, Sandbox, choose_sandbox
from tests.support.kernel import needs
from tests.support.scripts.other_user import run_python
from tests.support.scripts.script_runs import Log, an_attempt, execute, unconfined

PATH = os.environ["PATH"]
SANDBOXES = [
    pytest.param("landlock", marks=needs("landlock scopes", "seccomp")),
    pytest.param("bubblewrap"),
]
each_sandbox = pytest.mark.parametrize("name", SANDBOXES)
each_mode = pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])


def a_sandbox(
    name: str, root: Path, *opened: OpenPath, shared: bool = False, hidden: Path | None = None
) -> Sandbox:
    if name == "bubblewrap":
        problem = bubblewrap.find_program(PATH)[1]
        if problem:
            pytest.skip(problem)
    return choose_sandbox(
        name, hidden or root.parent, is_shared=shared, open_paths=opened, path=PATH
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the folder of runs, in its own data folder."""
    folder = tmp_path / "data" / "work"
    folder.mkdir(parents=True)
    return folder


@each_sandbox
@each_mode
@pytest.mark.parametrize(
    ("runtime", "code"),
    [
        (
            "bash",
            'echo x > a && mkdir b && mv a b/c && ln -s c b/d && cat b/d > "$HOME/e" && '
            'mktemp -p "$TMPDIR" > /dev/null && cat "$HOME/e" <(echo y) | tr "\\n" " " && '
            'date > /dev/null && [ -n "$(head -c 4 /dev/urandom | od)" ] && echo z > /dev/stdout',
        ),
        (
            "python",
            "import json, os, socket, ssl, subprocess, tempfile, zoneinfo\n"
            "with tempfile.NamedTemporaryFile('w+') as file: file.write('x')\n"
            "os.cpu_count(); socket.getaddrinfo('localhost', 80); ssl.create_default_context()\n"
            "said = subprocess.run(['cat', '/etc/hostname'], check=True, capture_output=True)\n"
            "print('x y z')",
        ),
        (
            "node",
            "const fs = require('fs'), os = require('os'), cp = require('child_process');\n"
            "fs.writeFileSync(os.homedir() + '/a', 'x'); process.memoryUsage(); os.cpus();\n"
            "cp.execSync('cat /etc/passwd');\n"
            "console.log(fs.readFileSync(os.homedir() + '/a', 'utf8'), 'y z')",
        ),
    ],
)
def test_usual_script_works_in_a_sandbox(
    root: Path, name: str, shared: bool, runtime: str, code: str
) -> None:
    outcome = execute(root, an_attempt(code, runtime), sandbox=a_sandbox(name, root, shared=shared))
    assert outcome.status == "SUCCESS", outcome.error
    assert outcome.output.split() == [b"x", b"y", b"z"]


@each_sandbox
@each_mode
def test_sandbox_leaves_the_network_open(root: Path, name: str, shared: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('open')"
        attempt = an_attempt(code, "python")
        outcome = execute(root, attempt, sandbox=a_sandbox(name, root, shared=shared))
    assert outcome.output == b"open\n"


@each_sandbox
def test_sandboxed_script_has_no_capabilities(root: Path, name: str) -> None:
    code = "grep -E 'Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp:' /proc/self/status"
    outcome = execute(root, an_attempt(code), sandbox=a_sandbox(name, root))
    status = dict(line.split(":\t") for line in outcome.output.decode().splitlines())
    assert status.pop("NoNewPrivs") == "1"
    assert status.pop("Seccomp") == "2"
    if os.geteuid() == 0:  # for other users the kernel lists capabilities that they cannot gain
        assert set(status.values()) == {"0" * 16}
    assert status["CapEff"] == "0" * 16


@each_sandbox
def test_opened_paths_are_readable_or_writable_by_setting(
    root: Path, tmp_path: Path, name: str
) -> None:
    backup, config, closed = (tmp_path / part for part in ("backup", "config", "shut"))
    for folder in (backup, config, closed):
        folder.mkdir()
        (folder / "file").write_text("kept")
    opened = OpenPath(backup, True), OpenPath(config, False)
    code = (
        f"cat {config}/file {backup}/file; echo new > {backup}/file; mv {backup}/file {backup}/b;"
        f"echo bad > {config}/file; cat {closed}/file"
    )
    sandbox = a_sandbox(name, root, *opened)
    outcome = execute(root, an_attempt(code), sandbox=sandbox)
    assert outcome.output == b"keptkept"
    assert ((backup / "b").read_text(), (config / "file").read_text()) == ("new\n", "kept")
    assert outcome.status == "FAILED"


@each_sandbox
def test_denied_access_error_names_the_setting(root: Path, tmp_path: Path, name: str) -> None:
    code = f"echo mine > {tmp_path}/file || echo mine > /usr/file"
    outcome = execute(root, an_attempt(code), sandbox=a_sandbox(name, root))
    first, hint, *_ = outcome.error.splitlines()
    assert first == "Exit code 1"
    assert hint == (
        f"The {name} sandbox may be the cause: PUNCTUAL_SCRIPT_PATHS opens more paths, to scripts "
        "of tenant local."
    )


@pytest.mark.parametrize(
    ("code", "sandboxed"),
    [
        ("echo Permission denied >&2", True),
        ("echo Permission >&2; echo denied >&2; exit 1", True),
        ("echo Permission denied; exit 1", True),
        ("echo Permission denied >&2; exit 1", False),
    ],
)
def test_error_names_no_setting_without_a_denial_in_a_sandbox(
    root: Path, code: str, sandboxed: bool
) -> None:
    sandbox = None if sandboxed else unconfined()
    assert "PUNCTUAL_SCRIPT_PATHS" not in execute(root, an_attempt(code), sandbox=sandbox).error


@needs("landlock")
def test_denial_is_found_across_reads_and_before_the_end(root: Path) -> None:
    code = (
        "printf 'EACCES: permission den' >&2; sleep 0.2; echo ied >&2\n"
        "head -c 100000 /dev/zero | tr '\\0' x >&2; exit 3"
    )
    assert "PUNCTUAL_SCRIPT_PATHS" in execute(root, an_attempt(code)).error


@needs("landlock scopes")
def test_command_lines_of_others_are_hidden_on_a_shared_machine(root: Path) -> None:
    code = (
        "import json, os\n"
        "def readable(path):\n"
        "    try: return bool(open(path).read(1))\n"
        "    except OSError: return False\n"
        f"print(json.dumps([readable('/proc/{os.getpid()}/cmdline'), readable('/proc/self/maps'),"
        " readable('/proc/meminfo')]))"
    )
    readable_files = {}
    for shared in (False, True):
        sandbox = a_sandbox("landlock", root, shared=shared)
        outcome = execute(root, an_attempt(code, "python"), sandbox=sandbox)
        readable_files[shared] = json.loads(outcome.output)
    assert readable_files == {False: [True, True, True], True: [False, True, True]}


@needs("landlock scopes")
def test_proc_files_stay_readable_when_caches_are_dropped(root: Path) -> None:
    """Otherwise the kernel drops unused entries of /proc, and their rules with them."""
    drop_caches = Path("/proc/sys/vm/drop_caches")
    if not os.access(drop_caches, os.W_OK):
        pytest.skip("only root can drop caches")
    code = (
        "import time\n"
        "def read():\n"
        "    for name in ('meminfo', 'self/maps'): open(f'/proc/{name}').read()\n"
        "read(); print('before', flush=True); time.sleep(1); read(); print('after')"
    )

    def drop_all_caches() -> None:
        for _ in range(3):  # the kernel spares recently used entries once
            drop_caches.write_text("2")

    log = Log(b"before\n", drop_all_caches)
    sandbox = a_sandbox("landlock", root, shared=True)
    outcome = execute(root, an_attempt(code, "python"), log=log, sandbox=sandbox)
    assert outcome.output == b"before\nafter\n", outcome.error


def test_bubblewrap_shows_only_processes_of_the_run(root: Path) -> None:
    sandbox = a_sandbox("bubblewrap", root)
    code = "import os; print(*[name for name in os.listdir('/proc') if name.isdigit()])"
    outcome = execute(root, an_attempt(code, "python"), sandbox=sandbox)
    assert outcome.output == b"1 2\n"  # the launcher and the script


def test_bubblewrap_limits_shared_memory(root: Path) -> None:
    code = (
        "import multiprocessing, os\n"
        "multiprocessing.Lock()\n"
        "def fill(path):\n"
        "    try:\n"
        "        with open(path, 'wb') as file: file.write(bytes(100_000_000))\n"
        "    except OSError as error: return error.errno\n"
        "print(fill('/dev/shm/a'), fill('/a'), fill('/dev/a'))"
    )
    attempt = an_attempt(code, "python")
    outcome = execute(root, attempt, sandbox=a_sandbox("bubblewrap", root))
    assert outcome.output == b"28 30 30\n", outcome.error  # full; read-only


@pytest.mark.skipif(sys.platform != "linux", reason="needs bubblewrap")
def test_failed_sandbox_runs_nothing(root: Path, tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: no namespaces left' >&2\nexit 1\n")
    broken.chmod(0o700)
    sandbox = Sandbox("bubblewrap", root.parent, bwrap_path=str(broken))
    outcome = execute(root, an_attempt("echo ran"), sandbox=sandbox)
    assert (outcome.status, outcome.retryable, outcome.output) == ("FAILED", True, b"")
    assert outcome.error == (
        "The script could not be started: its launcher or its sandbox failed\n"
        "bwrap: no namespaces left"
    )


@needs("landlock")
def test_filter_refused_by_the_kernel_runs_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seccomp, "build_filter", lambda **_: bytes(8))
    outcome = execute(root, an_attempt("echo ran"))
    assert (outcome.status, outcome.output) == ("FAILED", b"")
    assert outcome.error == "The sandbox could not be entered: Invalid argument"


LAUNCHED = """
import tempfile
from pathlib import Path
from tests.support.scripts.script_runs import an_attempt, execute, unconfined
code = "cat /proc/$PPID/environ; ls /proc/$PPID/fd"
print(execute(Path(tempfile.mkdtemp()), an_attempt(code), sandbox=unconfined()).error)
"""


def test_launcher_hides_from_its_script_without_a_sandbox() -> None:
    """Run as another user if the test runs as root, because root reads everything."""
    user = "nobody" if os.geteuid() == 0 else "ours"
    output = run_python(user, "-c", LAUNCHED)
    assert output.count("Permission denied") == 2
