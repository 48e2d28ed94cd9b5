"""The real runner beside a deployment in one process, in place of the script functions.

The runner is a process with its own clock. A server on loopback leads it to the API and the bucket.
The test's own thread serves, because a deployment in one process has one thread.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import requests

from tests.support.deployed.gateway import Gateway
from tests.support.deployed.world import World
from tests.support.runner.runner_process import EndedRunner, RunnerProcess, started_runner

POLL_SECONDS = 0.02
BUCKET_PATH = "/bucket/"


class _Request(BaseHTTPRequestHandler):
    """Passes a call by claim to the API, and a signed link to the bucket."""

    runners: "ScriptRunners"

    def do_POST(self) -> None:
        value = json.loads(self._body())
        answer = self.runners.gateway.post(self.path.removeprefix("/v1"), value)
        text = answer.body
        if "upload_url" in text:
            link = json.loads(text)
            text = json.dumps({**link, "upload_url": self.runners.local(link["upload_url"])})
        self.runners.calls.append(f"POST {self.path}")
        self._answer(answer.status, text.encode())

    def do_GET(self) -> None:
        self._pass_to_bucket("GET", None)

    def do_PUT(self) -> None:
        self._pass_to_bucket("PUT", self._body())

    def _pass_to_bucket(self, method: str, data: bytes | None) -> None:
        url = urlsafe_b64decode(self.path.removeprefix(BUCKET_PATH)).decode()
        headers = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in ("host", "connection", "accept-encoding")
        }
        answer = requests.request(method, url, data=data, headers=headers, timeout=5)
        self.runners.calls.append(f"{method} {BUCKET_PATH}")
        self._answer(answer.status_code, answer.content)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def _answer(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments: Any) -> None:
        """Print nothing."""


class ScriptRunners:
    """Starts runners with the events that executors sent, and serves their calls.

    `calls` holds the calls of all runners, in order.
    """

    def __init__(self, world: World, folder: Path, stack: ExitStack) -> None:
        self.gateway = Gateway(world, "")
        self.calls: list[str] = []
        self._world = world
        self._folder = folder
        self._stack = stack
        handler = type("Request", (_Request,), {"runners": self})
        self._server = stack.enter_context(HTTPServer(("127.0.0.1", 0), handler))
        self._server.timeout = POLL_SECONDS
        self._url = f"http://127.0.0.1:{self._server.server_port}"
        world.put_knob("api-address", f"{self._url}/v1")
        world.run_script = self._answer_of

    def local(self, url: str) -> str:
        """Return a link through this server, because a runner cannot reach the bucket."""
        return f"{self._url}{BUCKET_PATH}{urlsafe_b64encode(url.encode()).decode()}"

    def start(self, event: dict[str, Any], *command: str, **variables: str) -> RunnerProcess:
        """Start a runner. `command` is that of a container's image, with its variables."""
        event = json.loads(json.dumps(event))
        artifact = event["task"].get("artifact")
        if artifact:
            artifact["url"] = self.local(artifact["url"])
        folder = self._folder / f"runner-{len(list(self._folder.iterdir()))}"
        folder.mkdir(parents=True)
        return self._stack.enter_context(started_runner(event, folder, *command, **variables))

    def serve_until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self._server.handle_request()

    def end(self, runner: RunnerProcess) -> EndedRunner:
        """Serve the calls of a runner until it has ended."""
        self.serve_until(lambda: runner.process.poll() is not None)
        return runner.end()

    def run_next(self, **variables: str) -> EndedRunner:
        """Carry out the oldest event."""
        return self.end(self.start(self._world.script_events.pop(0), **variables))

    def _answer_of(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of a runner for which an executor waits. It must need no call."""
        return self.start(event).end().answer


@contextmanager
def script_runners(world: World, folder: Path) -> Iterator[ScriptRunners]:
    folder.mkdir()
    with ExitStack() as stack:
        yield ScriptRunners(world, folder, stack)
