"""What is left of a limit, as pure values: a bucket of tokens, a minute's window, and holders.

All of it counts in whole numbers, so nothing is lost or won by rounding. Times are whole
microseconds, or whole seconds, of one clock.
"""

from msgspec import Struct
from msgspec.structs import replace

# Seconds: nothing counts for longer, and no clock is as wrong. What lies behind that is the word of
# one that was, and must not hold everybody until its time has come.
FAR = 120
TOKEN = 1_000_000  # a rate of n a second refills n of these parts in a microsecond


class Bucket(Struct, frozen=True, array_like=True, gc=False):
    """Tokens that refill at a rate, up to what fits in."""

    parts: int
    at: int  # microseconds


def full(holds: int, now: int) -> Bucket:
    return Bucket(holds * TOKEN, now)


def refilled(bucket: Bucket, rate: int, holds: int, now: int) -> Bucket:
    """A clock that went back refills nothing until it has caught up; who was far ahead is left.

    >>> refilled(Bucket(0, 0), 10, 5, 250_000)
    Bucket(parts=2500000, at=250000)
    >>> refilled(Bucket(7, 3_600_000_000), 10, 5, 0)
    Bucket(parts=7, at=0)
    """
    if bucket.at > now + FAR * 1_000_000:
        return Bucket(bucket.parts, now)
    passed = max(0, now - bucket.at)
    parts = min(holds * TOKEN, bucket.parts + passed * rate)
    return Bucket(parts, max(now, bucket.at))


def tokens(bucket: Bucket) -> int:
    return bucket.parts // TOKEN


def without(bucket: Bucket, count: int) -> Bucket:
    return Bucket(bucket.parts - count * TOKEN, bucket.at)


def wait(bucket: Bucket, rate: int) -> float:
    """Seconds until a token is there, from the bucket's own moment.

    >>> wait(Bucket(2_500_000, 0), 10), wait(Bucket(500_000, 0), 10)
    (0.0, 0.05)
    """
    missing = max(0, TOKEN - bucket.parts)
    return -(-missing // rate) / 1_000_000


class Ledger(Struct, frozen=True, omit_defaults=True, gc=False):
    """What was taken, by the second until which it counts, and who holds how many until when."""

    taken: tuple[tuple[int, int], ...] = ()
    holders: dict[str, tuple[int, int]] = {}


EMPTY = Ledger()


def at(ledger: Ledger, now: int) -> Ledger:
    """Without what counts no more, and what cannot count yet.

    >>> at(Ledger(((60, 1), (61, 2)), {"a": (1, 60), "b": (2, 70)}), 60)
    Ledger(taken=((61, 2),), holders={'b': (2, 70)})
    """
    last = now + FAR
    taken = tuple(one for one in ledger.taken if now < one[0] <= last)
    held_by = {name: one for name, one in ledger.holders.items() if now < one[1] <= last}
    return Ledger(taken, held_by)


def used(ledger: Ledger) -> int:
    return sum(count for _, count in ledger.taken)


def held(ledger: Ledger, but: str = "") -> int:
    """How many all hold together, `but` one."""
    return sum(count for name, (count, _) in ledger.holders.items() if name != but)


def busy(ledger: Ledger, lane: str, but: str = "") -> int:
    """How many hold anything whose names begin with the lane's mark, `but` one.

    >>> busy(Ledger(holders={"0a": (2, 60), "0b": (1, 60), "1c": (5, 60)}), "0", but="0a")
    1
    """
    return sum(name.startswith(lane) and name != but for name in ledger.holders)


def take(ledger: Ledger, count: int, until: int) -> Ledger:
    """`count` more that count until then; a negative number gives back.

    >>> take(Ledger(((60, 1), (61, 2))), -2, 61)
    Ledger(taken=((60, 1),), holders={})
    """
    by_second = dict(ledger.taken)
    by_second[until] = max(0, by_second.get(until, 0) + count)
    return replace(ledger, taken=tuple(sorted((s, n) for s, n in by_second.items() if n)))


def hold(ledger: Ledger, name: str, count: int, until: int) -> Ledger:
    """
    >>> hold(hold(EMPTY, "a", 2, 60), "a", 0, 70)
    Ledger(taken=(), holders={})
    """
    holders = {**ledger.holders, name: (count, until)}
    return replace(ledger, holders={one: of for one, of in holders.items() if of[0]})


def room_in(ledger: Ledger, most: int, now: int, asked: int = 1) -> int:
    """Seconds until `asked` may be taken where `most` are the limit; 0 where they may now.

    >>> room_in(Ledger(((60, 1), (62, 2))), 3, 50), room_in(Ledger(((60, 1), (62, 2))), 3, 50, 2)
    (10, 12)
    """
    excess = used(ledger) + asked - most
    for until, count in ledger.taken:
        if excess <= 0:
            break
        excess -= count
        if excess <= 0:
            return max(0, until - now)
    return 0
