"""AWS faults that moto never produces: lost answers, errors, partial batches.

Each fault applies to the first `times` calls of an operation on one client.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from botocore.exceptions import ReadTimeoutError


class _Http(NamedTuple):
    status_code: int


class _Countdown:
    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self) -> bool:
        self.left -= 1
        return self.left >= 0


@contextmanager
def _hooked(client: Any, event: str, handler: Callable[..., Any]) -> Iterator[None]:
    client.meta.events.register_first(event, handler)
    try:
        yield
    finally:
        client.meta.events.unregister(event, handler)


def _event(client: Any, kind: str, operation: str) -> str:
    return f"{kind}.{client.meta.service_model.service_id.hyphenize()}.{operation}"


@contextmanager
def lost_answers(client: Any, operation: str, times: int) -> Iterator[None]:
    """Let the call take effect, and lose its answer."""
    strikes = _Countdown(times)

    def strike(**_: Any) -> None:
        if strikes():
            raise ReadTimeoutError(endpoint_url="https://aws.invalid")

    with _hooked(client, _event(client, "after-call", operation), strike):
        yield


@contextmanager
def unreached(client: Any, operation: str, times: int) -> Iterator[None]:
    """Fail the call before it takes effect."""
    strikes = _Countdown(times)

    def strike(**_: Any) -> None:
        if strikes():
            raise ReadTimeoutError(endpoint_url="https://aws.invalid")

    with _hooked(client, _event(client, "before-call", operation), strike):
        yield


@contextmanager
def refused(
    client: Any, operation: str, times: int, code: str, status: int = 400
) -> Iterator[None]:
    """Answer with an error, without an effect."""
    strikes = _Countdown(times)

    def strike(**_: Any) -> Any:
        if not strikes():
            return None
        answer = {
            "Error": {"Code": code, "Message": "planted"},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }
        return _Http(status), answer

    with _hooked(client, _event(client, "before-call", operation), strike):
        yield


@contextmanager
def sent_twice(client: Any, operation: str) -> Iterator[None]:
    """Make botocore send the call twice, as after a lost answer."""
    strikes = _Countdown(1)

    def again(**_: Any) -> float | None:
        return 0 if strikes() else None

    with _hooked(client, _event(client, "needs-retry", operation), again):
        yield


@contextmanager
def in_part(client: Any, operation: str, times: int, done: int) -> Iterator[list[int]]:
    """Process only the first `done` rows of a batch. Yield the size of each call."""
    strikes = _Countdown(times)
    reading = operation == "BatchGetItem"
    seen: list[int] = []
    rest: dict[str, Any] = {}

    def shorten(params: dict[str, Any], **_: Any) -> dict[str, Any] | None:
        ((table, asked),) = params["RequestItems"].items()
        rows = asked["Keys"] if reading else asked
        seen.append(len(rows))
        rest.clear()
        if not strikes():
            return None
        rest[table] = {"Keys": rows[done:]} if reading else rows[done:]
        kept = {**asked, "Keys": rows[:done]} if reading else rows[:done]
        return {**params, "RequestItems": {table: kept}}

    def hand_back(parsed: dict[str, Any], **_: Any) -> None:
        if rest:
            parsed["UnprocessedKeys" if reading else "UnprocessedItems"] = dict(rest)

    with (
        _hooked(client, _event(client, "provide-client-params", operation), shorten),
        _hooked(client, _event(client, "after-call", operation), hand_back),
    ):
        yield seen


@contextmanager
def failed_entries(
    client: Any, operation: str, times: int, places: set[int], sender_fault: bool = False
) -> Iterator[list[int]]:
    """Fail the entries at `places` of a batch. Yield the number of entries of each call."""
    strikes = _Countdown(times)
    seen: list[int] = []

    def note(params: dict[str, Any], **_: Any) -> None:
        seen.append(len(params["Entries"]))

    def report(parsed: dict[str, Any], **_: Any) -> None:
        if not strikes():
            return
        if operation == "PutEvents":
            for place in places:
                parsed["Entries"][place] = {"ErrorCode": "InternalFailure"}
            return
        taken = parsed["Successful"]
        parsed["Successful"] = [entry for n, entry in enumerate(taken) if n not in places]
        parsed["Failed"] = [
            {"Id": taken[place]["Id"], "SenderFault": sender_fault, "Code": "Planted"}
            for place in places
        ]

    with (
        _hooked(client, _event(client, "provide-client-params", operation), note),
        _hooked(client, _event(client, "after-call", operation), report),
    ):
        yield seen
