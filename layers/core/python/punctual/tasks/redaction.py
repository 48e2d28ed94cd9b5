"""Replace secret values in everything that is stored or shown of an attempt.

Data arrives in pieces. The stream holds back the end of a piece that may begin a secret.
The module `secret_spellings` defines the forms in which a secret is found.
"""

import heapq
from collections.abc import Iterator
from dataclasses import replace

from punctual.tasks.contract import Outcome
from punctual.tasks.secret_spellings import spellings_of

REDACTION_MARK = "[secret]"
_REDACTION_MARK_BYTES = REDACTION_MARK.encode()
_SEARCH_PREFIX_BYTES = 4  # a search for these first bytes finds the possible starts of a spelling


class Redactor:
    def __init__(self, secrets: frozenset[str]) -> None:
        spellings = {spelling for secret in secrets for spelling in spellings_of(secret)}
        if spellings:
            # Treat the mark itself as a secret, so that redacting twice changes nothing.
            spellings.add(_REDACTION_MARK_BYTES)
        # Sort the longest first. A secret may be the prefix of another one.
        self._spellings = sorted(spellings, key=lambda spelling: (-len(spelling), spelling))

    def data(self, data: bytes, *, drop_partial: bool = False) -> bytes:
        """Return the data without secrets. `drop_partial` also removes a cut secret at the end."""
        stream = self.stream()
        clean = stream.feed(data)
        return clean if drop_partial else clean + stream.flush()

    def text(self, text: str) -> str:
        encoded = text.encode("utf-8", "surrogatepass")
        return self.data(encoded).decode("utf-8", "surrogatepass")

    def stream(self) -> "RedactedStream":
        return RedactedStream(self._spellings)

    def outcome(self, outcome: Outcome) -> Outcome:
        if not self._spellings:
            return outcome
        return replace(
            outcome,
            error=self.text(outcome.error),
            output=self.data(outcome.output, drop_partial=outcome.output_truncated),
            output_type=self.text(outcome.output_type),
            http_headers=tuple(
                (self.text(name), self.text(value)) for name, value in outcome.http_headers
            ),
        )


class RedactedStream:
    """Redacts data that arrives in pieces."""

    def __init__(self, spellings: list[bytes]) -> None:
        self._spellings = spellings
        self._pending = b""

    def feed(self, data: bytes) -> bytes:
        if not self._spellings:
            return data
        buffered = self._pending + data
        clean = bytearray()
        position = 0
        pending_from = self._partial_from(buffered, position)
        for start, end in self._find_secrets(buffered):
            if start >= pending_from:
                break  # a longer secret may begin before this one
            clean += buffered[position:start] + _REDACTION_MARK_BYTES
            position = end
            if pending_from < position:
                pending_from = self._partial_from(buffered, position)
        self._pending = buffered[pending_from:]
        return bytes(clean + buffered[position:pending_from])

    def flush(self) -> bytes:
        pending, self._pending = self._pending, b""
        clean = bytearray()
        position = 0
        for start, end in self._find_secrets(pending):
            clean += pending[position:start] + _REDACTION_MARK_BYTES
            position = end
        return bytes(clean + pending[position:])

    def _find_secrets(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each secret. At one start the longest spelling wins.

        One search for each spelling is much faster than one pattern of hundreds of spellings.
        """
        matches = [
            (start, rank)
            for rank, spelling in enumerate(self._spellings)
            if (start := data.find(spelling)) >= 0
        ]
        heapq.heapify(matches)
        position = 0
        while matches:
            start, rank = heapq.heappop(matches)
            spelling = self._spellings[rank]
            if start >= position:
                position = start + len(spelling)
                yield start, position
            next_start = data.find(spelling, position)
            if next_start >= 0:
                heapq.heappush(matches, (next_start, rank))

    def _partial_from(self, data: bytes, first: int) -> int:
        """Return the position, from `first` on, of a possible secret that the data cuts off."""
        earliest = len(data)
        for spelling in self._spellings:
            start = max(first, len(data) - len(spelling) + 1)
            earliest = min(earliest, _partial_match_at_end(data, spelling, start))
        return earliest


def _partial_match_at_end(data: bytes, spelling: bytes, start: int) -> int:
    """Return the position, at or after `start`, where a prefix of the spelling ends the data.

    Without a partial match, return the length of the data.
    """
    prefix = spelling[:_SEARCH_PREFIX_BYTES]
    position = start
    while (position := data.find(prefix, position)) >= 0:
        if spelling.startswith(data[position:]):
            return position
        position += 1
    for length in range(min(len(prefix) - 1, len(data) - start), 0, -1):
        if data.endswith(spelling[:length]):
            return len(data) - length
    return len(data)
