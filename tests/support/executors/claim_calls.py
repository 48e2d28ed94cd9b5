"""Holders that have only a signed claim, over the engine or over HTTP."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from punctual.domain.claims import ClaimIdentity
from punctual.domain.run import Run, RunStatus
from punctual.engine.execution.claims import (
    ClaimFinish,
    ClaimLost,
    ClaimRenewal,
    Claims,
    UploadAnswer,
)
from punctual.engine.ports.rows import JobKey
from tests.support.executors.driver import ERROR, OUTPUT, Answer, Holder

RUNNER = "runner-1"
RENEWAL_SECONDS = 5
TEXT_TYPE = "text/plain; charset=utf-8"
STARTED_AT = "2026-03-02T12:00:00Z"

Item = Mapping[str, Any]


class ClaimCalls(ABC):
    """The three calls by claim, each with one item as the API takes it."""

    @abstractmethod
    def renew(self, item: Item) -> str: ...

    @abstractmethod
    def finish(self, item: Item) -> str: ...

    @abstractmethod
    def upload(self, claim: str, data: bytes) -> str | None:
        """Store an output. Return the name for the finish, or None for a lost claim."""


class EngineCalls(ClaimCalls):
    """The calls as the engine takes them. `put` sends the bytes of an upload."""

    def __init__(self, claims: Claims, put: Callable[[UploadAnswer, bytes], None]) -> None:
        self._claims = claims
        self._put = put

    def renew(self, item: Item) -> str:
        renewal = ClaimRenewal(item["claim"], item.get("runner_id", ""), "started_at" in item)
        (answer,) = self._claims.renew([renewal])
        return str(answer.status)

    def finish(self, item: Item) -> str:
        end = ClaimFinish(
            item["claim"],
            item["status"],
            item.get("runner_id", ""),
            item.get("output_text", "").encode(),
            TEXT_TYPE,
            item.get("output_upload", ""),
            error=item.get("error_message", ""),
        )
        (answer,) = self._claims.finish([end])
        return str(answer)

    def upload(self, claim: str, data: bytes) -> str | None:
        try:
            answer = self._claims.upload(claim, len(data), TEXT_TYPE)
        except ClaimLost:
            return None
        self._put(answer, data)
        return answer.output_upload


class ClaimHolder(Holder):
    """A process outside with a claim. While it lives, it renews each five seconds."""

    def __init__(self, run: Run, claim: str, calls: ClaimCalls, runner_id: str = RUNNER) -> None:
        super().__init__(run)
        self.claim = claim
        self.is_silent = False
        self._calls = calls
        self._held = {"claim": claim, "runner_id": runner_id}

    def as_runner(self, runner_id: str) -> "ClaimHolder":
        """Return another process with the same claim, as a repeated event starts one."""
        return ClaimHolder(self.run, self.claim, self._calls, runner_id)

    def with_claim(self, claim: str) -> "ClaimHolder":
        """Return a process with another text in place of the claim."""
        return ClaimHolder(self.run, claim, self._calls)

    def begin(self) -> None:
        assert self._calls.renew({**self._held, "started_at": STARTED_AT}) == "OK"

    def renew(self) -> Answer:
        self.is_silent = False
        return Answer(self._calls.renew(self._held))

    def end(self, status: RunStatus) -> None:
        self.is_silent = True  # its renewals end with its work
        self.report(status)

    def release(self) -> None:
        self.is_silent = True
        assert self._calls.finish({**self._held, "status": "RELEASED"}) == "OK"

    def kill(self) -> None:
        self.is_silent = True

    def freeze(self) -> None:
        self.is_silent = True

    def report(self, status: RunStatus) -> bool:
        end: dict[str, Any] = {**self._held, "status": status.value}
        if status is RunStatus.SUCCESS:
            end["output_text"] = OUTPUT.decode()
        if status is RunStatus.FAILED:
            end["error_message"] = ERROR
        return self._calls.finish(end) == "OK"

    def upload(self, data: bytes) -> str | None:
        return self._calls.upload(self.claim, data)

    def end_with_upload(self, output_upload: str) -> bool:
        end = {**self._held, "status": "SUCCESS", "output_upload": output_upload}
        self.is_silent = True
        return self._calls.finish(end) == "OK"

    def heartbeat(self) -> None:
        """Renew as a living holder does."""
        if not self.is_silent:
            self._calls.renew(self._held)


def identity_of(key: JobKey, run: Run, **fields: Any) -> ClaimIdentity:
    return ClaimIdentity(*key, run.run_id, run.attempt, run.token, **fields)
