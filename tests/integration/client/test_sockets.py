"""The client with real sockets: closed, reset, partial, missing and slow answers."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import msgspec
import pytest

from punctual.client import Retries, Unavailable
from tests.support.client.kinds import JOB, NO_DELAY, both_clients

Behaviour = Callable[["Peer", socket.socket], None]
OK = msgspec.json.encode(JOB)
OFTEN = NO_DELAY._replace(attempts=30)  # for a machine that is busy with other tests
JOB_ID = "01a1f03b-abb9-7019-9650-e41c1771d654"
NOW: dict[str, Any] = {"name": "a", "schedule_type": "IMMEDIATE"}


class Peer:
    """A server with one behaviour for each connection. The last one applies to all later ones."""

    def __init__(self, *behaviours: Behaviour) -> None:
        self._behaviours = list(behaviours)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._server = threading.Thread(target=self._serve)
        self._threads: list[threading.Thread] = []
        self.over = threading.Event()
        self.requests: list[bytes] = []
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def begin(self) -> None:
        self._server.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if self.over.is_set():
                connection.close()
                return
            behaviour = self._behaviours[min(self.connections, len(self._behaviours) - 1)]
            self.connections += 1
            thread = threading.Thread(target=self._meet, args=(behaviour, connection))
            self._threads.append(thread)
            thread.start()

    def _meet(self, behaviour: Behaviour, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(10)
            behaviour(self, connection)

    def end(self) -> None:
        self.over.set()
        socket.create_connection(self._listener.getsockname()).close()
        for thread in (self._server, *self._threads):
            thread.join(timeout=10)
        self._listener.close()

    def read(self, connection: socket.socket) -> bytes:
        """Read one request with its body, and return its head."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += _receive(connection)
        head, _, rest = data.partition(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-len")]
        length = int(lengths[0].split(b":")[1]) if lengths else 0
        while len(rest) < length:
            rest += _receive(connection)
        self.requests.append(head)
        return head


def _receive(connection: socket.socket) -> bytes:
    data = connection.recv(65_536)
    if not data:
        raise ConnectionError("the client hung up")
    return data


def answers(peer: Peer, connection: socket.socket) -> None:
    peer.read(connection)
    connection.sendall(b"HTTP/1.1 202 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(OK), OK))


def closes(peer: Peer, connection: socket.socket) -> None:
    peer.read(connection)


def closes_at_once(_peer: Peer, _connection: socket.socket) -> None:
    """Read nothing. The client cannot know that."""


def resets(peer: Peer, connection: socket.socket) -> None:
    peer.read(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def answers_partly(peer: Peer, connection: socket.socket) -> None:
    peer.read(connection)
    connection.sendall(b"HTTP/1.1 202 OK\r\ncontent-length: 500\r\n\r\n{")


def answers_other_protocol(peer: Peer, connection: socket.socket) -> None:
    peer.read(connection)
    connection.sendall(b"SSH-2.0-OpenSSH\r\n\r\n")


def hangs(peer: Peer, connection: socket.socket) -> None:
    peer.read(connection)
    peer.over.wait(10)


def answers_slowly(peer: Peer, connection: socket.socket) -> None:
    """Send each byte in time, but never the whole answer."""
    peer.read(connection)
    connection.sendall(b"HTTP/1.1 202 OK\r\ncontent-length: 100000\r\n\r\n")
    try:
        while not peer.over.wait(0.02):
            connection.sendall(b" ")
    except OSError:
        return  # the client closed the connection


@contextmanager
def a_peer(*behaviours: Behaviour) -> Iterator[Peer]:
    peer = Peer(*behaviours)
    peer.begin()
    try:
        yield peer
    finally:
        peer.end()


def keys(peer: Peer) -> set[bytes]:
    return {
        line
        for head in peer.requests
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"idempotency-key")
    }


@both_clients
@pytest.mark.parametrize(
    "behaviour", [closes, resets, answers_partly, answers_other_protocol, hangs, answers_slowly]
)
def test_request_with_a_lost_answer_is_repeated_with_its_key(
    open_client: Any, behaviour: Behaviour
) -> None:
    with (
        a_peer(behaviour, behaviour, answers) as peer,
        open_client(peer.url, retries=OFTEN, timeout=0.3) as access,
    ):
        assert access.do(access.client.jobs.create(**NOW)).job_id == JOB["job_id"]
    assert len(peer.requests) >= 3
    assert len(keys(peer)) == 1


@both_clients
@pytest.mark.parametrize(
    "behaviour",
    [closes, closes_at_once, resets, answers_partly, answers_other_protocol, hangs, answers_slowly],
)
def test_request_without_a_key_is_not_repeated_after_a_lost_answer(
    open_client: Any, behaviour: Behaviour
) -> None:
    with (
        a_peer(behaviour, answers) as peer,
        open_client(peer.url, retries=NO_DELAY, timeout=1.0) as access,
    ):
        with pytest.raises(Unavailable, match="may have taken effect") as error:
            access.do(access.client.tokens.create(name="a", role="viewer"))
        assert peer.connections == 1
    assert error.value.uncertain


@both_clients
def test_refused_connection_is_reported_as_not_carried_out(open_client: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with (
        open_client(f"http://127.0.0.1:{port}/v1", retries=NO_DELAY) as access,
        pytest.raises(Unavailable, match=r"no connection .*after 6 attempts") as error,
    ):
        access.do(access.client.tokens.create(name="a", role="viewer"))
    assert not error.value.uncertain


@both_clients
def test_slow_answer_is_bounded_by_the_total_timeout(open_client: Any) -> None:
    with (
        a_peer(answers_slowly) as peer,
        open_client(peer.url, retries=Retries(attempts=1), timeout=0.2) as access,
    ):
        began = monotonic()
        with pytest.raises(Unavailable, match="took too long"):
            access.do(access.client.stats())
        assert monotonic() - began < 2


def answers_twice(peer: Peer, connection: socket.socket) -> None:
    """Answer twice on one connection, and close it while it is idle."""
    for _ in range(2):
        peer.read(connection)
        connection.sendall(b"HTTP/1.1 202 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(OK), OK))


@both_clients
def test_connection_is_reused_until_the_server_closes_it(open_client: Any) -> None:
    with a_peer(answers_twice, answers) as peer, open_client(peer.url, retries=NO_DELAY) as access:
        for _ in range(2):
            access.do(access.client.jobs.get(JOB_ID))
        assert peer.connections == 1
        peer._threads[0].join(timeout=10)  # the server has closed the connection
        access.do(access.client.jobs.pause(JOB_ID))
        assert peer.connections == 2
