"""A network between client and node with planned failures."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from enum import Enum

import httpx


class Fault(Enum):
    """The fault of one attempt. The text in brackets says how far the node got."""

    NONE = "answered (done)"
    REFUSED = "no connection (nothing)"
    CONNECT_TIMEOUT = "connecting takes too long (nothing)"
    BROKEN_SENDING = "breaks while sending (nothing)"
    LIMITED = "429 (nothing)"
    UNAVAILABLE = "503 before it is looked at (nothing)"
    RESET = "breaks before the answer (done)"
    SILENT = "the answer takes too long (done)"
    CLOSED = "closed without an answer (done)"
    CUT = "breaks within the answer (done)"
    GATEWAY = "504 of a gateway that waited too long (done)"
    UNAVAILABLE_AFTER = "503 after it was done (done)"

    @property
    def done(self) -> bool:
        return self.value.endswith("(done)")


CERTAIN = frozenset({Fault.NONE, Fault.REFUSED, Fault.CONNECT_TIMEOUT, Fault.LIMITED})

_BEFORE: dict[Fault, Callable[[], Exception]] = {
    Fault.REFUSED: lambda: httpx.ConnectError("refused"),
    Fault.CONNECT_TIMEOUT: lambda: httpx.ConnectTimeout("too slow"),
    Fault.BROKEN_SENDING: lambda: httpx.WriteError("reset"),
}
_AFTER: dict[Fault, Callable[[], Exception]] = {
    Fault.RESET: lambda: httpx.ReadError("reset"),
    Fault.SILENT: lambda: httpx.ReadTimeout("too slow"),
    Fault.CLOSED: lambda: httpx.RemoteProtocolError("closed"),
}
_INSTEAD = {Fault.LIMITED: 429, Fault.UNAVAILABLE: 503}
_IN_ITS_PLACE = {Fault.GATEWAY: 504, Fault.UNAVAILABLE_AFTER: 503}


class _Cut(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __init__(self, data: bytes) -> None:
        self._data = data[: len(data) // 2]

    def __iter__(self) -> Iterator[bytes]:
        yield self._data
        raise httpx.ReadError("reset")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._data
        raise httpx.ReadError("reset")


class Faulty:
    """A transport that applies one fault to each write.

    After the last fault, and for reads, it works.
    """

    def __init__(self, node: httpx.Client, faults: Sequence[Fault]) -> None:
        self._node = node
        self._left = list(faults)
        self.met: list[Fault] = []

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._answer)

    @property
    def done(self) -> bool:
        return any(fault.done for fault in self.met)

    @property
    def certain(self) -> bool:
        return CERTAIN.issuperset(self.met)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return self._asked(request)
        fault = self._left.pop(0) if self._left else Fault.NONE
        self.met.append(fault)
        if fault in _BEFORE:
            raise _BEFORE[fault]()
        if fault in _INSTEAD:
            return _status(_INSTEAD[fault])
        answer = self._asked(request)
        if fault in _AFTER:
            raise _AFTER[fault]()
        if fault in _IN_ITS_PLACE:
            return _status(_IN_ITS_PLACE[fault])
        if fault is Fault.CUT:
            return httpx.Response(answer.status_code, stream=_Cut(answer.content))
        return answer

    def _asked(self, request: httpx.Request) -> httpx.Response:
        answer = self._node.request(
            request.method, request.url, headers=request.headers, content=request.content
        )
        return httpx.Response(
            answer.status_code, headers=dict(answer.headers), content=answer.content
        )


def _status(status: int) -> httpx.Response:
    return httpx.Response(status, headers={"retry-after": "0"}, json={"message": "no"})
