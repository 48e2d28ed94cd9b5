"""The deployed API on loopback, with an HTTP API's events, the authorizer and functions on moto.

As a program it prints its address, and serves until its standard input ends. It runs no jobs,
because it has no planner and no executor.
"""

import sys
import threading
import warnings
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from punctual.auth.authenticator import admin_hash
from punctual.aws.ports import real_clock
from punctual.aws.retries import RetryPolicy
from punctual.domain.identifiers import bucket_of
from punctual.lambdas.authorizer.authenticator import deployed_door
from punctual.lambdas.authorizer.handler import Authorizer
from punctual.lambdas.ssm_secrets import TOKEN_HASH, TOKEN_KEY, key_of
from punctual.web.contract import API_CALLS
from tests.support.aws.serverless_api import Deployed, an_event, deployed, route_of

HOST = "127.0.0.2"  # a loopback address that tests do not take for the local node's
TOKEN = "acceptance"


def a_door(api: Deployed, clock: Callable[[], datetime]) -> Authorizer:
    """Return the deployed authorizer, with the admin token and the key set here."""
    knobs, clients = api.store.settings.knobs, api.store.clients
    env = {"PUNCTUAL_KNOBS": knobs, "PUNCTUAL_CONTROL_TABLE": api.store.settings.control_table}
    key = b64encode(bytes(range(32))).decode()
    put = partial(clients.ssm.put_parameter, Overwrite=True)
    put(Name=knobs + TOKEN_KEY, Value=key, Type="SecureString")
    put(Name=knobs + TOKEN_HASH, Value=admin_hash(key_of(key), TOKEN), Type="String")
    patience = RetryPolicy(lambda _: None, "test", tries=1)

    def seconds() -> float:
        return clock().timestamp()

    return Authorizer(deployed_door(env, clients, seconds, patience, warnings.warn), warnings.warn)


class Gateway:
    """A gateway that serves one call at a time, because moto is not safe for threads."""

    def __init__(self, api: Deployed, clock: Callable[[], datetime] = real_clock) -> None:
        self._api = api
        self._turn = threading.Lock()
        self._door = a_door(api, clock)

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
        if not any(one.is_public and route == f"{one.method} {one.path}" for one in API_CALLS):
            with self._turn:
                said = self._door.answer(event)
            event["requestContext"]["authorizer"] = {"lambda": said["context"]}
        with self._turn:
            return self._api.ask(event)


def handler_of(gateway: Gateway) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # write an answer at once
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
