"""Which user's process is at the other end of a connection on loopback.

Linux knows the user that made each socket. The kernel answers for one pair of addresses at once
(`sock_diag`, 10 µs); where that is missing, /proc/net/tcp lists all sockets. Other systems do not
tell. A socket whose process closed it has no inode any more and counts as nobody's: the kernel
then names root, which the node may be.
"""

import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path

Address = tuple[str, int]

_SOCK_DIAG = 4  # the netlink family
_BY_FAMILY = 20  # ask for one socket
_REQUEST = 1
_HEADER = struct.Struct("=IHHII")
_ID = struct.Struct(">HH16s16s")
_QUESTION = struct.Struct("=BBBBI")
_REST = struct.Struct("=III")  # interface, cookie
_NO_COOKIE = (0, 0xFFFFFFFF, 0xFFFFFFFF)
_UID_AND_INODE = struct.Struct("=II")
_ANSWER = 4 + _ID.size + _REST.size + 12  # what stands before user and inode
_OPEN = frozenset({1, 4, 5})  # ESTABLISHED, FIN_WAIT1 and FIN_WAIT2: the client may still read
_TABLE = Path("/proc/net/tcp")
_OVERFLOW = Path("/proc/sys/kernel/overflowuid")


class Peers:
    """Tells whose socket a client's is; None where the system does not tell."""

    def __init__(self) -> None:
        self._kernel: socket.socket | None = None
        self._number = 0
        if sys.platform == "linux":
            with suppress(OSError):
                self._kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG)
                self._kernel.setblocking(False)
        self._nobody = _overflow_uid()

    def owner(self, client: Address, server: Address) -> int | None:
        """Return the user id of the socket at `client`, which is connected to `server`."""
        try:
            uid = self._by_kernel(client, server)
        except OSError:
            self.close()
            try:
                uid = owner_in_table(_TABLE.read_text(), client, server)
            except OSError:
                return None
        # Users of another user namespace are all shown as this one.
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
        while True:  # the kernel has answered within `send`; older answers are passed over
            answer = kernel.recv(8_192)
            _, kind, _, number, _ = _HEADER.unpack_from(answer)
            if number == self._number:
                break
        if kind != _BY_FAMILY:
            (error,) = struct.unpack_from("=i", answer, _HEADER.size)
            if error == -2:  # ENOENT: there is no such socket
                return None
            raise OSError(-error, "the kernel does not answer")
        state = answer[_HEADER.size + 1]
        uid, inode = _UID_AND_INODE.unpack_from(answer, _HEADER.size + _ANSWER)
        return int(uid) if inode and state in _OPEN else None


def owner_in_table(table: str, client: Address, server: Address) -> int | None:
    """Find the owner in the text of /proc/net/tcp."""
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
    """Return the number that stands for all users that have none here; -1 if there is none."""
    try:
        return int(_OVERFLOW.read_text())
    except (OSError, ValueError):
        return -1
