"""A server on loopback for http tasks to call: the path says what it answers."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Call:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Target:
    """`/status/503/200/x` answers 503 to the first call of that path, 200 to all later ones."""

    port: int = 0
    calls: list[Call] = field(default_factory=list)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def of(self, path: str) -> list[Call]:
        return [call for call in list(self.calls) if call.path == path]


def handler(target: Target) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            call = Call(self.command, self.path, headers, self.rfile.read(length))
            seen = len(target.of(self.path))
            target.calls.append(call)
            statuses = [int(part) for part in self.path.split("/") if part.isdigit()] or [200]
            status = statuses[min(seen, len(statuses) - 1)]
            body = json.dumps({"seen": seen, "path": self.path}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("X-Target", "yes")
            self.send_header("Content-Length", str(len(body)))
            if status in (301, 302, 307, 308):
                self.send_header("Location", "/landed" + self.path.replace("/30", "/x"))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = answer

        def log_request(self, code: object = "-", size: object = "-") -> None:
            pass

    return Handler


@contextmanager
def a_target() -> Iterator[Target]:
    target = Target()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(target))
    target.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield target
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
