"""A bucket of tokens of which a part flows past it, to those who were promised it for a while.

What is promised refills the bucket no more, so all that is used together is never more than the
rate: a promise needs no name, and ends by itself. Flows are thousandths of a token a second.
"""

from collections.abc import Iterator

from msgspec import Struct

from punctual.domain.shares import TOKEN

SECOND = 1_000_000  # microseconds
FINE = 1_000
WRONG = 10  # seconds ahead that no right clock is: they are the store's own to a second, or to five
ENDS = 40  # seconds in which every promise has ended that a right clock made
AFTER = 3  # seconds for which an ended flow is promised to nobody else: who had it may come back


class Stream(Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """`promised`: how much flows elsewhere, by the second until which it does."""

    parts: int
    at: int  # microseconds
    promised: tuple[tuple[int, int], ...] = ()


def brimful(holds: int, now: int) -> Stream:
    return Stream(holds * TOKEN, now)


def flowed(stream: Stream, rate: int, holds: int, now: int) -> Stream:
    """A clock that went back refills nothing until it has caught up; who was far ahead is left,
    with what it promised itself: others' promises are kept.

    >>> flowed(Stream(0, 0, ((1, 4_000),)), 10, 50, 2_000_000)
    Stream(parts=16000000, at=2000000, promised=((1, 4000),))
    >>> flowed(Stream(0, 2_000_000, ((1, 4_000),)), 10, 50, 4_000_000)
    Stream(parts=20000000, at=4000000, promised=())
    >>> flowed(Stream(7, 3_600_000_000), 10, 5, 0)
    Stream(parts=7, at=0, promised=())
    >>> flowed(Stream(7, 100_000_000, ((9, 4), (120, 5))), 10, 5, 0)
    Stream(parts=7, at=0, promised=((9, 4),))
    """
    if stream.at > now + WRONG * SECOND:
        stream = Stream(stream.parts, now, stream.promised)
    parts, left = stream.parts, max(0, now - stream.at)
    for span, free in _spans(stream, rate):
        parts += min(span, left) * free // FINE
        left = max(0, left - span)
    parts += left * rate
    first, last = now - AFTER * SECOND, now + ENDS * SECOND
    promised = tuple(one for one in stream.promised if first < one[0] * SECOND <= last)
    return Stream(min(holds * TOKEN, parts), max(now, stream.at), promised)


def _spans(stream: Stream, rate: int) -> Iterator[tuple[int, int]]:
    """Microseconds, and what flows into the bucket for so long; behind them it is the rate."""
    at = stream.at
    flows = [one for one in stream.promised if one[0] * SECOND > at]
    elsewhere = sum(flow for _, flow in flows)
    for until, flow in flows:
        yield until * SECOND - at, max(0, rate * FINE - elsewhere)
        at, elsewhere = until * SECOND, elsewhere - flow


def unpromised(stream: Stream, rate: int) -> int:
    """
    >>> unpromised(Stream(0, 0, ((1, 4_000), (2, 5_000))), 10)
    1000
    """
    return max(0, rate * FINE - sum(flow for _, flow in stream.promised))


def promise(stream: Stream, flow: int, until: int) -> Stream:
    """
    >>> promise(promise(Stream(0, 0), 5, 9), 7, 8)
    Stream(parts=0, at=0, promised=((8, 7), (9, 5)))
    """
    by_second = dict(stream.promised)
    by_second[until] = by_second.get(until, 0) + flow
    return Stream(stream.parts, stream.at, tuple(sorted(by_second.items())))


def unpromise(stream: Stream, flow: int, until: int) -> Stream:
    """
    >>> unpromise(Stream(0, 0, ((8, 7), (9, 5))), 5, 9)
    Stream(parts=0, at=0, promised=((8, 7),))
    """
    found = [(second, n - flow * (second == until)) for second, n in stream.promised]
    return Stream(stream.parts, stream.at, tuple(one for one in found if one[1] > 0))


def whole(stream: Stream) -> int:
    """Tokens there are.

    >>> whole(Stream(2 * TOKEN + 1, 0)), whole(Stream(-5, 0))
    (2, 0)
    """
    return max(0, stream.parts // TOKEN)


def poured(stream: Stream, parts: int) -> Stream:
    """So much more, or less."""
    return Stream(stream.parts + parts, stream.at, stream.promised)


def filled_in(stream: Stream, rate: int, count: int) -> float:
    """Seconds, from the stream's own moment, until it holds so many tokens.

    >>> filled_in(Stream(0, 0, ((2, 8_000),)), 10, 5), filled_in(Stream(0, 0), 10, 5)
    (2.1, 0.5)
    >>> filled_in(Stream(0, 0, ((2, 8_000),)), 10, 1), filled_in(Stream(TOKEN, 0), 10, 1)
    (0.5, 0.0)
    """
    missing, passed = count * TOKEN - stream.parts, 0
    if missing <= 0:
        return 0.0
    for span, free in _spans(stream, rate):
        if missing * FINE <= span * free:
            return (passed + missing * FINE / free) / SECOND
        missing -= span * free // FINE
        passed += span
    return (passed + missing / rate) / SECOND
