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
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24
_X32 = 0x40000000
_AF_UNIX = 1
_WHOLE_USER = 2  # PRIO_USER is 2 and IOPRIO_WHO_USER is 3, so the filter tests for at least 2


class Calls(NamedTuple):
    """System call numbers of an architecture.

    The calls in `of_process` take a process as first argument. The calls in `of_some` take a kind
    first and a process second.
    """

    architecture: int
    of_process: tuple[int, ...]
    of_some: tuple[int, ...]
    socket: int
    io_uring_setup: int


CALLS: Mapping[str, Calls] = MappingProxyType(
    {
        # prlimit64, sched_setparam, sched_setscheduler, sched_setattr; setpriority, ioprio_set
        "x86_64": Calls(0xC000003E, (302, 142, 144, 314), (141, 251), 41, 425),
        "aarch64": Calls(0xC00000B7, (261, 118, 119, 274), (140, 30), 198, 425),
    }
)

Step = tuple[int, int, int, int]


def program(unix_sockets: bool, machine: str = platform.machine()) -> bytes:
    """Return the filter, or no bytes if the machine's system call numbers are unknown."""
    calls = CALLS.get(machine)
    if calls is None:
        return b""
    steps: list[Step] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        # System call numbers differ by architecture.
        *_unless(_EQUAL, calls.architecture, errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        _fail(errno.ENOSYS),
    ]
    for number in calls.of_process:
        steps += _of(number, _if_not(_FIRST, 0, errno.EPERM))
    for number in calls.of_some:
        whole = [(_LOAD, 0, 0, _FIRST), (_AT_LEAST, 0, 1, _WHOLE_USER), _fail(errno.EPERM)]
        steps += _of(number, [*whole, *_if_not(_SECOND, 0, errno.EPERM)])
    if not unix_sockets:
        closed = [(_LOAD, 0, 0, _FIRST), (_EQUAL, 0, 1, _AF_UNIX), _fail(errno.EACCES)]
        steps += _of(calls.socket, closed)
        # io_uring opens sockets without the call above.
        steps += _of(calls.io_uring_setup, [_fail(errno.EPERM)])
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _fail(number: int) -> Step:
    return (_RETURN, 0, 0, _ERROR | number)


def _unless(test: int, value: int, number: int) -> list[Step]:
    return [(test, 1, 0, value), _fail(number)]


def _if_not(argument: int, value: int, number: int) -> list[Step]:
    """Return steps that fail unless the lower 32 bits of an argument have this value."""
    return [(_LOAD, 0, 0, argument), *_unless(_EQUAL, value, number)]


def _of(number: int, steps: list[Step]) -> list[Step]:
    """Return steps that apply to one system call and then allow it."""
    body = [*steps, (_RETURN, 0, 0, _ALLOW)]
    return [(_EQUAL, 0, len(body), number), *body]
