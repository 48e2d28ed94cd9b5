"""A small server on loopback in place of the API and the store, for a runner as a process.

It answers `/claims/*` as a test scripts it, and keeps artifacts and uploaded outputs.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MAX_WAIT_SECONDS = 30.0

Answer = str | int | tuple[int, dict[str, str]]


class ClaimsApi:
    """Records the calls. `renewals` and `finishes` script the next answers, then OK follows.

    An answer is the status of a claim, or an HTTP status with or without headers. `drop` closes the
    connection, and `hang` gives no answer.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._released = threading.Event()
        self.renewals: list[Answer] = []
        self.finishes: list[Answer] = []
        self.puts: list[Answer] = []
        self.claim_status = "OK"
        self.binds_claims = False  # to the first runner that calls
        self.upload_status = 200
        self.replaces_at_upload = 0  # the number of the address that replaces what is stored
        self.renewed: list[dict[str, Any]] = []
        self.finished: list[dict[str, Any]] = []
        self.uploads: list[dict[str, Any]] = []
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.artifacts: dict[str, bytes] = {}
        self.refused_puts = 0
        self.url = ""

    @property
    def api(self) -> str:
        return f"{self.url}/v1"

    def wait_for(self, condition: Callable[[], bool], seconds: float = MAX_WAIT_SECONDS) -> None:
        """Wait until a call makes the condition true."""
        with self._condition:
            assert self._condition.wait_for(condition, seconds), "the call did not come"

    def log(self) -> str:
        """Return the log as the API would store it: its parts, and the text of the finish."""
        parts: dict[int, str] = {}
        with self._condition:
            items = [*self.renewed, *self.finished]
        for item in items:
            if item.get("log"):
                parts[item["log_offset"]] = item["log"]
        text = b""
        for offset, part in sorted(parts.items()):
            assert offset <= len(text), f"the log has a gap before {offset}"
            text = text[:offset] + part.encode()
        return text.decode()

    def release(self) -> None:
        """End all calls that hang."""
        self._released.set()

    def handle(self, request: "_Request") -> None:
        _, _, path = request.path.partition("/v1/claims/")
        if path in ("renew", "finish"):
            self._handle_claim(request, path)
        elif path == "upload":
            self._handle_upload(request)
        else:
            request.answer(404, b"")

    def _handle_claim(self, request: "_Request", call: str) -> None:
        items = request.json()["claims"]
        script, record = (
            (self.renewals, self.renewed) if call == "renew" else (self.finishes, self.finished)
        )
        with self._condition:
            answer = script.pop(0) if script else self.claim_status
            if self.binds_claims and self.renewed:
                is_bound = items[0]["runner_id"] == self.renewed[0]["runner_id"]
                answer = answer if is_bound else "LOST"
            if isinstance(answer, str) and answer != "hang":
                record += items
            self._condition.notify_all()
        if isinstance(answer, str) and answer not in ("drop", "hang"):
            results = [{"status": answer} for _ in items]
            request.answer(200, json.dumps({"results": results}).encode())
        else:
            self._fail(request, answer)

    def _handle_upload(self, request: "_Request") -> None:
        fields = request.json()
        with self._condition:
            self.uploads.append(fields)
            number = len(self.uploads)
            if number == self.replaces_at_upload:
                self.objects.clear()
            self._condition.notify_all()
        if self.upload_status != 200:
            request.answer(self.upload_status, b'{"code": "CLAIM_LOST"}')
            return
        answer = {
            "upload_url": f"{self.url}/objects/output?signature={number}",
            "upload_headers": {
                "Content-Type": fields["content_type"],
                "If-None-Match": "*",
            },
            "output_upload": f"upload-{number}",
        }
        request.answer(200, json.dumps(answer).encode())

    def handle_put(self, request: "_Request") -> None:
        data = request.body()
        with self._condition:
            answer = self.puts.pop(0) if self.puts else 200
            name = request.path.partition("?")[0]
            if answer in (200, "drop") and name not in self.objects:
                self.objects[name] = (data, dict(request.headers))
            elif answer == 200:
                answer = 412
                self.refused_puts += 1
            self._condition.notify_all()
        if answer == 200:
            request.answer(200, b"")
        else:
            self._fail(request, answer)

    def handle_get(self, request: "_Request") -> None:
        data = self.artifacts.get(request.path.rpartition("/")[2])
        request.answer(404 if data is None else 200, data or b"")

    def _fail(self, request: "_Request", answer: Answer) -> None:
        if answer == "hang":
            self._released.wait(MAX_WAIT_SECONDS)
            request.close_connection = True
        elif answer == "drop":
            request.close_connection = True
            request.connection.close()
        elif isinstance(answer, tuple):
            request.answer(answer[0], b"{}", answer[1])
        else:
            assert isinstance(answer, int)
            request.answer(answer, b"{}")


class _Request(BaseHTTPRequestHandler):
    claims_api: ClaimsApi

    def do_POST(self) -> None:
        self.claims_api.handle(self)

    def do_PUT(self) -> None:
        self.claims_api.handle_put(self)

    def do_GET(self) -> None:
        self.claims_api.handle_get(self)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def json(self) -> Any:
        return json.loads(self.body())

    def answer(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments: Any) -> None:
        """Print nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_arguments: Any) -> None:
        """Ignore callers that close their connection."""


@contextmanager
def a_claims_api() -> Iterator[ClaimsApi]:
    api = ClaimsApi()
    handler = type("Request", (_Request,), {"claims_api": api})
    with _Server(("127.0.0.1", 0), handler) as server:
        api.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield api
        finally:
            api.release()
            server.shutdown()
            thread.join()
