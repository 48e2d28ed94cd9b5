"""The filter of system calls, evaluated as by the kernel, for each architecture."""

import errno
import struct

import pytest

from punctual.tasks.script.seccomp import SYSTEM_CALLS, build_filter

ALLOWED = "allowed"
AF_UNIX, AF_INET = 1, 2
OWN_PROCESS, OTHER_PROCESS = 0, 4_321
MACHINES = sorted(SYSTEM_CALLS)


def filter_answer(
    machine: str, call: int, *arguments: int, unix: bool = False, arch: int = 0
) -> str:
    """Return the filter's answer to a call: allowed, or the name of an error."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", call, arch or SYSTEM_CALLS[machine].architecture, 0, *padded)
    steps = list(struct.iter_unpack("HBBI", build_filter(unix, machine)))
    step, register = 0, 0
    while True:
        code, jump_true, jump_false, value = steps[step]
        step += 1
        if code == 0x20:
            (register,) = struct.unpack_from("<I", data, value)
        elif code == 0x15:
            step += jump_true if register == value else jump_false
        elif code == 0x35:
            step += jump_true if register >= value else jump_false
        else:
            assert code == 0x06
            return ALLOWED if value == 0x7FFF0000 else errno.errorcode[value & 0xFFFF]


@pytest.mark.parametrize("machine", MACHINES)
def test_seccomp_denies_limits_and_priorities_of_other_processes(machine: str) -> None:
    calls = SYSTEM_CALLS[machine]
    for call in calls.with_process_first:
        assert filter_answer(machine, call, OWN_PROCESS) == ALLOWED
        assert filter_answer(machine, call, OTHER_PROCESS) == "EPERM"
    for call in calls.with_kind_first:
        assert filter_answer(machine, call, 1, OWN_PROCESS) == ALLOWED
        assert filter_answer(machine, call, 1, OTHER_PROCESS) == "EPERM"
        assert filter_answer(machine, call, 2, OWN_PROCESS) == "EPERM"
        assert filter_answer(machine, call, 3, OWN_PROCESS) == "EPERM"


@pytest.mark.parametrize("machine", MACHINES)
def test_seccomp_denies_unix_sockets_only_on_a_shared_node(machine: str) -> None:
    calls = SYSTEM_CALLS[machine]
    assert filter_answer(machine, calls.socket, AF_UNIX) == "EACCES"
    assert filter_answer(machine, calls.socket, AF_INET) == ALLOWED
    assert filter_answer(machine, calls.io_uring_setup, 8) == "EPERM"
    assert filter_answer(machine, calls.socket, AF_UNIX, unix=True) == ALLOWED
    assert filter_answer(machine, calls.io_uring_setup, 8, unix=True) == ALLOWED


@pytest.mark.parametrize("machine", MACHINES)
def test_seccomp_denies_calls_of_other_architectures(machine: str) -> None:
    socket = SYSTEM_CALLS[machine].socket
    assert filter_answer(machine, socket, AF_INET, arch=0x40000003) == "ENOSYS"  # i386
    assert filter_answer(machine, socket | 0x40000000, AF_INET) == "ENOSYS"  # x32


@pytest.mark.parametrize("machine", MACHINES)
def test_seccomp_allows_all_other_calls(machine: str) -> None:
    calls = SYSTEM_CALLS[machine]
    denied = {*calls.with_process_first, *calls.with_kind_first, calls.socket, calls.io_uring_setup}
    for call in set(range(470)) - denied:
        assert filter_answer(machine, call, OTHER_PROCESS, OTHER_PROCESS) == ALLOWED


def test_seccomp_has_no_filter_for_an_unknown_machine() -> None:
    assert build_filter(False, "riscv64") == b""
