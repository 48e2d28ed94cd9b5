"""The filter of system calls, carried out here as the kernel would, for each architecture."""

import errno
import struct

import pytest

from punctual.tasks.script.seccomp import SYSTEM_CALLS, build_filter

ALLOWED = "allowed"
AF_UNIX, AF_INET = 1, 2
OURSELVES, ANOTHER = 0, 4_321
MACHINES = sorted(SYSTEM_CALLS)


def answer(machine: str, call: int, *arguments: int, unix: bool = False, arch: int = 0) -> str:
    """What the filter answers to a call: allowed, or the name of an error."""
    given = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", call, arch or SYSTEM_CALLS[machine].architecture, 0, *given)
    steps = list(struct.iter_unpack("HBBI", build_filter(unix, machine)))
    at, register = 0, 0
    while True:
        code, jump_true, jump_false, value = steps[at]
        at += 1
        if code == 0x20:
            (register,) = struct.unpack_from("<I", data, value)
        elif code == 0x15:
            at += jump_true if register == value else jump_false
        elif code == 0x35:
            at += jump_true if register >= value else jump_false
        else:
            assert code == 0x06
            return ALLOWED if value == 0x7FFF0000 else errno.errorcode[value & 0xFFFF]


@pytest.mark.parametrize("machine", MACHINES)
def test_limits_and_priorities_of_others_are_denied(machine: str) -> None:
    calls = SYSTEM_CALLS[machine]
    for call in calls.with_process_first:
        assert answer(machine, call, OURSELVES) == ALLOWED
        assert answer(machine, call, ANOTHER) == "EPERM"
    for call in calls.with_kind_first:
        assert answer(machine, call, 1, OURSELVES) == ALLOWED
        assert answer(machine, call, 1, ANOTHER) == "EPERM"
        assert answer(machine, call, 2, OURSELVES) == "EPERM"
        assert answer(machine, call, 3, OURSELVES) == "EPERM"


@pytest.mark.parametrize("machine", MACHINES)
def test_unix_sockets_are_denied_only_where_people_share_the_node(machine: str) -> None:
    calls = SYSTEM_CALLS[machine]
    assert answer(machine, calls.socket, AF_UNIX) == "EACCES"
    assert answer(machine, calls.socket, AF_INET) == ALLOWED
    assert answer(machine, calls.io_uring_setup, 8) == "EPERM"
    assert answer(machine, calls.socket, AF_UNIX, unix=True) == ALLOWED
    assert answer(machine, calls.io_uring_setup, 8, unix=True) == ALLOWED


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_by_other_numbers_are_denied(machine: str) -> None:
    socket = SYSTEM_CALLS[machine].socket
    assert answer(machine, socket, AF_INET, arch=0x40000003) == "ENOSYS"  # i386
    assert answer(machine, socket | 0x40000000, AF_INET) == "ENOSYS"  # x32


@pytest.mark.parametrize("machine", MACHINES)
def test_all_else_is_allowed(machine: str) -> None:
    calls = SYSTEM_CALLS[machine]
    named = {*calls.with_process_first, *calls.with_kind_first, calls.socket, calls.io_uring_setup}
    for call in set(range(470)) - named:
        assert answer(machine, call, ANOTHER, ANOTHER) == ALLOWED


def test_a_machine_whose_calls_are_not_known_has_no_filter() -> None:
    assert build_filter(False, "riscv64") == b""
