"""Calls of the runner end at their deadline, whatever the server does."""

import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from punctual.runner import http_client
from punctual.runner.http_client import CallFailed, HttpClient, HttpRequest

Serve = Callable[[socket.socket, threading.Event], None]


@contextmanager
def a_server(serve: Serve) -> Iterator[str]:
    """Accept one connection, and pass it to `serve` with an event that ends the test."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with listener.accept()[0] as connection:
                serve(connection, done)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            done.set()
            thread.join()


def silent(connection: socket.socket, done: threading.Event) -> None:
    connection.recv(1000)
    done.wait(30)


def dripping(connection: socket.socket, done: threading.Event) -> None:
    """Send a header that never ends, one byte after the other."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nName: ")
    while not done.wait(0.05):
        try:
            connection.sendall(b"x")
        except OSError:
            return


def answering(data: bytes) -> Serve:
    def serve(connection: socket.socket, _done: threading.Event) -> None:
        connection.recv(100_000)
        connection.sendall(data)

    return serve


@pytest.mark.parametrize("serve", [silent, dripping])
def test_call_ends_at_its_deadline(serve: Serve) -> None:
    began = time.monotonic()
    with a_server(serve) as url, pytest.raises(CallFailed):
        HttpClient().call(HttpRequest("GET", url), 0.5)
    assert 0.4 < time.monotonic() - began < 5


@pytest.mark.parametrize("serve", [silent, dripping])
def test_download_ends_at_its_deadline(serve: Serve) -> None:
    with a_server(serve) as url, pytest.raises(CallFailed):
        HttpClient().download(url, lambda _data: None, 0.5)


def test_download_with_a_slow_body_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(connection: socket.socket, done: threading.Event) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        done.wait(30)

    blocks: list[bytes] = []
    with a_server(serve) as url, pytest.raises(CallFailed):
        HttpClient().download(url, blocks.append, 0.5)
    assert blocks == [b"abc"]


def test_name_lookup_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def lookup(*_arguments: object) -> list[object]:
        release.wait(30)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    with pytest.raises(CallFailed, match=r"No answer after 0\.2 s"):
        HttpClient().call(HttpRequest("GET", "https://api.example/v1"), 0.2)
    release.set()


def test_call_without_a_free_thread_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(CallFailed, match="No thread"):
        HttpClient().call(HttpRequest("GET", "http://127.0.0.1:1"), 1)


@pytest.mark.parametrize("url", ["ftp://a/b", "file:///etc/passwd", "https://", "api"])
def test_address_that_is_not_http_is_refused(url: str) -> None:
    with pytest.raises(CallFailed, match="must begin with https"):
        HttpClient().call(HttpRequest("GET", url), 1)


def test_refused_connection_is_a_failed_call() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(CallFailed, match="Connection refused"):
        HttpClient().call(HttpRequest("GET", f"http://127.0.0.1:{port}/?X-Amz-Signature=s"), 5)


def test_answer_that_is_not_http_is_a_failed_call() -> None:
    with a_server(answering(b"SSH-2.0\r\n")) as url, pytest.raises(CallFailed, match="BadStatus"):
        HttpClient().call(HttpRequest("GET", url), 5)


def test_oversized_answer_is_a_failed_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "MAX_CALL_ANSWER_BYTES", 3)
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd"
    with a_server(answering(data)) as url, pytest.raises(CallFailed, match="too large"):
        HttpClient().call(HttpRequest("GET", url), 5)


def test_redirect_is_not_followed() -> None:
    data = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    with a_server(answering(data)) as url:
        answer = HttpClient().call(HttpRequest("GET", url), 5)
    assert (answer.status, answer.is_success, answer.headers["location"]) == (
        302,
        False,
        "http://127.0.0.1:1/",
    )


def test_body_of_a_file_is_sent_with_its_size() -> None:
    received: list[bytes] = []

    def serve(connection: socket.socket, _done: threading.Event) -> None:
        data = b""
        while not data.endswith(b"the end"):
            data += connection.recv(100_000)
        received.append(data)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    body = io.BytesIO(b"x" * 1_000_000 + b"the end")
    with a_server(serve) as url:
        request = HttpRequest("PUT", f"{url}/a?b=c", {"A": "b"}, body, 1_000_007)
        assert HttpClient().call(request, 10).is_success
    head, _, content = received[0].partition(b"\r\n\r\n")
    assert head.startswith(b"PUT /a?b=c HTTP/1.1\r\n")
    assert b"Content-Length: 1000007" in head
    assert b"Transfer-Encoding" not in head
    assert len(content) == 1_000_007
