"""Connections to checked addresses. A stop request or a timeout can end each wait."""

# ruff: noqa: ARG002 -- httpcore defines the signatures; `WaitLimits` replaces its timeouts

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

from punctual.tasks.contract import StopRequest
from punctual.tasks.http.addresses import (
    AddressNotAllowed,
    IpAddress,
    IpNetwork,
    Resolver,
    Unresolved,
    parse_literal_address,
    resolve_checked,
)
from punctual.tasks.script.open_files import not_begun_at_file_limit

POLL_SECONDS = 0.1
MAX_CONNECT_SECONDS = 10.0
MAX_ATTEMPT_CPU_SECONDS = 2.0  # of an attempt; the longest answer takes some milliseconds
_T = TypeVar("_T")
SocketOption = (
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
)


class DeadlineReached(Exception):
    """The attempt reached its timeout."""


class Stopped(Exception):
    """The attempt received a stop request."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class WaitLimits:
    """The conditions that end the waits of an attempt: deadline, stop request, CPU limit."""

    deadline: float
    stop: StopRequest
    monotonic: Callable[[], float]
    cpu_deadline: float = math.inf
    cpu_time: Callable[[], float] = thread_time  # CPU time of the thread, in seconds

    def next_wait_seconds(self) -> float:
        """Return the seconds to wait until the next check. Raise if the attempt must stop."""
        if self.cpu_time() > self.cpu_deadline:
            # Endless 1xx answers, or a body in pieces of one byte, would use a whole core.
            raise httpcore.RemoteProtocolError(
                f"reading the answer takes over {MAX_ATTEMPT_CPU_SECONDS:g} s of processor time"
            )
        reason = self.stop.reason()
        if reason:
            raise Stopped(reason)
        remaining = self.deadline - self.monotonic()
        if remaining <= 0:
            raise DeadlineReached
        return min(remaining, POLL_SECONDS)


class CheckedBackend(httpcore.NetworkBackend):
    """Resolves a name once, checks every address, and connects to a checked address.

    It does not resolve the name again before it connects, which defeats DNS rebinding. The pool
    uses this backend for each new connection, also after a redirect.
    """

    def __init__(
        self,
        resolver: Resolver,
        *,
        open_networks: Sequence[IpNetwork] = (),
        closed_ports: Sequence[int] = (),
    ) -> None:
        self._resolver = resolver
        self._open_networks = tuple(open_networks)
        self._closed_ports = tuple(closed_ports)
        self._local = threading.local()

    @contextmanager
    def limited_by(self, limits: WaitLimits) -> Iterator[None]:
        """Bound all waits of this thread inside the context by `limits`."""
        self._local.limits = limits
        try:
            yield
        finally:
            del self._local.limits

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore.NetworkStream:
        limits = self._current_limits()
        *other_addresses, last_address = self._resolve(host, port, limits)
        for address in other_addresses:
            with suppress(httpcore.ConnectError):
                return LimitedStream(_open_connection(address, port, limits), self._current_limits)
        return LimitedStream(_open_connection(last_address, port, limits), self._current_limits)

    def _resolve(self, host: str, port: int, limits: WaitLimits) -> tuple[IpAddress, ...]:
        def check() -> tuple[IpAddress, ...]:
            addresses = resolve_checked(
                host, port, self._resolver, open_networks=self._open_networks
            )
            if port in self._closed_ports and any(_is_loopback(address) for address in addresses):
                raise AddressNotAllowed(
                    f"{host} may not be called: tasks may not use port {port} here"
                )
            return addresses

        if parse_literal_address(host) is not None:
            return check()
        try:
            return _resolve_in_background(check, limits)
        except Unresolved as error:
            raise httpcore.ConnectError(str(error)) from None

    def _current_limits(self) -> WaitLimits:
        limits: WaitLimits = self._local.limits
        return limits


class LimitedStream(httpcore.NetworkStream):
    """A connection that waits in short steps. httpcore's timeouts bound a read, not an attempt."""

    def __init__(self, sock: socket.socket, current_limits: Callable[[], WaitLimits]) -> None:
        self._socket = sock
        self._current_limits = current_limits

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            return _call_when_ready(
                self._socket, lambda: self._socket.recv(max_bytes), self._current_limits()
            )
        except OSError as error:
            raise httpcore.ReadError(_error_text(error)) from None

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        remaining = memoryview(buffer)
        try:
            while remaining:
                remaining = remaining[self._send(remaining) :]
        except OSError as error:
            raise httpcore.WriteError(_error_text(error)) from None

    def _send(self, data: memoryview) -> int:
        return _call_when_ready(
            self._socket, lambda: self._socket.send(data), self._current_limits(), select.POLLOUT
        )

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        open_socket: socket.socket = self._socket
        try:
            tls_socket = ssl_context.wrap_socket(
                self._socket, server_hostname=server_hostname, do_handshake_on_connect=False
            )
            open_socket = tls_socket
            _call_when_ready(tls_socket, tls_socket.do_handshake, self._current_limits())
        except OSError as error:
            open_socket.close()
            raise httpcore.ConnectError(_error_text(error)) from None
        except BaseException:
            open_socket.close()
            raise
        return LimitedStream(tls_socket, self._current_limits)

    def close(self) -> None:
        self._socket.close()

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return self._socket.fileno() < 0 or _wait_until_ready(self._socket, select.POLLIN, 0)
        if info == "ssl_object" and isinstance(self._socket, ssl.SSLSocket):
            return self._socket
        return None


def _is_loopback(address: IpAddress) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _call_when_ready(
    sock: socket.socket,
    action: Callable[[], _T],
    limits: WaitLimits,
    default_event: int = select.POLLIN,
) -> _T:
    """Return the result of a non-blocking socket action, retried until the socket is ready.

    It checks the limits before each try, at least ten times a second.
    """
    while True:
        wait_seconds = limits.next_wait_seconds()
        try:
            return action()
        except BlockingIOError:
            event = default_event
        except ssl.SSLWantReadError:
            event = select.POLLIN
        except ssl.SSLWantWriteError:
            event = select.POLLOUT
        _wait_until_ready(sock, event, wait_seconds)


def _wait_until_ready(sock: socket.socket, event: int, seconds: float) -> bool:
    poller = select.poll()
    poller.register(sock, event)
    return bool(poller.poll(seconds * 1000))


def _open_connection(address: IpAddress, port: int, limits: WaitLimits) -> socket.socket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with not_begun_at_file_limit():
            sock = _new_socket(family)
    except OSError as error:
        raise httpcore.ConnectError(_error_text(error)) from None
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _connect(sock, (str(address), port), limits)
    except OSError as error:
        sock.close()
        raise httpcore.ConnectError(_error_text(error)) from None
    except BaseException:
        sock.close()
        raise
    return sock


def _new_socket(family: int) -> socket.socket:
    return socket.socket(family, socket.SOCK_STREAM)


def _connect(sock: socket.socket, address: tuple[str, int], limits: WaitLimits) -> None:
    error_number = sock.connect_ex(address)
    give_up_at = limits.monotonic() + MAX_CONNECT_SECONDS
    while error_number == errno.EINPROGRESS:
        if limits.monotonic() >= give_up_at:
            raise TimeoutError(errno.ETIMEDOUT, f"no connection within {MAX_CONNECT_SECONDS:g} s")
        if _wait_until_ready(sock, select.POLLOUT, limits.next_wait_seconds()):
            error_number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error_number:
        raise OSError(error_number, os.strerror(error_number))


def _resolve_in_background(resolve: Callable[[], _T], limits: WaitLimits) -> _T:
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
    while not answered.wait(limits.next_wait_seconds()):
        continue
    if errors:
        raise errors[0]
    return answers[0]


def _error_text(error: OSError) -> str:
    """Return the error text of the system, without source locations of OpenSSL."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or type(error).__name__}"
    return error.strerror or type(error).__name__
