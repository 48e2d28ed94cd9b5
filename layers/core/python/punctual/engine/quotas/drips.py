"""What an instance has of a flow of tokens, and how fast its tenant asks for them."""

from math import exp, inf

from punctual.domain.tenants.quota_ledger import TOKEN
from punctual.domain.tenants.streams import FINE

LAST = 2.0  # seconds behind the flow's end that what came of it may be used
NEW = 6  # seconds: of a first call alone nobody knows whether a second one follows
_PARTS = TOKEN // FINE  # that a flow of one brings in a second


class Drip:
    """A flow until its end, into a cup that keeps `depth` tokens; what spills over is known."""

    def __init__(self, flow: int, now: float, until: float, depth: float, parts: int = 0) -> None:
        self.flow = flow
        self.until = until
        self.parts = 0
        self.spilt = 0
        self._depth = round(depth * TOKEN)
        self._at = now
        self.pour(parts)

    def take(self, now: float) -> bool:
        self.run(now)
        if self.parts < TOKEN:
            return False
        self.parts -= TOKEN
        return True

    def run(self, now: float) -> None:
        end = min(now, self.until)
        if end > self._at:
            self.pour(round((end - self._at) * self.flow * _PARTS))
            self._at = end
        if now >= self.until + LAST:
            self.spilt += self.parts
            self.parts = 0

    def pour(self, parts: int) -> None:
        self.parts += parts
        self.spilt += max(0, self.parts - self._depth)
        self.parts = min(self.parts, self._depth)

    def next_in(self, now: float) -> float:
        """Seconds until there is a token; never, where the flow ends before."""
        if not self.flow:
            return inf
        at = self._at + max(0, TOKEN - self.parts) / (self.flow * _PARTS)
        return max(0.0, at - now) if at <= self.until else inf


class Pace:
    """How many a second, in about so many seconds."""

    def __init__(self, span: float) -> None:
        self._span = span
        self._weight = 0.0
        self._at = 0.0
        self._since: float | None = None

    def add(self, now: float) -> None:
        if self._since is None:
            self._since = self._at = now
        self._weight = self._weight * self._faded(now - self._at) + 1
        self._at = now

    def flow(self, now: float) -> int:
        """In thousandths; who has only begun is taken to have begun some seconds ago."""
        if self._since is None:
            return 0
        known = self._span * (1 - self._faded(now - self._since + NEW))
        return round(FINE * self._weight * self._faded(now - self._at) / known)

    def _faded(self, seconds: float) -> float:
        return exp(-max(0.0, seconds) / self._span)
