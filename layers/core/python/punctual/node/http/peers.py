"""Finds the user that owns the other end of a loopback connection.

Linux knows the user that made each socket. The kernel answers for one pair of addresses through
`sock_diag` in 10 µs. Without it, /proc/net/tcp lists all sockets. Other systems do not provide the
owner.

A socket that its process closed has no inode and counts as unowned. The kernel then names root,
which may be the node's user.
"""

import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path

Address = tuple[str, int]

_SOCK_DIAG = 4  # netlink family
_BY_FAMILY = 20  # message type: query one socket
_REQUEST = 1
_HEADER = struct.Struct("=IHHII")
_ID = struct.Struct(">HH16s16s")
_QUESTION = struct.Struct("=BBBBI")
_REST = struct.Struct("=III")  # interface, cookie
_NO_COOKIE = (0, 0xFFFFFFFF, 0xFFFFFFFF)
_UID_AND_INODE = struct.Struct("=II")
_ANSWER = 4 + _ID.size + _REST.size + 12  # bytes before user and inode
_OPEN = frozenset({1, 4, 5})  # ESTABLISHED, FIN_WAIT1 and FIN_WAIT2: the client may still read
_TABLE = Path("/proc/net/tcp")
_OVERFLOW = Path("/proc/sys/kernel/overflowuid")


class Peers:
    """Finds the owner of a client's socket."""

    def __init__(self) -> None:
        self._kernel: socket.socket | None = None
        self._number = 0
        if sys.platform == "linux":
            with suppress(OSError):
                self._kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG)
                self._kernel.setblocking(False)
        self._nobody = _overflow_uid()

    def owner(self, client: Address, server: Address) -> int | None:
        """Return the user id of the socket at `client`, which is connected to `server`.

        It is None if the system does not provide it.
        """
        try:
            uid = self._by_kernel(client, server)
        except OSError:
            self.close()
            try:
                uid = owner_in_table(_TABLE.read_text(), client, server)
            except OSError:
                return None
        # All users of another user namespace have this number.
        return None if uid == self._nobody else uid

    def close(self) -> None:
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None

    def _by_kernel(self, client: Address, server: Address) -> int | None:
        kernel = self._kernel
        if kernel is None:
            raise OSError("there is no such interface here")
        self._number = self._number % 0xFFFFFFFF + 1
        ends = _ID.pack(client[1], server[1], _packed(client[0]), _packed(server[0]))
        states = 0xFFFFFFFF
        question = (
            _QUESTION.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, states)
            + ends
            + _REST.pack(*_NO_COOKIE)
        )
        length = _HEADER.size + len(question)
        kernel.send(_HEADER.pack(length, _BY_FAMILY, _REQUEST, self._number, 0) + question)
        while True:  # The kernel answered within `send`. Skip older answers.
            answer = kernel.recv(8_192)
            _, kind, _, number, _ = _HEADER.unpack_from(answer)
            if number == self._number:
                break
        if kind != _BY_FAMILY:
            (error,) = struct.unpack_from("=i", answer, _HEADER.size)
            if error == -2:  # ENOENT: no socket has these addresses
                return None
            raise OSError(-error, "the kernel does not answer")
        state = answer[_HEADER.size + 1]
        uid, inode = _UID_AND_INODE.unpack_from(answer, _HEADER.size + _ANSWER)
        return int(uid) if inode and state in _OPEN else None


def owner_in_table(table: str, client: Address, server: Address) -> int | None:
    """Return the owner of the socket from the text of /proc/net/tcp."""
    local, remote = _hexadecimal(client), _hexadecimal(server)
    for line in table.splitlines()[1:]:
        fields = line.split()
        if fields[1] == local and fields[2] == remote:
            is_open = int(fields[3], 16) in _OPEN and fields[9] != "0"
            return int(fields[7]) if is_open else None
    return None


def _packed(address: str) -> bytes:
    return socket.inet_aton(address).ljust(16, b"\0")


def _hexadecimal(address: Address) -> str:
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"


def _overflow_uid() -> int:
    """Return the user id that stands for users outside this namespace, or -1 if none is defined."""
    try:
        return int(_OVERFLOW.read_text())
    except (OSError, ValueError):
        return -1
