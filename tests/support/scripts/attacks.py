"""The code of a hostile script. Each attack returns its result or the error that stopped it.

The script receives this file as source, so the file imports nothing of ours.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
TARGET = json.load(sys.stdin) if __name__ == "__main__" else {}
Attack = Callable[[int, str], str]
ATTACKS: dict[str, Attack] = {}


def attack(function: Attack) -> Attack:
    ATTACKS[function.__name__] = function
    return function


def check_result(result: int) -> None:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@attack
def read_the_key_through_an_open_descriptor(node: int, data: str) -> str:
    problems = []
    for name in os.listdir(f"/proc/{node}/fd"):
        try:
            with open(f"/proc/{node}/fd/{name}", "rb") as file:
                file.seek(0)
                content = file.read(100)
        except OSError as error:
            problems.append(error)
            continue
        if b"key" in content:
            return content.decode()
    raise problems[-1]


@attack
def read_the_key(node: int, data: str) -> str:
    return Path(data, "token.key").read_text()


@attack
def read_the_key_of_secrets(node: int, data: str) -> str:
    return Path(data, "secrets.key").read_text("latin-1")


@attack
def list_the_data_folder(node: int, data: str) -> str:
    names = os.listdir(data)
    if "token.key" not in names:
        raise FileNotFoundError(f"only {names}, the way to the run's own folder")
    return str(names)


@attack
def write_to_the_database(node: int, data: str) -> str:
    with open(f"{data}/punctual.db", "ab") as file:
        file.write(b" and one more")
    return "written"


@attack
def cut_the_database(node: int, data: str) -> str:
    os.truncate(f"{data}/punctual.db", 4)
    return "cut"


@attack
def delete_a_file(node: int, data: str) -> str:
    os.unlink(TARGET["other"] + "/secret")
    return "deleted"


@attack
def make_a_file(node: int, data: str) -> str:
    with open(TARGET["other"] + "/more", "w") as file:
        file.write("more")
    return "made"


@attack
def write_through_a_symbolic_link(node: int, data: str) -> str:
    link = tempfile.mktemp()
    os.symlink(f"{data}/punctual.db", link)
    with open(link, "ab") as file:
        file.write(b" and one more")
    return "written"


@attack
def write_through_a_hard_link(node: int, data: str) -> str:
    link = tempfile.mktemp()
    os.link(f"{data}/punctual.db", link)
    with open(link, "ab") as file:
        file.write(b" and one more")
    return "written"


@attack
def change_the_rights_of_a_folder(node: int, data: str) -> str:
    os.chmod(TARGET["other"], 0o755)
    return "changed"


@attack
def take_a_folder_by_renaming(node: int, data: str) -> str:
    os.rename(TARGET["other"], tempfile.mktemp())
    return "renamed"


@attack
def reach_the_key_through_the_root_of_a_process(node: int, data: str) -> str:
    try:
        return Path(f"/proc/{node}/root{data}", "token.key").read_text()
    except OSError:
        return Path(f"/proc/self/root{data}", "token.key").read_text()


@attack
def reach_the_key_through_the_folder_of_a_process(node: int, data: str) -> str:
    up = "../" * 20
    return Path(f"/proc/{node}/cwd/{up}{data}", "token.key").read_text()


@attack
def read_the_environment(node: int, data: str) -> str:
    environment = Path(f"/proc/{node}/environ").read_bytes()
    return environment[environment.index(b"NODES_SECRET") :].decode()


@attack
def open_the_memory(node: int, data: str) -> str:
    with open(f"/proc/{node}/mem", "rb"):
        return "opened"


@attack
def attach_a_debugger(node: int, data: str) -> str:
    PTRACE_SEIZE = 0x4206
    check_result(LIBC.ptrace(PTRACE_SEIZE, node, None, None))
    return "attached"


@attack
def copy_a_descriptor(node: int, data: str) -> str:
    PIDFD_GETFD = 438
    check_result(LIBC.syscall(PIDFD_GETFD, os.pidfd_open(node), 0, 0))
    return "copied"


@attack
def signal_the_node(node: int, data: str) -> str:
    os.kill(node, signal.SIGCONT)
    return "signalled"


@attack
def limit_the_node(node: int, data: str) -> str:
    resource.prlimit(node, resource.RLIMIT_CORE, (0, 0))
    return "limited"


@attack
def slow_the_node(node: int, data: str) -> str:
    os.setpriority(os.PRIO_PROCESS, node, 0)
    return "slowed"


@attack
def slow_all_of_the_user(node: int, data: str) -> str:
    os.setpriority(os.PRIO_USER, 0, 0)  # no effect if it succeeds
    return "slowed"


@attack
def call_an_abstract_socket(node: int, data: str) -> str:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(f"\0punctual-test-{node}")
    return "connected"


@attack
def call_a_named_socket(node: int, data: str) -> str:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(TARGET["bus"])
    return "connected"


@attack
def write_where_any_user_may(node: int, data: str) -> str:
    with open(f"/var/tmp/punctual-test-{node}", "w") as file:
        file.write("written")
    os.unlink(f"/var/tmp/punctual-test-{node}")
    return "written"


if __name__ == "__main__":
    results = {}
    for name, attempt in ATTACKS.items():
        try:
            results[name] = [True, str(attempt(TARGET["node"], TARGET["data"]))]
        except Exception as error:
            results[name] = [False, f"{type(error).__name__}: {error}"]
    print(json.dumps(results))
