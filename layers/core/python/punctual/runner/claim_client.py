"""Calls of the API with a claim. The claim itself is the right to make them."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

from punctual.runner.http_client import CallFailed, HttpAnswer, HttpClient, HttpRequest
from punctual.runner.live_log import LogPart

T = TypeVar("T")
ClaimStatus = Literal["OK", "CANCEL", "LOST"]
CALL_SECONDS = 5.0
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.2, 2.0
RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
FORBIDDEN, CONFLICT, PRECONDITION_FAILED = 403, 409, 412
# An address that has expired is asked for again, and two writes at a time end one after the other.
RETRIED_PUT_STATUSES = RETRIED_STATUSES | {FORBIDDEN, CONFLICT}
JSON_HEADERS = {"Content-Type": "application/json"}


class Busy(CallFailed):
    """The API asks to repeat the call later."""

    def __init__(self, message: str, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class AlreadyStored(CallFailed):
    """The store has an output: that of an earlier try, or of an earlier claim."""


class Refused(Exception):
    """The API refuses a call. The same call would be refused again."""


class ClaimLost(Exception):
    """Another executor may hold the run. Nothing that this claim sends counts any more."""


class UploadTarget(NamedTuple):
    """One PUT for an output, and the name of this output for the finish."""

    url: str
    headers: Mapping[str, str]
    output_upload: str


class ClaimClient:
    """Makes each call once. `runner_id` binds the claim to this runner."""

    def __init__(self, http: HttpClient, api: str, claim: str, runner_id: str) -> None:
        self._http = http
        self._api = api
        self._claim = claim
        self._runner_id = runner_id

    def renew(self, part: LogPart | None = None, started_at: str = "") -> ClaimStatus:
        """Renew the lease and send a part of the log."""
        fields: dict[str, Any] = {"started_at": started_at} if started_at else {}
        if part is not None and part.text:
            fields |= {"log": part.text, "log_offset": part.offset}
        return self._call_for_claim("renew", fields)

    def finish(self, fields: Mapping[str, Any]) -> ClaimStatus:
        return self._call_for_claim("finish", fields)

    def ask_upload(self, size: int, content_type: str) -> UploadTarget:
        """Return where to put an output. Raise ClaimLost if the claim is over."""
        fields = {"claim": self._claim, "size": size, "content_type": content_type}
        answer = self._post("upload", fields)
        if answer.status == CONFLICT:
            raise ClaimLost
        body = _json_of(answer)
        try:
            return UploadTarget(body["upload_url"], body["upload_headers"], body["output_upload"])
        except (KeyError, TypeError):
            raise CallFailed("The API answered without an address for the output") from None

    def put(self, request: HttpRequest, seconds: float) -> None:
        """Store an output. Raise AlreadyStored if an object is there."""
        answer = self._http.call(request, seconds)
        if answer.is_success:
            return
        if answer.status == PRECONDITION_FAILED:
            raise AlreadyStored("The store of outputs has an output already")
        text = f"The store of outputs answered HTTP {answer.status}"
        raise CallFailed(text) if answer.status in RETRIED_PUT_STATUSES else Refused(text)

    def _call_for_claim(self, call: str, fields: Mapping[str, Any]) -> ClaimStatus:
        item = {"claim": self._claim, "runner_id": self._runner_id, **fields}
        body = _json_of(self._post(call, {"claims": [item]}))
        try:
            status: ClaimStatus = body["results"][0]["status"]
        except (KeyError, IndexError, TypeError):
            raise CallFailed("The API answered without a result") from None
        if status not in ("OK", "CANCEL", "LOST"):
            raise CallFailed("The API answered with an unknown result")
        return status

    def _post(self, call: str, body: Mapping[str, Any]) -> HttpAnswer:
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        request = HttpRequest("POST", f"{self._api}/claims/{call}", JSON_HEADERS, data)
        answer = self._http.call(request, CALL_SECONDS)
        if answer.status in RETRIED_STATUSES:
            raise Busy(f"The API answered HTTP {answer.status}", _retry_after_seconds(answer))
        if not answer.is_success and answer.status != CONFLICT:
            raise Refused(f"The API refused the call with HTTP {answer.status}")
        return answer


class Repeater:
    """Repeats failed calls until a deadline.

    `wait` sleeps the given seconds. It may return early.
    """

    def __init__(self, monotonic: Callable[[], float], wait: Callable[[float], object]) -> None:
        self._monotonic = monotonic
        self._wait = wait

    def until(self, deadline: Callable[[], float], call: Callable[[], T]) -> T:
        """Return the result of the call. Raise its last error at the deadline, which may move."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return call()
            except CallFailed as error:
                pause_seconds = pause_after(error, pause)
                if self._monotonic() + pause_seconds >= deadline():
                    raise
            self._wait(pause_seconds)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)


def pause_after(error: CallFailed, pause: float) -> float:
    """Return the seconds until the next try. The API may ask for more, within a limit."""
    asked_seconds = error.retry_after_seconds if isinstance(error, Busy) else 0.0
    return min(max(pause, asked_seconds), MAX_PAUSE_SECONDS)


def _retry_after_seconds(answer: HttpAnswer) -> float:
    try:
        seconds = float(answer.headers.get("retry-after", ""))
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0


def _json_of(answer: HttpAnswer) -> Any:
    try:
        return json.loads(answer.body)
    except ValueError:
        raise CallFailed("The API answered without JSON") from None
