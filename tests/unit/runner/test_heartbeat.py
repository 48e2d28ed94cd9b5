"""The heartbeat: when it renews, what it sends, and when it stops the run."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from punctual.runner.claim_client import Busy, ClaimClient, ClaimStatus, Refused
from punctual.runner.heartbeat import Heartbeat
from punctual.runner.http_client import CallFailed, HttpClient
from punctual.runner.live_log import MAX_LOG_PART_BYTES, LiveLog, LogPart

Step = ClaimStatus | Exception


class ScriptedClient(ClaimClient):
    """Answers renewals in order, then OK. Each call takes `call_seconds`."""

    def __init__(self, *steps: Step, call_seconds: float = 0.0) -> None:
        super().__init__(HttpClient(), "http://127.0.0.1:1", "claim", "runner")
        self._steps = list(steps)
        self._call_seconds = call_seconds
        self.now = 100.0
        self.renewals: list[tuple[float, str, str]] = []
        self.finishes: list[Mapping[str, Any]] = []

    def renew(self, part: LogPart | None = None, started_at: str = "") -> ClaimStatus:
        self.renewals.append((self.now - 100, part.text if part else "", started_at))
        self.now += self._call_seconds
        return self._next_status()

    def finish(self, fields: Mapping[str, Any]) -> ClaimStatus:
        self.finishes.append(fields)
        return self._next_status()

    def _next_status(self) -> ClaimStatus:
        step: Step = self._steps.pop(0) if self._steps else "OK"
        if isinstance(step, Exception):
            raise step
        return step

    def wait_until(self, end: float) -> Callable[[float], bool]:
        def wait(seconds: float) -> bool:
            self.now += seconds
            return self.now - 100 > end

        return wait


def beat(client: ScriptedClient, until: float, log: LiveLog | None = None) -> Heartbeat:
    """Renew until a time after the begin, without any real waiting."""
    heartbeat = Heartbeat(
        client,
        log or LiveLog(),
        lambda: client.now,
        started_at="then",
        wait=client.wait_until(until),
    )
    heartbeat.beat()
    return heartbeat


def test_claim_is_renewed_each_four_seconds() -> None:
    client = ScriptedClient()
    heartbeat = beat(client, 13)
    assert client.renewals == [(4.0, "", "then"), (8.0, "", ""), (12.0, "", "")]
    assert heartbeat.stop.reason() == ""


def test_interval_counts_from_the_begin_of_a_renewal() -> None:
    client = ScriptedClient(call_seconds=0.75)
    beat(client, 13)
    assert [at for at, _, _ in client.renewals] == [4.0, 8.0, 12.0]


def test_start_is_told_until_a_renewal_succeeds() -> None:
    client = ScriptedClient(CallFailed("no"), "OK", "OK")
    beat(client, 9)
    assert [started_at for _, _, started_at in client.renewals] == ["then", "then", ""]


def test_failed_renewals_are_repeated_soon() -> None:
    client = ScriptedClient(CallFailed("no"), Busy("busy", 1.5), Busy("busy", 60.0), "OK")
    beat(client, 9)
    assert [at for at, _, _ in client.renewals] == pytest.approx([4.0, 4.4, 5.9, 7.9])


def test_refused_renewal_is_repeated_at_its_time() -> None:
    client = ScriptedClient(Refused("no"), "OK")
    beat(client, 9)
    assert [at for at, _, _ in client.renewals] == [4.0, 8.0]


def test_cancel_stops_the_run_and_keeps_the_lease() -> None:
    client = ScriptedClient("CANCEL", "CANCEL")
    heartbeat = beat(client, 9)
    assert (heartbeat.stop.reason(), heartbeat.is_cancelled) == ("CANCEL", True)
    assert (len(client.renewals), heartbeat.is_lost) == (2, False)


def test_lost_claim_stops_the_run_and_the_heartbeat() -> None:
    client = ScriptedClient("OK", "LOST")
    heartbeat = beat(client, 100)
    assert (heartbeat.stop.reason(), len(client.renewals)) == ("LOST", 2)


def test_run_is_lost_ten_seconds_after_the_last_renewal() -> None:
    client = ScriptedClient("OK", *[CallFailed("no")] * 100)
    heartbeat = beat(client, 100)
    assert heartbeat.stop.reason() == "LOST"
    assert 14.0 < client.renewals[-1][0] + 0.4 < 14.5  # ten seconds after the one at 4 s


def test_slow_renewal_counts_from_its_begin() -> None:
    client = ScriptedClient(call_seconds=4.0)
    heartbeat = beat(client, 5)
    client.now = 100 + 4 + 10
    assert not heartbeat.has_expired()
    client.now += 0.1
    assert heartbeat.has_expired()


def test_each_renewal_sends_the_new_log() -> None:
    client, log = ScriptedClient("OK", CallFailed("no"), "OK"), LiveLog()
    log.log(b"first")
    heartbeat = Heartbeat(client, log, lambda: client.now, started_at="then")
    heartbeat.renew()
    log.log(b"second")
    with pytest.raises(CallFailed):
        heartbeat.renew()
    log.log(b" third")
    heartbeat.renew()
    assert [text for _, text, _ in client.renewals] == ["first", "second", "second third"]
    assert log.pending_bytes == 0


def test_long_log_is_sent_at_once() -> None:
    client, log = ScriptedClient(), LiveLog()
    log.log(b"x" * (2 * MAX_LOG_PART_BYTES + 5))
    beat(client, 5, log)
    assert [(at, len(text)) for at, text, _ in client.renewals] == [
        (4.0, MAX_LOG_PART_BYTES),
        (4.0, MAX_LOG_PART_BYTES),
    ]


def test_finish_sends_the_rest_of_the_log_with_its_offset() -> None:
    client, log = ScriptedClient("OK", CallFailed("no"), "OK"), LiveLog()
    log.log(b"first")
    heartbeat = Heartbeat(client, log, lambda: client.now, started_at="then")
    heartbeat.renew()
    log.log(b"last")
    with pytest.raises(CallFailed):
        heartbeat.finish({"status": "SUCCESS"})
    heartbeat.finish({"status": "SUCCESS"})
    heartbeat.finish({"status": "SUCCESS"})
    last = {"status": "SUCCESS", "log_offset": 5, "log": "last"}
    assert client.finishes == [last, last, {"status": "SUCCESS", "log_offset": 9}]


def test_finish_of_a_lost_claim_stops_the_run() -> None:
    heartbeat = Heartbeat(ScriptedClient("LOST"), LiveLog(), lambda: 0.0, started_at="then")
    heartbeat.finish({})
    assert heartbeat.is_lost
