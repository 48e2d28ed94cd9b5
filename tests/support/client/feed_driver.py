"""A server with a change feed, for the steps of client calls, in virtual time."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from punctual.client.call_steps import ClientSettings, Pause, Step
from punctual.client.calls.retrying import Retries
from punctual.client.sync_client import StepRunner
from punctual.client.wire import Answer, Outcome, Request
from tests.support.client.driver import NO_CONNECTION, answer_with, refused
from tests.support.client.kinds import RUN

START = 100.0
POLL_SECONDS = 3
OPERATION = {
    "operation_id": "op",
    "action": "pause",
    "filter": {},
    "matched": 3,
    "failed": 0,
    "done": 0,
    "status": "RUNNING",
    "created_at": "2026-03-02T12:00:00Z",
}


class State(NamedTuple):
    """The state of the run, or of the operation, from a second of the test on."""

    at: float
    fields: dict[str, Any]


def a_state(at: float, status: str, **fields: Any) -> State:
    return State(at, {"status": status, **fields})


class FeedDriver(StepRunner):
    """Carries out steps against a run, or an operation, with planned states.

    `logs` gives the text of an attempt from a second on. In `outages` no answer comes, or a 503.
    Each answer takes `takes` seconds.
    """

    def __init__(
        self,
        *states: State,
        logs: Sequence[tuple[float, int, bytes]] = (),
        outages: Sequence[tuple[float, float]] = (),
        outage_status: int = 0,
        polls: bool = False,
        gap_at: float | None = None,
        takes: float = 0.01,
        **policy: Any,
    ) -> None:
        self._states = states
        self._logs = logs
        self._outages = outages
        self._outage_status = outage_status
        self._polls = polls
        self._gap_at = gap_at
        self._takes = takes
        self.now = START
        self.calls: Counter[str] = Counter()
        self.times: list[float] = []  # of all calls
        self.pauses: list[float] = []
        self.loses_entries = self.answers_early = False
        self.settings = ClientSettings(
            *("http://a/v1", Retries(**policy), 30.0),
            *(lambda: self.now, lambda: 0.5, lambda: "key"),
        )

    def carry_out(self, step: Step) -> Outcome | None:
        if isinstance(step, Pause):
            assert step.delay_seconds >= 0
            self.pauses.append(step.delay_seconds)
            self.now += step.delay_seconds
            return None
        url = urlsplit(step.request.url("http://a/v1"))
        self.calls[url.path.rpartition("/")[2]] += 1
        self.times.append(self.elapsed)
        self.now += self._takes
        if self._is_down():
            return refused(self._outage_status) if self._outage_status else NO_CONNECTION
        return self._answer(url.path, step.request)

    @property
    def elapsed(self) -> float:
        return self.now - START

    def _is_down(self) -> bool:
        return any(start <= self.elapsed < end for start, end in self._outages)

    def _answer(self, path: str, request: Request) -> Outcome:
        if path.endswith("/changes"):
            return self._changes(dict(request.query))
        state = self._states[self._index()]
        if path.endswith("/logs"):
            return self._log(state, int(parse_qs(urlsplit(request.url("")).query)["after"][0]))
        if "/operations/" in path:
            return answer_with(200, {**OPERATION, **state.fields})
        return answer_with(200, {**RUN, **state.fields})

    def _index(self) -> int:
        return sum(state.at <= self.elapsed for state in self._states) - 1

    def _changes(self, query: dict[str, str]) -> Outcome:
        if "after" not in query:
            return self._page([], 0, is_asked=False)
        if self.answers_early:
            return self._page([], 1)
        known = int(query["after"])
        if self._gap_at is not None and self.elapsed >= self._gap_at:
            self._gap_at = None
            return self._page([], 0, gap=True)
        wait = 0 if self._polls else int(query.get("wait_seconds", "0"))
        later = [state.at for state in self._states[known + 1 :]]
        interrupts = [start for start, _ in self._outages if start > self.elapsed]
        if later and later[0] > self.elapsed:
            wait_end = min([later[0], self.elapsed + wait, *interrupts])
            self.now = START + max(self.elapsed, wait_end)
        elif not later:
            self.now = START + min([self.elapsed + wait, *interrupts])
        if self._is_down():
            return NO_CONNECTION
        return self._page(list(range(known + 1, self._index() + 1)), wait)

    def _page(
        self, versions: list[int], wait: int, gap: bool = False, is_asked: bool = True
    ) -> Answer:
        changes = [] if self.loses_entries else [self._entry(version) for version in versions]
        poll = 0 if wait or not is_asked else POLL_SECONDS
        cursor = str(self._index())
        body = {"changes": changes, "next_cursor": cursor, "gap": gap, "poll_seconds": poll}
        return answer_with(200, body)

    def _entry(self, version: int) -> dict[str, Any]:
        fields = self._states[version].fields
        if "matched" in fields or "done" in fields:
            operation = {**OPERATION, **fields}
            return {"kind": "operation", "state_version": version, "operation": operation}
        run = {**RUN, **fields}
        ids = {"job_id": run["job_id"], "run_id": run["run_id"]}
        return {"kind": "run", "state_version": version, **ids, "run": run}

    def _log(self, state: State, after: int) -> Answer:
        attempt = state.fields.get("attempt_number", 1)
        text = b"".join(
            text for at, number, text in self._logs if number == attempt and at <= self.elapsed
        )
        return Answer(200, {"x-next-offset": str(len(text))}, text[after:])
