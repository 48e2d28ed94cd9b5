"""Admission of callers while `PUNCTUAL_AUTH` is off.

The node admits its own user, and callers with the token of the data folder.
"""

import hmac
import os
import secrets
import socket
import struct
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from punctual.domain.tenants.roles import Role
from punctual.node.files.data_folder import StoreError
from punctual.node.files.durable import read_or_create
from punctual.node.http.authentication import PUBLIC_CALLER, PUBLIC_RAW_PATHS, sent_token
from punctual.tasks.script.sandbox import LOCAL_TENANT
from punctual.web.http.problems import CHALLENGE_HEADER, RequestRejected
from punctual.web.http.request import Caller

Address = tuple[str, int]

_SOCK_DIAG_FAMILY = 4  # netlink family
_SOCKET_QUERY = 20  # message type: query one socket
_REQUEST_FLAG = 1
_NETLINK_HEADER = struct.Struct("=IHHII")
_ADDRESSES = struct.Struct(">HH16s16s")
_QUERY_FIELDS = struct.Struct("=BBBBI")
_INTERFACE_AND_COOKIE = struct.Struct("=III")  # interface, cookie
_NO_COOKIE = (0, 0xFFFFFFFF, 0xFFFFFFFF)
_UID_AND_INODE = struct.Struct("=II")
_UID_OFFSET = 4 + _ADDRESSES.size + _INTERFACE_AND_COOKIE.size + 12  # bytes before user and inode
# ESTABLISHED, FIN_WAIT1 and FIN_WAIT2: the client may still read.
_READABLE_TCP_STATES = frozenset({1, 4, 5})
_TCP_TABLE = Path("/proc/net/tcp")
_OVERFLOW_UID_FILE = Path("/proc/sys/kernel/overflowuid")
LOCAL_TOKEN_FILE = "local-token"  # in the data folder
_LOCAL_TOKEN_BYTES = 32


class Peers:
    """Finds the user that owns the other end of a loopback connection.

    Linux knows the user that made each socket. The kernel answers for one pair of addresses
    through `sock_diag` in 10 µs. Without it, /proc/net/tcp lists all sockets. Other systems do not
    provide the owner.

    A socket that its process closed has no inode and counts as unowned. The kernel then names
    root, which may be the node's user.
    """

    def __init__(self) -> None:
        self._netlink_socket: socket.socket | None = None
        self._sequence_number = 0
        if sys.platform == "linux":
            with suppress(OSError):
                self._netlink_socket = socket.socket(
                    socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG_FAMILY
                )
                self._netlink_socket.setblocking(False)
        self._overflow_uid = _read_overflow_uid()

    def find_owner(self, client: Address, server: Address) -> int | None:
        """Return the user id of the socket at `client`, which is connected to `server`.

        It is None if the system does not provide it.
        """
        try:
            uid = self._query_kernel(client, server)
        except OSError:
            self.close()
            try:
                uid = find_owner_in_table(_TCP_TABLE.read_text(), client, server)
            except OSError:
                return None
        # All users of another user namespace have this number.
        return None if uid == self._overflow_uid else uid

    def close(self) -> None:
        if self._netlink_socket is not None:
            self._netlink_socket.close()
            self._netlink_socket = None

    def _query_kernel(self, client: Address, server: Address) -> int | None:
        netlink_socket = self._netlink_socket
        if netlink_socket is None:
            raise OSError("there is no such interface here")
        self._sequence_number = self._sequence_number % 0xFFFFFFFF + 1
        addresses = _ADDRESSES.pack(
            client[1], server[1], _pack_address(client[0]), _pack_address(server[0])
        )
        states = 0xFFFFFFFF
        query = (
            _QUERY_FIELDS.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, states)
            + addresses
            + _INTERFACE_AND_COOKIE.pack(*_NO_COOKIE)
        )
        length = _NETLINK_HEADER.size + len(query)
        netlink_socket.send(
            _NETLINK_HEADER.pack(length, _SOCKET_QUERY, _REQUEST_FLAG, self._sequence_number, 0)
            + query
        )
        while True:  # The kernel answered within `send`. Skip older answers.
            answer = netlink_socket.recv(8_192)
            _, message_type, _, sequence_number, _ = _NETLINK_HEADER.unpack_from(answer)
            if sequence_number == self._sequence_number:
                break
        if message_type != _SOCKET_QUERY:
            (error,) = struct.unpack_from("=i", answer, _NETLINK_HEADER.size)
            if error == -2:  # ENOENT: no socket has these addresses
                return None
            raise OSError(-error, "the kernel does not answer")
        state = answer[_NETLINK_HEADER.size + 1]
        uid, inode = _UID_AND_INODE.unpack_from(answer, _NETLINK_HEADER.size + _UID_OFFSET)
        return int(uid) if inode and state in _READABLE_TCP_STATES else None


def find_owner_in_table(table: str, client: Address, server: Address) -> int | None:
    """Return the owner of the socket from the text of /proc/net/tcp."""
    local, remote = _hex_address(client), _hex_address(server)
    for row in table.splitlines()[1:]:
        fields = row.split()
        if fields[1] == local and fields[2] == remote:
            is_open = int(fields[3], 16) in _READABLE_TCP_STATES and fields[9] != "0"
            return int(fields[7]) if is_open else None
    return None


def _pack_address(address: str) -> bytes:
    return socket.inet_aton(address).ljust(16, b"\0")


def _hex_address(address: Address) -> str:
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"


def _read_overflow_uid() -> int:
    """Return the user id that stands for users outside this namespace, or -1 if none is defined."""
    try:
        return int(_OVERFLOW_UID_FILE.read_text())
    except (OSError, ValueError):
        return -1


class OwnUser:
    """Admits the node's own user by its socket, and each other caller by the token of a file.

    Root counts as another user, because it can read the file.
    """

    def __init__(
        self, socket_owner: Callable[[Address, Address], int | None], token: str, uid: int
    ) -> None:
        self.socket_owner = socket_owner
        self._token = token.encode()
        self._uid = uid

    def authenticate(
        self, path: bytes, headers: Iterable[tuple[bytes, bytes]], address: str, uid: int | None
    ) -> Caller:
        """Return the caller, or raise the error that rejects it. `uid` owns the client's socket."""
        if path.rstrip(b"/") in PUBLIC_RAW_PATHS:
            return PUBLIC_CALLER._replace(address=address)
        if uid == self._uid or self._has_token(headers):
            return Caller(LOCAL_TENANT, LOCAL_TENANT, Role.ADMIN, "", address)
        raise RequestRejected(
            "UNAUTHENTICATED",
            "Without a token this node takes calls only from the user that runs it. Call as that "
            f"user, or send the token in the file {LOCAL_TOKEN_FILE} of its data folder: "
            "Authorization: Bearer <token>.",
            CHALLENGE_HEADER,
        )

    def _has_token(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        token = sent_token(headers)
        return token is not None and hmac.compare_digest(token.encode("latin-1"), self._token)


def load_local_token(folder: Path) -> str:
    """Return the token that only the node's own user can read. The first start creates it."""
    path = folder / LOCAL_TOKEN_FILE
    data = read_or_create(
        path, lambda: secrets.token_urlsafe(_LOCAL_TOKEN_BYTES).encode(), "The token"
    )
    token = data.decode("ascii", "replace").strip()
    if len(token) < _LOCAL_TOKEN_BYTES:
        raise StoreError(f"The token {path} is too short: remove it, and the node makes another.")
    return token


def own_uid() -> int:
    return os.geteuid()
