"""A server for http tasks. The path of a request sets the answer and its delay."""

import json
import re
import threading
import uuid
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
    """A server with scripted answers.

    `/503/200/x` answers 503 to the first call of that path, and 200 to all later ones.
    `/wait/1.5s/x` answers after that delay, and `/echo/x` answers with the request's body.
    """

    port: int = 0
    calls: list[Call] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def hold(self, seconds: float) -> dict[str, str]:
        """Return a task that takes `seconds`."""
        return self.task(f"/wait/{seconds}s")

    def task(self, path: str) -> dict[str, str]:
        return {"type": "http", "url": self.url(f"{path}/{uuid.uuid4().hex}")}

    def of(self, path: str) -> list[Call]:
        return [call for call in list(self.calls) if call.path == path]


def handler(target: Target) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            call = Call(self.command, self.path, headers, self.rfile.read(length))
            count = len(target.of(self.path))
            target.calls.append(call)
            statuses = [int(part) for part in self.path.split("/") if part.isdigit()] or [200]
            status = statuses[min(count, len(statuses) - 1)]
            body = json.dumps({"seen": count, "path": self.path}).encode()
            if self.path.startswith("/echo/"):
                body = call.body
            wait = re.match(r"/wait/([\d.]+)s/", self.path)
            if wait is not None:
                target.closing.wait(float(wait[1]))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("X-Target", "yes")
            self.send_header("Content-Length", str(len(body)))
            if status in (301, 302, 307, 308):
                self.send_header("Location", "/landed" + self.path.replace("/30", "/x"))
            try:
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)
            except OSError:
                self.close_connection = True  # the caller has disconnected

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
        target.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()
