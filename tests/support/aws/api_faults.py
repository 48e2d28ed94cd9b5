"""AWS outages during a request, from the n-th call on or for that call only."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from botocore.exceptions import EndpointConnectionError, ReadTimeoutError

from tests.support.aws.moto_adapter import Moto
from tests.support.deployed.drivers.api import Answer

NOWHERE = "https://aws.invalid"
THROTTLED, BROKEN, SILENT, CLOSED, LOST, LEFT = (
    *("throttled", "broken", "silent", "closed", "lost", "left over"),
)
KINDS = (THROTTLED, BROKEN, SILENT, CLOSED, LOST, LEFT)
_SAID = {THROTTLED: ("ThrottlingException", 400), BROKEN: ("InternalServerError", 500)}
_HANDED_BACK = {"BatchGetItem": "UnprocessedKeys", "BatchWriteItem": "UnprocessedItems"}


class _Http(NamedTuple):
    status_code: int


class Away:
    """Counts the calls of all clients. Calls from `first` on fail by `kind`."""

    def __init__(self, store: Moto) -> None:
        self.seen = 0
        self._kind = ""
        self._first = 0
        self._once = False
        clients = store.clients
        for client in (clients.dynamodb, clients.sqs, clients.s3, clients.events):
            client.meta.events.register("before-call", self._asked)
            client.meta.events.register_last("after-call", self._answered)

    @contextmanager
    def at(self, kind: str, first: int, once: bool = False) -> Iterator[None]:
        self.seen, self._kind, self._first, self._once = 0, kind, first, once
        try:
            yield
        finally:
            self._kind = ""

    @property
    def hit(self) -> bool:
        return self.seen > self._first

    def _struck(self) -> bool:
        place = self.seen - 1
        return place == self._first if self._once else place >= self._first

    def _asked(self, model: Any, params: Any, **_: Any) -> Any:
        self.seen += 1
        if not self._kind or not self._struck():
            return None
        if self._kind in _SAID:
            code, status = _SAID[self._kind]
            about = {"HTTPStatusCode": status}
            error = {"Code": code, "Message": "planted"}
            return _Http(status), {"Error": error, "ResponseMetadata": about}
        if self._kind == LEFT and model.name in _HANDED_BACK:
            asked = json.loads(params["body"])["RequestItems"]
            answer = {"Responses": {}, _HANDED_BACK[model.name]: asked}
            return _Http(200), {**answer, "ResponseMetadata": {"HTTPStatusCode": 200}}
        if self._kind in (SILENT, LEFT):
            raise ReadTimeoutError(endpoint_url=NOWHERE)
        if self._kind == CLOSED:
            raise EndpointConnectionError(endpoint_url=NOWHERE)
        return None

    def _answered(self, **_: Any) -> None:
        if self._kind == LOST and self._struck():
            raise ReadTimeoutError(endpoint_url=NOWHERE)


def is_refused(answer: Answer) -> bool:
    """Return True for a 503. It must name a retry time and must not reveal the internal error."""
    if answer.status != 503:
        return False
    problem = answer.json
    assert answer.headers["content-type"] == "application/problem+json"
    assert int(answer.headers["retry-after"]) >= 1
    assert (problem["status"], problem["code"]) == (503, "UNAVAILABLE")
    assert "aws.invalid" not in answer.body.decode()
    return True
