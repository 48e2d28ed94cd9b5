"""The deployed API on loopback: a socket, an HTTP API's event, authorizer and function, on moto.

Run as a program it prints its address, and serves until its standard input ends. What it serves
runs nothing: there is no planner and no executor.
"""

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from punctual.aws.wiring import real_clock
from punctual.domain.placement import bucket_of
from punctual.serverless.authorizing import Authorizer
from punctual.web.contract import CALLS
from tests.integration.serverless_api import Deployed, an_event, deployed, route_of

HOST = "127.0.0.2"  # a loopback address that no test takes for the local node's
TOKEN = "acceptance"


class Gateway:
    """One call at a time: moto's store is no place for two."""

    def __init__(self, api: Deployed) -> None:
        self._api = api
        self._turn = threading.Lock()
        stored = sha256(TOKEN.encode()).hexdigest()
        self._door = Authorizer(lambda: stored, lambda: 0.0, warnings.warn)

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Any:
        path, _, query = target.partition("?")
        path = path.removeprefix("/v1")
        try:
            sent: str | bytes | None = body.decode() if body else None
        except UnicodeDecodeError:
            sent = body
        event = an_event(method, path, query, sent, headers, authorizer=None)
        if not body:
            event["body"] = None
        event["headers"] = headers
        route, _function = route_of(method, path)
        if not any(one.public and route == f"{one.method} {one.path}" for one in CALLS):
            said = self._door.answer(event)
            event["requestContext"]["authorizer"] = {"lambda": said["context"]}
        with self._turn:
            return self._api.ask(event)


def handler_of(gateway: Gateway) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # an answer is written at once
        disable_nagle_algorithm = True

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65_537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = gateway.answer(self.command, self.path, headers, body)
            self.send_response_only(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)
            self.wfile.flush()

    return Handler


@contextmanager
def served() -> Iterator[str]:
    with deployed(real_clock) as api:
        planned = api.store.ports.buckets
        planned.advance(planned.watermark(), bucket_of(real_clock()))
        server = ThreadingHTTPServer((HOST, 0), handler_of(Gateway(api)))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


if __name__ == "__main__":
    with served() as address:
        sys.stdout.write(address + "\n")
        sys.stdout.flush()
        sys.stdin.read()
