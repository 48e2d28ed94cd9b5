"""Shares of a limit that many instances lease from one row each tenant, so that a use costs none.

An instance remembers the row as it last saw it and writes it only if it still stands so; who
loses is told what stands there, and decides again.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from punctual.domain.errors import Unavailable

TRIES = 8
FRESH = 0.05  # seconds for which what was seen of a row that others write is worth a try
SEEN = 1.0  # seconds after which a refusal is not given without another look

S = TypeVar("S")
A = TypeVar("A")


class Contended(Unavailable):
    """The row answers, and others lease from it: no reason to let anything pass by."""


class Row(NamedTuple):
    """`text` is empty, and the version 0, where there is none."""

    text: str
    version: int


class Shares(Protocol):
    def read(self, tenant: str, what: str) -> Row | None: ...

    def swap(self, tenant: str, what: str, expect: int, text: str) -> Row | None:
        """Write version `expect + 1`; None where that was done, else the row that stands."""


class _Seen(NamedTuple, Generic[S]):
    """`shared`: others wrote it since we last did, and will again."""

    state: S
    version: int
    at: float
    shared: bool = False


class Leases(Generic[S]):
    """The row of one kind of limit, for each tenant."""

    def __init__(
        self, shares: Shares, what: str, empty: S, kind: type[S], steady: Callable[[], float]
    ) -> None:
        self._shares = shares
        self._what = what
        self._empty = empty
        self._decoder = msgspec.json.Decoder(kind)
        self._encoder = msgspec.json.Encoder()
        self._steady = steady
        self._seen: dict[str, _Seen[S]] = {}

    def change(self, tenant: str, decide: Callable[[S], tuple[S, A]]) -> A:
        """What `decide` answers for the state that it changed; nothing is written for nothing."""
        seen = self._seen.get(tenant)
        if seen is None or (seen.shared and self._steady() - seen.at >= FRESH):
            seen = self._look(tenant)  # cheaper than a write that is lost
        for _ in range(TRIES):
            new, answer = decide(seen.state)
            if new == seen.state:
                if self._steady() - seen.at < SEEN:
                    return answer
                seen = self._look(tenant)
                new, answer = decide(seen.state)
                if new == seen.state:
                    return answer
            text = self._encoder.encode(new).decode()
            stood = self._shares.swap(tenant, self._what, seen.version, text)
            if stood is None:
                self._seen[tenant] = _Seen(new, seen.version + 1, self._steady(), seen.shared)
                return answer
            seen = self._note(tenant, self._read(stood), stood.version)
        raise Contended("Too many calls ask for the same at the same time: try again.")

    def _look(self, tenant: str) -> _Seen[S]:
        row = self._shares.read(tenant, self._what)
        if row is None:
            return self._note(tenant, self._empty, 0)
        return self._note(tenant, self._read(row), row.version)

    def _note(self, tenant: str, state: S, version: int) -> _Seen[S]:
        before = self._seen.get(tenant)
        shared = before is not None and before.version != version
        seen = self._seen[tenant] = _Seen(state, version, self._steady(), shared)
        return seen

    def _read(self, row: Row) -> S:
        """What nobody can read is begun anew: at most a minute's use is forgotten."""
        try:
            return self._decoder.decode(row.text) if row.text else self._empty
        except msgspec.MsgspecError:
            return self._empty


class Heat:
    """How much was asked for in about the last second: what is worth leasing together."""

    def __init__(self) -> None:
        self._heat = 0.0
        self._at = 0.0

    def add(self, count: int, now: float) -> int:
        """All that was asked for within a second still counts for a third of itself."""
        self._heat = self._heat * 2.72 ** -min(60.0, now - self._at) + count
        self._at = now
        return max(1, round(self._heat))
