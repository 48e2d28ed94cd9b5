"""Build a filter of system calls that Landlock does not cover.

`prlimit` and the calls that set a priority reach any process of the same user. A script could
end the node with a limit. On a node with tokens, the filter also denies UNIX sockets. Through
one of them the user's service manager would start a program outside of the sandbox.
"""

import errno
import platform
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
# struct seccomp_data: number, architecture, instruction pointer, six arguments of 8 bytes.
_CALL_NUMBER_OFFSET, _ARCHITECTURE_OFFSET = 0, 4
_FIRST_ARGUMENT_OFFSET, _SECOND_ARGUMENT_OFFSET = 16, 24
_FIRST_X32_NUMBER = 0x40000000
_AF_UNIX = 1
_WHOLE_USER = 2  # PRIO_USER is 2 and IOPRIO_WHO_USER is 3, so the filter tests for at least 2


class SystemCalls(NamedTuple):
    """System call numbers of an architecture.

    The calls in `with_process_first` take a process as first argument. The calls in
    `with_kind_first` take a kind first and a process second.
    """

    architecture: int
    with_process_first: tuple[int, ...]
    with_kind_first: tuple[int, ...]
    socket: int
    io_uring_setup: int


SYSTEM_CALLS: Mapping[str, SystemCalls] = MappingProxyType(
    {
        # prlimit64, sched_setparam, sched_setscheduler, sched_setattr; setpriority, ioprio_set
        "x86_64": SystemCalls(0xC000003E, (302, 142, 144, 314), (141, 251), 41, 425),
        "aarch64": SystemCalls(0xC00000B7, (261, 118, 119, 274), (140, 30), 198, 425),
    }
)

Instruction = tuple[int, int, int, int]


def build_filter(unix_sockets: bool, machine: str = platform.machine()) -> bytes:
    """Return the filter, or no bytes if the machine's system call numbers are unknown."""
    calls = SYSTEM_CALLS.get(machine)
    if calls is None:
        return b""
    instructions: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        # System call numbers differ by architecture.
        *_fail_unless(_EQUAL, calls.architecture, errno.ENOSYS),
        (_LOAD, 0, 0, _CALL_NUMBER_OFFSET),
        (_AT_LEAST, 0, 1, _FIRST_X32_NUMBER),
        _fail(errno.ENOSYS),
    ]
    for number in calls.with_process_first:
        instructions += _for_call(
            number, _fail_unless_argument(_FIRST_ARGUMENT_OFFSET, 0, errno.EPERM)
        )
    for number in calls.with_kind_first:
        kind_check = [
            (_LOAD, 0, 0, _FIRST_ARGUMENT_OFFSET),
            (_AT_LEAST, 0, 1, _WHOLE_USER),
            _fail(errno.EPERM),
        ]
        instructions += _for_call(
            number, [*kind_check, *_fail_unless_argument(_SECOND_ARGUMENT_OFFSET, 0, errno.EPERM)]
        )
    if not unix_sockets:
        unix_socket_check = [
            (_LOAD, 0, 0, _FIRST_ARGUMENT_OFFSET),
            (_EQUAL, 0, 1, _AF_UNIX),
            _fail(errno.EACCES),
        ]
        instructions += _for_call(calls.socket, unix_socket_check)
        # io_uring opens sockets without the call above.
        instructions += _for_call(calls.io_uring_setup, [_fail(errno.EPERM)])
    instructions.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in instructions)


def _fail(error_number: int) -> Instruction:
    return (_RETURN, 0, 0, _ERROR | error_number)


def _fail_unless(test: int, value: int, error_number: int) -> list[Instruction]:
    return [(test, 1, 0, value), _fail(error_number)]


def _fail_unless_argument(argument: int, value: int, error_number: int) -> list[Instruction]:
    """Return steps that fail unless the lower 32 bits of an argument have this value."""
    return [(_LOAD, 0, 0, argument), *_fail_unless(_EQUAL, value, error_number)]


def _for_call(number: int, instructions: list[Instruction]) -> list[Instruction]:
    """Return steps that apply to one system call and then allow it."""
    body = [*instructions, (_RETURN, 0, 0, _ALLOW)]
    return [(_EQUAL, 0, len(body), number), *body]
