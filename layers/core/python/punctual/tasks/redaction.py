"""Replace secret values in everything that is stored or shown of an attempt.

Data arrives in pieces. The stream holds back the end of a piece that may begin a secret.
The module `secret_spellings` defines the forms in which a secret is found.
"""

import heapq
from collections.abc import Iterator

import msgspec

from punctual.tasks.contract import Outcome
from punctual.tasks.secret_spellings import spellings_of

MARK = "[secret]"
_MARK = MARK.encode()
_HEAD_BYTES = 4  # a search for these first bytes finds the possible starts of a spelling


class Redactor:
    def __init__(self, secrets: frozenset[str]) -> None:
        spellings = {spelling for secret in secrets for spelling in spellings_of(secret)}
        if spellings:
            # Treat the mark itself as a secret, so that redacting twice changes nothing.
            spellings.add(_MARK)
        # Sort the longest first. A secret may be the prefix of another one.
        self._spellings = sorted(spellings, key=lambda spelling: (-len(spelling), spelling))

    def data(self, data: bytes, *, cut: bool = False) -> bytes:
        """Return the data without secrets. `cut` also removes a partial secret at the end."""
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
    """Redacts data that arrives in pieces."""

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
        """Yield the start and end of each secret. At one start the longest spelling wins.

        One search for each spelling is much faster than one pattern of hundreds of spellings.
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
        """Return the first position, from `at` on, of a possible secret that the data cuts off."""
        earliest = len(data)
        for spelling in self._spellings:
            start = max(at, len(data) - len(spelling) + 1)
            earliest = min(earliest, _part_at_end(data, spelling, start))
        return earliest


def _part_at_end(data: bytes, spelling: bytes, start: int) -> int:
    """Return the position, at or after `start`, where a prefix of the spelling ends the data.

    Without a partial match, return the length of the data.
    """
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
