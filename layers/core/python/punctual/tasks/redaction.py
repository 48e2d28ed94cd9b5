"""Replaces secret values in everything that is kept or shown of an attempt.

Data comes in pieces, so a piece's end is held back while it may be the first part of a secret.
`secret_spellings` says in which forms a secret is found.
"""

import heapq
from collections.abc import Iterator

import msgspec

from punctual.tasks.contract import Outcome
from punctual.tasks.secret_spellings import spellings_of

MARK = "[secret]"
_MARK = MARK.encode()
_HEAD_BYTES = 4  # a search for so many bytes finds where a spelling may begin


class Redactor:
    """Replaces the secrets of one attempt."""

    def __init__(self, secrets: frozenset[str]) -> None:
        spellings = {spelling for secret in secrets for spelling in spellings_of(secret)}
        if spellings:
            # A mark counts as found, so redacting twice changes nothing.
            spellings.add(_MARK)
        # The longest first: a secret may be the beginning of another.
        self._spellings = sorted(spellings, key=lambda spelling: (-len(spelling), spelling))

    def data(self, data: bytes, *, cut: bool = False) -> bytes:
        """Return the data without secrets; `cut` data may also end with a part of one."""
        stream = self.stream()
        clean = stream.feed(data)
        return clean if cut else clean + stream.end()

    def text(self, text: str) -> str:
        encoded = text.encode("utf-8", "surrogatepass")
        return self.data(encoded).decode("utf-8", "surrogatepass")

    def stream(self) -> "RedactedStream":
        return RedactedStream(self._spellings)

    def outcome(self, outcome: Outcome) -> Outcome:
        if not self._spellings:
            return outcome
        return msgspec.structs.replace(
            outcome,
            error=self.text(outcome.error),
            output=self.data(outcome.output, cut=outcome.output_truncated),
            output_type=self.text(outcome.output_type),
            http_headers=tuple((self.text(n), self.text(v)) for n, v in outcome.http_headers),
        )


class RedactedStream:
    """Redacts data in pieces."""

    def __init__(self, spellings: list[bytes]) -> None:
        self._spellings = spellings
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        if not self._spellings:
            return data
        rest = self._held + data
        clean = bytearray()
        at = 0
        hold = self._unfinished(rest, at)
        for start, end in self._found(rest):
            if start >= hold:
                break  # a longer secret may begin before this one
            clean += rest[at:start] + _MARK
            at = end
            if hold < at:
                hold = self._unfinished(rest, at)
        self._held = rest[hold:]
        return bytes(clean + rest[at:hold])

    def end(self) -> bytes:
        held, self._held = self._held, b""
        clean = bytearray()
        at = 0
        for start, end in self._found(held):
            clean += held[at:start] + _MARK
            at = end
        return bytes(clean + held[at:])

    def _found(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield where secrets stand: the earliest first, at one place the longest.

        One search for each spelling is much faster than one pattern of hundreds of them.
        """
        places = [
            (start, rank)
            for rank, spelling in enumerate(self._spellings)
            if (start := data.find(spelling)) >= 0
        ]
        heapq.heapify(places)
        at = 0
        while places:
            start, rank = heapq.heappop(places)
            spelling = self._spellings[rank]
            if start >= at:
                at = start + len(spelling)
                yield start, at
            following = data.find(spelling, at)
            if following >= 0:
                heapq.heappush(places, (following, rank))

    def _unfinished(self, data: bytes, at: int) -> int:
        """Return where the earliest end of the data begins that may still become a secret."""
        earliest = len(data)
        for spelling in self._spellings:
            start = max(at, len(data) - len(spelling) + 1)
            earliest = min(earliest, _part_at_end(data, spelling, start))
        return earliest


def _part_at_end(data: bytes, spelling: bytes, start: int) -> int:
    """Return where, from `start` on, the data ends with the first part of the spelling."""
    head = spelling[:_HEAD_BYTES]
    place = start
    while (place := data.find(head, place)) >= 0:
        if spelling.startswith(data[place:]):
            return place
        place += 1
    for length in range(min(len(head) - 1, len(data) - start), 0, -1):
        if data.endswith(spelling[:length]):
            return len(data) - length
    return len(data)
