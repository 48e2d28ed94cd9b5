"""A bucket of tokens of which a part flows past it, to those who were promised it for a while.

What is promised refills the bucket no more, so all that is used together is never more than the
rate: a promise needs no name, and ends by itself. Flows are thousandths of a token a second.
"""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from punctual.domain.tenants.quota_ledger import TOKEN

SECOND = 1_000_000  # microseconds
FINE = 1_000
WRONG = 10  # seconds ahead that no right clock is: they are the store's own to a second, or to five
ENDS = 40  # seconds in which every promise has ended that a right clock made
AFTER = 3  # seconds for which an ended flow is promised to nobody else: who had it may come back
# Half seconds' worth that all together may have and not have used: in the cups of what is promised
# to them, or set aside; and both. Whoever finds that beside the rate finds less than a twentieth.
EITHER, BOTH = 4, 5
ASIDE = 240  # seconds at most for which tokens may be set aside
_ROUND = 30  # they end together, so that the row stays small
_Until = tuple[tuple[int, int], ...]


class Stream(Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """`promised`: how much flows elsewhere, by the second until which it does; `aside`: how many
    tokens some took to have them at hand, by the second until which they may use them."""

    parts: int
    at: int  # microseconds
    promised: _Until = ()
    aside: _Until = ()


def brimful(holds: int, now: int) -> Stream:
    return Stream(holds * TOKEN, now)


def flowed(stream: Stream, rate: int, holds: int, now: int) -> Stream:
    """A clock that went back refills nothing until it has caught up; who was far ahead is left,
    with what it promised itself: others' promises are kept.

    >>> flowed(Stream(0, 0, ((1, 4_000),)), 10, 50, 2_000_000)
    Stream(parts=16000000, at=2000000, promised=((1, 4000),), aside=())
    >>> flowed(Stream(0, 2_000_000, ((1, 4_000),)), 10, 50, 4_000_000)
    Stream(parts=20000000, at=4000000, promised=(), aside=())
    >>> flowed(Stream(7, 3_600_000_000), 10, 5, 0)
    Stream(parts=7, at=0, promised=(), aside=())
    >>> flowed(Stream(7, 100_000_000, ((9, 4), (120, 5))), 10, 5, 0)
    Stream(parts=7, at=0, promised=((9, 4),), aside=())
    >>> flowed(Stream(0, 0, (), ((1, 5), (2, 6), (900, 7))), 10, 5, 1_000_000).aside
    ((2, 6),)
    """
    if stream.at > now + WRONG * SECOND:
        stream = replace(stream, at=now)
    parts, left = stream.parts, max(0, now - stream.at)
    for span, free in _spans(stream, rate):
        parts += min(span, left) * free // FINE
        left = max(0, left - span)
    parts += left * rate
    first, last = now - AFTER * SECOND, now + ENDS * SECOND
    promised = tuple(one for one in stream.promised if first < one[0] * SECOND <= last)
    longest = now + (ASIDE + ENDS) * SECOND
    aside = tuple(one for one in stream.aside if now < one[0] * SECOND <= longest)
    return Stream(min(holds * TOKEN, parts), max(now, stream.at), promised, aside)


def _spans(stream: Stream, rate: int) -> Iterator[tuple[int, int]]:
    """Microseconds, and what flows into the bucket for so long; behind them it is the rate."""
    at = stream.at
    flows = [one for one in stream.promised if one[0] * SECOND > at]
    elsewhere = sum(flow for _, flow in flows)
    for until, flow in flows:
        yield until * SECOND - at, max(0, rate * FINE - elsewhere)
        at, elsewhere = until * SECOND, elsewhere - flow


def unpromised(stream: Stream, rate: int) -> int:
    """What may yet be promised: all, where what is set aside leaves room for the cups of all.

    >>> unpromised(Stream(0, 0, ((1, 4_000), (2, 5_000))), 10)
    1000
    >>> [unpromised(Stream(0, 0, (), ((330, count),)), 10) for count in (5, 20)]
    [10000, 2500]
    """
    room = (BOTH * rate - 2 * _sum(stream.aside)) * FINE // EITHER
    return max(0, min(rate * FINE, room) - _sum(stream.promised))


def promise(stream: Stream, flow: int, until: int) -> Stream:
    """
    >>> promise(promise(Stream(0, 0), 5, 9), 7, 8).promised
    ((8, 7), (9, 5))
    """
    return replace(stream, promised=_more(stream.promised, until, flow))


def unpromise(stream: Stream, flow: int, until: int) -> Stream:
    """
    >>> unpromise(Stream(0, 0, ((8, 7), (9, 5))), 5, 9).promised
    ((8, 7),)
    """
    return replace(stream, promised=_less(stream.promised, until, flow))


def set_aside(stream: Stream, count: int) -> tuple[Stream, int]:
    """So many tokens fewer in the bucket; and the second until which they may be used.

    >>> set_aside(Stream(9 * TOKEN, 100 * SECOND), 4)
    (Stream(parts=5000000, at=100000000, promised=(), aside=((330, 4),)), 330)
    """
    until = (stream.at // SECOND + ASIDE) // _ROUND * _ROUND
    return replace(
        stream, parts=stream.parts - count * TOKEN, aside=_more(stream.aside, until, count)
    ), until


def used_up(stream: Stream, count: int, until: int) -> Stream:
    """Who set them aside has them no more.

    >>> used_up(Stream(0, 0, (), ((330, 4), (360, 2))), 4, 330).aside
    ((360, 2),)
    """
    return replace(stream, aside=_less(stream.aside, until, count))


def untouched(stream: Stream, rate: int) -> int:
    """How many tokens may yet be set aside.

    >>> untouched(Stream(0, 0, (), ((330, 1),)), 10), untouched(Stream(0, 0, ((1, 9_000),)), 10)
    (19, 7)
    """
    room = BOTH * rate - EITHER * -(-_sum(stream.promised) // FINE)
    return max(0, min(EITHER * rate, room) // 2 - _sum(stream.aside))


def _sum(parts: _Until) -> int:
    return sum(count for _, count in parts)


def _more(there: _Until, until: int, count: int) -> _Until:
    by_second = dict(there)
    by_second[until] = by_second.get(until, 0) + count
    return tuple(sorted(by_second.items()))


def _less(there: _Until, until: int, count: int) -> _Until:
    found = [(second, n - count * (second == until)) for second, n in there]
    return tuple(one for one in found if one[1] > 0)


def whole(stream: Stream) -> int:
    """Tokens there are.

    >>> whole(Stream(2 * TOKEN + 1, 0)), whole(Stream(-5, 0))
    (2, 0)
    """
    return max(0, stream.parts // TOKEN)


def poured(stream: Stream, parts: int) -> Stream:
    """So much more, or less."""
    return replace(stream, parts=stream.parts + parts)


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
