"""Secret values taken out of what we keep or show, in streams too."""

import json
import re
from urllib.parse import quote, quote_plus

import msgspec

from punctual.tasks.contract import Outcome

MARK = "[secret]"


class Redactor:
    """Replaces the secrets of one attempt, as they are and as a URL or JSON spells them."""

    def __init__(self, secrets: frozenset[str]) -> None:
        spellings = {spelling for secret in secrets for spelling in _spellings(secret)}
        if spellings:
            # A mark counts as found, so that what went through once is left as it is.
            spellings.add(MARK.encode())
        # The longest first, or a secret that begins another would leave the rest of it standing.
        self._spellings = sorted(spellings, key=lambda spelling: (-len(spelling), spelling))
        alternatives = b"|".join(map(re.escape, self._spellings))
        self._pattern = re.compile(alternatives) if alternatives else None

    def data(self, data: bytes, *, cut: bool = False) -> bytes:
        """The data without secrets; of data that was cut, not the beginning of one either."""
        stream = self.stream()
        clean = stream.feed(data)
        return clean if cut else clean + stream.end()

    def text(self, text: str) -> str:
        encoded = text.encode("utf-8", "surrogatepass")
        return self.data(encoded).decode("utf-8", "surrogatepass")

    def stream(self) -> "RedactedStream":
        return RedactedStream(self._pattern, self._spellings)

    def outcome(self, outcome: Outcome) -> Outcome:
        if self._pattern is None:
            return outcome
        return msgspec.structs.replace(
            outcome,
            error=self.text(outcome.error),
            output=self.data(outcome.output, cut=outcome.output_truncated),
            output_type=self.text(outcome.output_type),
            http_headers=tuple((self.text(n), self.text(v)) for n, v in outcome.http_headers),
        )


class RedactedStream:
    """Data in pieces: the end of a piece is held back while it may begin a secret."""

    def __init__(self, pattern: re.Pattern[bytes] | None, spellings: list[bytes]) -> None:
        self._pattern = pattern
        self._spellings = spellings
        self._longest = max(map(len, spellings), default=0)
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        if self._pattern is None:
            return data
        clean = bytearray()
        rest = self._held + data
        at = 0
        while True:
            hold = self._beginning(rest, at)
            match = self._pattern.search(rest, at)
            if match is None or match.start() >= hold:
                self._held = rest[hold:]
                return bytes(clean + rest[at:hold])
            clean += rest[at : match.start()] + MARK.encode()
            at = match.end()

    def end(self) -> bytes:
        held, self._held = self._held, b""
        return self._pattern.sub(MARK.encode(), held) if self._pattern else held

    def _beginning(self, data: bytes, at: int) -> int:
        """Where the earliest end of the data begins that may still become a secret."""
        for start in range(max(at, len(data) - self._longest + 1), len(data)):
            for spelling in self._spellings:
                if data[start] == spelling[0] and _begins(spelling, data, start):
                    return start
        return len(data)


def _begins(spelling: bytes, data: bytes, start: int) -> bool:
    length = len(data) - start
    return length < len(spelling) and spelling[:length] == data[start:]


def _spellings(secret: str) -> set[bytes]:
    texts = {
        secret,
        quote(secret, safe="", errors="surrogatepass"),
        quote(secret, errors="surrogatepass"),
        quote_plus(secret, errors="surrogatepass"),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
    }
    return {text.encode("utf-8", "surrogatepass") for text in texts if text}
