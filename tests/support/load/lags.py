"""How much later than job states the rows of lists show them."""

from collections.abc import Sequence


class Lags:
    def __init__(self, seconds: Sequence[float]) -> None:
        self._sorted = sorted(seconds)

    @property
    def count(self) -> int:
        return len(self._sorted)

    @property
    def p99(self) -> float:
        return self._sorted[int(0.99 * (len(self._sorted) - 1))]

    @property
    def longest(self) -> float:
        return self._sorted[-1]

    def __repr__(self) -> str:
        median = self._sorted[len(self._sorted) // 2]
        return f"p50 {median:.2f} s, p99 {self.p99:.2f} s, max {self.longest:.2f} s"
