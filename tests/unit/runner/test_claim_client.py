"""Calls with a claim: bodies, answers, and repetition until a deadline."""

import json
from typing import Any

import pytest

from punctual.runner.claim_client import (
    AlreadyStored,
    Busy,
    ClaimClient,
    ClaimLost,
    Refused,
    Repeater,
)
from punctual.runner.http_client import CallFailed, HttpAnswer, HttpClient, HttpRequest
from punctual.runner.live_log import LogPart


class ScriptedHttp(HttpClient):
    def __init__(self, *answers: HttpAnswer) -> None:
        self._answers = list(answers)
        self.requests: list[HttpRequest] = []

    def call(self, request: HttpRequest, seconds: float) -> HttpAnswer:
        assert seconds > 0
        self.requests.append(request)
        return self._answers.pop(0)

    def body(self, place: int = 0) -> Any:
        body = self.requests[place].body
        assert isinstance(body, bytes)
        return json.loads(body)


def answer(status: int = 200, body: Any = None, **headers: str) -> HttpAnswer:
    return HttpAnswer(
        status,
        {name.replace("_", "-"): headers[name] for name in headers},
        json.dumps(body).encode(),
    )


def results(status: str) -> HttpAnswer:
    return answer(body={"results": [{"status": status, "lease_until": "…"}]})


def a_client(*answers: HttpAnswer) -> tuple[ClaimClient, ScriptedHttp]:
    http = ScriptedHttp(*answers)
    return ClaimClient(http, "https://api/v1", "the-claim", "runner-1"), http


def test_renewal_sends_claim_runner_and_log() -> None:
    client, http = a_client(results("OK"), results("CANCEL"), results("LOST"))
    assert client.renew(LogPart("ü\0", 7, 3), "then") == "OK"
    assert client.renew(LogPart("", 10, 0)) == "CANCEL"
    assert client.renew() == "LOST"
    assert http.requests[0].url == "https://api/v1/claims/renew"
    item = {"claim": "the-claim", "runner_id": "runner-1"}
    first = {**item, "started_at": "then", "log": "ü\0", "log_offset": 7}
    assert http.body(0) == {"claims": [first]}
    assert [http.body(1), http.body(2)] == [{"claims": [item]}] * 2


@pytest.mark.parametrize(
    ("status", "header", "seconds"),
    [(429, "1.5", 1.5), (503, "", 0.0), (500, "soon", 0.0), (429, "nan", 0.0), (502, "inf", 0.0)],
)
def test_busy_api_says_when_to_come_back(status: int, header: str, seconds: float) -> None:
    client, _ = a_client(answer(status, retry_after=header))
    with pytest.raises(Busy, match=f"HTTP {status}") as raised:
        client.renew()
    assert raised.value.retry_after_seconds == seconds


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
def test_refused_call_is_not_repeated(status: int) -> None:
    client, _ = a_client(answer(status))
    with pytest.raises(Refused, match=f"HTTP {status}"):
        client.finish({"status": "SUCCESS"})


@pytest.mark.parametrize(
    "body", [None, {}, {"results": []}, {"results": [{}]}, {"results": [{"status": "MAYBE"}]}, 3]
)
def test_answer_without_a_result_is_a_failed_call(body: Any) -> None:
    client, _ = a_client(answer(body=body))
    with pytest.raises(CallFailed, match="The API answered with"):
        client.renew()


def test_answer_that_is_not_json_is_a_failed_call() -> None:
    client, _ = a_client(HttpAnswer(200, {}, b"<html>"))
    with pytest.raises(CallFailed, match="without JSON"):
        client.renew()


def test_upload_returns_one_put() -> None:
    fields = {"upload_url": "u", "upload_headers": {"a": "b"}, "output_upload": "o"}
    client, http = a_client(answer(body=fields), answer(body={}))
    assert client.ask_upload(5, "text/plain") == ("u", {"a": "b"}, "o")
    assert http.body() == {"claim": "the-claim", "size": 5, "content_type": "text/plain"}
    with pytest.raises(CallFailed):
        client.ask_upload(5, "text/plain")


def test_upload_of_a_lost_claim_is_told() -> None:
    client, _ = a_client(answer(409))
    with pytest.raises(ClaimLost):
        client.ask_upload(5, "text/plain")


@pytest.mark.parametrize("status", [200, 204])
def test_output_is_stored_by_one_call(status: int) -> None:
    client, http = a_client(answer(status))
    client.put(HttpRequest("PUT", "u", {}, b"x"), 1)
    assert len(http.requests) == 1


def test_output_that_is_there_already_is_told() -> None:
    client, _ = a_client(answer(412))
    with pytest.raises(AlreadyStored):
        client.put(HttpRequest("PUT", "u", {}, b"x"), 1)


@pytest.mark.parametrize(
    ("status", "error"), [(403, CallFailed), (409, CallFailed), (500, CallFailed), (400, Refused)]
)
def test_refused_output_is_told(status: int, error: type[Exception]) -> None:
    client, _ = a_client(answer(status))
    with pytest.raises(error, match=f"HTTP {status}"):
        client.put(HttpRequest("PUT", "u", {}, b"x"), 1)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.pauses.append(seconds)


def test_failed_calls_are_repeated_with_growing_pauses() -> None:
    clock, failures = Clock(), [CallFailed("no")] * 6

    def call() -> str:
        if failures:
            raise failures.pop()
        return "done"

    repeater = Repeater(lambda: clock.now, clock.wait)
    assert repeater.until(lambda: 100.0, call) == "done"
    assert clock.pauses == [0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_repetition_ends_at_a_deadline_that_may_move() -> None:
    clock, deadlines = Clock(), iter([1.0, 2.0, 2.0, 2.0])

    def call() -> str:
        raise Busy("busy", 0.5)

    repeater = Repeater(lambda: clock.now, clock.wait)
    with pytest.raises(Busy):
        repeater.until(lambda: next(deadlines), call)
    assert clock.pauses == [0.5, 0.5, 0.8]


def test_refused_call_ends_the_repetition() -> None:
    clock = Clock()

    def call() -> str:
        raise Refused("no")

    with pytest.raises(Refused):
        Repeater(lambda: clock.now, clock.wait).until(lambda: 100.0, call)
    assert clock.pauses == []
