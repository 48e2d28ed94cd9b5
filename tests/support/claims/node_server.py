"""A node with claims behind a socket.

The thread of the test serves, because it owns the database.
"""

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from tests.support.claims.node import ClaimsNode

POLL_SECONDS = 0.05


class NodeServer:
    """Serves a node. `calls` holds the method and path of each request."""

    def __init__(self, node: ClaimsNode) -> None:
        self.calls: list[str] = []
        handler = type("Request", (NodeRequest,), {"node": node, "calls": self.calls})
        self._server = HTTPServer(("127.0.0.1", 0), handler)
        self._server.timeout = POLL_SECONDS

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def serve_while(self, is_needed: Callable[[], bool]) -> None:
        while is_needed():
            self._server.handle_request()

    def close(self) -> None:
        self._server.server_close()


class NodeRequest(BaseHTTPRequestHandler):
    """Passes a request to the application of a node."""

    node: ClaimsNode
    calls: list[str]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
        answer = self.node.raw(self.command, self.path, headers, [body])
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)
        self.calls.append(f"{self.command} {self.path.partition('?')[0]}")

    do_PUT = do_POST

    def log_message(self, *_arguments: Any) -> None:
        """Print nothing."""
