"""Restrict the script's process just before it executes the script."""

import ctypes
import os
import sys
from typing import Any

from punctual.tasks.script import landlock

PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 4, 22, 24, 38
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION_3 = 0x20080522
MAX_CAPABILITIES = 64
MAX_OOM_SCORE = b"1000"
INSTRUCTION_BYTES = 8


def hide_process(library: ctypes.CDLL) -> None:
    """Deny other processes of this user the memory, descriptors and environment of this one."""
    _prctl(library, PR_SET_DUMPABLE, 0)


def prefer_oom_kill(library: ctypes.CDLL) -> None:
    """Make the kernel kill this process, not the node, if memory runs out."""
    # Root owns the files of a non-dumpable process. The script is dumpable anyway.
    _prctl(library, PR_SET_DUMPABLE, 1)
    try:
        file = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        # /proc is missing or read-only, as in some containers.
        return
    os.write(file, MAX_OOM_SCORE)
    os.close(file)


def confine(library: ctypes.CDLL, rules: dict[str, Any]) -> None:
    """Remove every right that a script must not have from this process, for good."""
    _prctl(library, PR_SET_NO_NEW_PRIVS, 1)
    _drop_capabilities(library)
    if rules["abi"]:
        landlock.restrict(library, rules["abi"], rules["files"])
    if rules["filter"]:
        _filter_calls(library, rules["filter"])


def _drop_capabilities(library: ctypes.CDLL) -> None:
    """Drop all capabilities. Then even root obeys file permissions and cannot trace at will."""
    for capability in range(MAX_CAPABILITIES):
        # Ignore errors. Other users hold no capability, and numbers above the last one fail.
        library.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), *_zeros(3))
    header = CAPABILITY_VERSION_3.to_bytes(4, sys.byteorder) + bytes(4)
    _check_result(library.capset(header, bytes(24)))


def _filter_calls(library: ctypes.CDLL, program: bytes) -> None:
    instructions = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: number of steps, padding, address of the steps.
    address = ctypes.addressof(instructions).to_bytes(8, sys.byteorder)
    fprog = (len(program) // INSTRUCTION_BYTES).to_bytes(2, sys.byteorder) + bytes(6) + address
    _check_result(
        library.prctl(PR_SET_SECCOMP, ctypes.c_ulong(SECCOMP_MODE_FILTER), fprog, *_zeros(2))
    )


def _prctl(library: ctypes.CDLL, option: int, value: int) -> None:
    _check_result(library.prctl(option, ctypes.c_ulong(value), *_zeros(3)))


def _zeros(count: int) -> list[ctypes.c_ulong]:
    return [ctypes.c_ulong(0)] * count


def _check_result(result: int) -> None:
    if result != 0:
        error_number = ctypes.get_errno()
        raise OSError(error_number, os.strerror(error_number))
