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
from punctual.lambdas.authorizer.authenticator import build_authenticator
from punctual.lambdas.authorizer.handler import Authorizer
from punctual.lambdas.ssm_secrets import ADMIN_HASH_PARAMETER, TOKEN_KEY_PARAMETER, decode_key
from punctual.web.contract import API_CALLS
from tests.support.deployed.drivers.api import Api, an_api, an_event, route_of

HOST = "127.0.0.2"  # a loopback address that tests do not take for the local node's
TOKEN = "acceptance"


def a_door(api: Api) -> Authorizer:
    """Return the deployed authorizer, with the admin token and the key set here."""
    knobs, clients = api.store.settings.knobs, api.store.clients
    env = {"PUNCTUAL_KNOBS": knobs, "PUNCTUAL_CONTROL_TABLE": api.store.settings.control_table}
    key = b64encode(bytes(range(32))).decode()
    put = partial(clients.ssm.put_parameter, Overwrite=True)
    put(Name=knobs + TOKEN_KEY_PARAMETER, Value=key, Type="SecureString")
    put(Name=knobs + ADMIN_HASH_PARAMETER, Value=admin_hash(decode_key(key), TOKEN), Type="String")
    patience = RetryPolicy(lambda _: None, "test", tries=1)

    def seconds() -> float:
        return api.clock().timestamp()

    return Authorizer(
        build_authenticator(env, clients, seconds, patience, warnings.warn), warnings.warn
    )


class Gateway:
    """A gateway that serves one call at a time, because moto is not safe for threads."""

    def __init__(self, api: Api, clock: Callable[[], datetime] | None = None) -> None:
        self._api = api
        self._clock = clock or api.clock
        self._turn = threading.Lock()
        self._door = a_door(api)

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Any:
        self._api.clock.set(self._clock())
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
        if not any(
            api_call.is_public and route == f"{api_call.method} {api_call.path}"
            for api_call in API_CALLS
        ):
            with self._turn:
                decision = self._door.authorize(event)
            event["requestContext"]["authorizer"] = {"lambda": decision["context"]}
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
    with an_api(now=real_clock()) as api:
        planned = api.store.ports.partitions
        planned.advance_watermark(planned.watermark(), bucket_of(real_clock()))
        server = ThreadingHTTPServer((HOST, 0), handler_of(Gateway(api, real_clock)))
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
