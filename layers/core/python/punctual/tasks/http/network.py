"""Connections to checked addresses. A stop request or a timeout can end each wait."""

# ruff: noqa: ARG002 -- httpcore defines the signatures; a Watch replaces its timeouts

import errno
import ipaddress
import math
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import thread_time
from typing import Any, TypeVar

import httpcore

from punctual.tasks.contract import Stop
from punctual.tasks.http.addresses import (
    Address,
    AddressNotAllowed,
    Network,
    Resolver,
    Unresolved,
    checked,
    literal,
)
from punctual.tasks.script.open_files import beginning

POLL_SECONDS = 0.1
CONNECT_SECONDS = 10.0
CPU_SECONDS = 2.0  # of an attempt; the longest answer takes some milliseconds
_T = TypeVar("_T")
SocketOption = (
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
)


class OutOfTime(Exception):
    """The attempt reached its timeout."""


class Stopped(Exception):
    """The attempt received a stop request."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Watch:
    """The conditions that end the waits of an attempt: deadline, stop request, CPU limit."""

    deadline: float
    stop: Stop
    monotonic: Callable[[], float]
    cpu_deadline: float = math.inf
    cpu: Callable[[], float] = thread_time  # CPU time of the thread, in seconds

    def left(self) -> float:
        """Return the seconds to wait until the next check. Raise if the attempt must stop."""
        if self.cpu() > self.cpu_deadline:
            # Endless 1xx answers, or a body in pieces of one byte, would use a whole core.
            raise httpcore.RemoteProtocolError(
                f"reading the answer takes over {CPU_SECONDS:g} s of processor time"
            )
        reason = self.stop.wanted()
        if reason:
            raise Stopped(reason)
        left = self.deadline - self.monotonic()
        if left <= 0:
            raise OutOfTime
        return min(left, POLL_SECONDS)


class CheckedBackend(httpcore.NetworkBackend):
    """Resolves a name once, checks every address, and connects to a checked address.

    It does not resolve the name again before it connects, which defeats DNS rebinding. The pool
    uses this backend for each new connection, also after a redirect.
    """

    def __init__(
        self,
        resolver: Resolver,
        *,
        opened: Sequence[Network] = (),
        closed_ports: Sequence[int] = (),
    ) -> None:
        self._resolver = resolver
        self._opened = tuple(opened)
        self._closed_ports = tuple(closed_ports)
        self._local = threading.local()

    @contextmanager
    def watched(self, watch: Watch) -> Iterator[None]:
        """Bound all waits of this thread inside the context by `watch`."""
        self._local.watch = watch
        try:
            yield
        finally:
            del self._local.watch

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore.NetworkStream:
        watch = self._watch()
        *earlier, last = self._addresses(host, port, watch)
        for address in earlier:
            with suppress(httpcore.ConnectError):
                return Stream(_connected(address, port, watch), self._watch)
        return Stream(_connected(last, port, watch), self._watch)

    def _addresses(self, host: str, port: int, watch: Watch) -> tuple[Address, ...]:
        def check() -> tuple[Address, ...]:
            found = checked(host, port, self._resolver, opened=self._opened)
            if port in self._closed_ports and any(_here(address) for address in found):
                raise AddressNotAllowed(
                    f"{host} may not be called: port {port} here is not a task's"
                )
            return found

        if literal(host) is not None:
            return check()
        try:
            return _in_background(check, watch)
        except Unresolved as error:
            raise httpcore.ConnectError(str(error)) from None

    def _watch(self) -> Watch:
        watch: Watch = self._local.watch
        return watch


class Stream(httpcore.NetworkStream):
    """A connection that waits in short steps. httpcore's timeouts bound a read, not an attempt."""

    def __init__(self, sock: socket.socket, watch: Callable[[], Watch]) -> None:
        self._socket = sock
        self._watch = watch

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            return _patiently(self._socket, lambda: self._socket.recv(max_bytes), self._watch())
        except OSError as error:
            raise httpcore.ReadError(_said(error)) from None

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        left = memoryview(buffer)
        try:
            while left:
                left = left[self._send(left) :]
        except OSError as error:
            raise httpcore.WriteError(_said(error)) from None

    def _send(self, data: memoryview) -> int:
        return _patiently(
            self._socket, lambda: self._socket.send(data), self._watch(), select.POLLOUT
        )

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        secured: socket.socket = self._socket
        try:
            wrapped = ssl_context.wrap_socket(
                self._socket, server_hostname=server_hostname, do_handshake_on_connect=False
            )
            secured = wrapped
            _patiently(wrapped, wrapped.do_handshake, self._watch())
        except OSError as error:
            secured.close()
            raise httpcore.ConnectError(_said(error)) from None
        except BaseException:
            secured.close()
            raise
        return Stream(wrapped, self._watch)

    def close(self) -> None:
        self._socket.close()

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return self._socket.fileno() < 0 or _ready(self._socket, select.POLLIN, 0)
        if info == "ssl_object" and isinstance(self._socket, ssl.SSLSocket):
            return self._socket
        return None


def _here(address: Address) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _patiently(
    sock: socket.socket, action: Callable[[], _T], watch: Watch, blocked_by: int = select.POLLIN
) -> _T:
    """Return the result of a non-blocking socket action, retried until the socket is ready.

    It checks the watch before each try, at least ten times a second.
    """
    while True:
        patience = watch.left()
        try:
            return action()
        except BlockingIOError:
            event = blocked_by
        except ssl.SSLWantReadError:
            event = select.POLLIN
        except ssl.SSLWantWriteError:
            event = select.POLLOUT
        _ready(sock, event, patience)


def _ready(sock: socket.socket, event: int, seconds: float) -> bool:
    poller = select.poll()
    poller.register(sock, event)
    return bool(poller.poll(seconds * 1000))


def _connected(address: Address, port: int, watch: Watch) -> socket.socket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with beginning():
            sock = _socket(family)
    except OSError as error:
        raise httpcore.ConnectError(_said(error)) from None
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _connect(sock, (str(address), port), watch)
    except OSError as error:
        sock.close()
        raise httpcore.ConnectError(_said(error)) from None
    except BaseException:
        sock.close()
        raise
    return sock


def _socket(family: int) -> socket.socket:
    return socket.socket(family, socket.SOCK_STREAM)


def _connect(sock: socket.socket, address: tuple[str, int], watch: Watch) -> None:
    failed = sock.connect_ex(address)
    give_up = watch.monotonic() + CONNECT_SECONDS
    while failed == errno.EINPROGRESS:
        if watch.monotonic() >= give_up:
            raise TimeoutError(errno.ETIMEDOUT, f"no connection within {CONNECT_SECONDS:g} s")
        if _ready(sock, select.POLLOUT, watch.left()):
            failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if failed:
        raise OSError(failed, os.strerror(failed))


def _in_background(resolve: Callable[[], _T], watch: Watch) -> _T:
    """Return the result of `resolve`, which runs in a thread of its own.

    The system's resolver cannot be interrupted. After a timeout or a stop, the thread is abandoned.
    """
    answers: list[_T] = []
    errors: list[BaseException] = []
    answered = threading.Event()

    def work() -> None:
        try:
            answers.append(resolve())
        except BaseException as error:
            errors.append(error)
        finally:
            answered.set()

    threading.Thread(target=work, name="resolve", daemon=True).start()
    while not answered.wait(watch.left()):
        continue
    if errors:
        raise errors[0]
    return answers[0]


def _said(error: OSError) -> str:
    """Return the error text of the system, without source locations of OpenSSL."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or type(error).__name__}"
    return error.strerror or type(error).__name__
