"""The unused part of a tenant's limits, as pure values: a bucket, a window, and places.

All counts are whole numbers, so rounding neither loses nor adds uses. `now` is in microseconds.
"""

from math import ceil
from typing import NamedTuple, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

SECOND = 1_000_000  # microseconds
TOKEN = 1_000_000  # a rate of n a second refills n of these parts in a microsecond
MAX_COUNTED_SECONDS = 120  # no entry counts longer; a wrong clock wrote a later end
MAX_CLOCK_ERROR = 10 * SECOND

AMPLE_LEASE_SECONDS = 10  # lease of a window with over half of its limit free
SCARCE_LEASE_SECONDS = 2  # lease of any other window

CAPACITY_SECONDS = 3  # seconds of the rate that the call bucket holds at least
LONG_LEASES_WORTH_SECONDS = 3  # seconds of the rate in all long call leases together
LEASED_DEMAND_SECONDS = 2  # seconds of its demand that an instance leases
MIN_IDLE_SPARE = 50  # calls that an instance leases without demand while the bucket is nearly full
IDLE_SPARES_PER_SECOND = 20  # a larger limit leases its rate divided by this instead
LONG_LEASE_SECONDS = 60
LONG_LEASE_STEP_SECONDS = 10  # long leases end together, so the row stays under 1 KB
SHORT_LEASE = 3 * SECOND // 2

S = TypeVar("S")


class LeaseRequest(NamedTuple):
    """An instance's request to a row: `need` uses at once, and spare uses by its demand.

    `unused` uses of its `previous` lease return to a window, but tokens of calls do not. `owed`
    uses were admitted without the row.
    """

    need: int
    per_second: float
    whole: bool = False
    previous: "Lease | None" = None
    unused: int = 0
    owed: int = 0


class Lease(NamedTuple):
    """A grant of `number` uses at once, and of `spare` uses until `ends_at`, in microseconds.

    The row counts `counted` of them until the second `counted_until`. After `wait` seconds the row
    may have more.
    """

    number: int
    spare: int = 0
    ends_at: int = 0
    counted: int = 0
    counted_until: int = 0
    wait: float = 0.0


class Rule(Protocol[S]):
    """A limit, and the way in which instances lease from its row."""

    def lease(self, state: S, request: LeaseRequest, now: int, /) -> tuple[S, Lease]:
        """Return the new row and the lease. The row is the same if nothing was leased."""


class Bucket(Struct, frozen=True, array_like=True, gc=False):
    """Tokens that refill at a rate, up to a capacity."""

    parts: int
    at: int  # microseconds


def full(capacity: int, now: int) -> Bucket:
    return Bucket(capacity * TOKEN, now)


def refilled(bucket: Bucket, rate: int, capacity: int, now: int) -> Bucket:
    """Return the bucket at `now`.

    If a clock went back a little, nothing refills until it catches up. A bucket far in the future
    comes from a wrong clock, and refills from `now`.

    >>> refilled(Bucket(0, 0), 10, 5, 250_000)
    Bucket(parts=2500000, at=250000)
    >>> refilled(Bucket(7, 3_600_000_000), 10, 5, 0)
    Bucket(parts=7, at=0)
    """
    at = now if bucket.at > now + MAX_CLOCK_ERROR else bucket.at
    passed = max(0, now - at)
    return Bucket(min(capacity * TOKEN, bucket.parts + passed * rate), max(now, at))


def tokens(bucket: Bucket) -> int:
    return bucket.parts // TOKEN


def without(bucket: Bucket, count: int) -> Bucket:
    return Bucket(bucket.parts - count * TOKEN, bucket.at)


def wait(bucket: Bucket, rate: int) -> float:
    """Return the seconds until the bucket holds a token.

    >>> wait(Bucket(2_500_000, 0), 10), wait(Bucket(500_000, 0), 10)
    (0.0, 0.05)
    """
    missing = max(0, TOKEN - bucket.parts)
    return -(-missing // rate) / SECOND


class Window(Struct, frozen=True, omit_defaults=True, gc=False):
    """The uses, by the second until which they count."""

    taken: tuple[tuple[int, int], ...] = ()


def current(window: Window, second: int) -> Window:
    """Return the window without ended entries and without entries of a wrong clock.

    >>> current(Window(((60, 1), (61, 2), (999, 3))), 60)
    Window(taken=((61, 2),))
    """
    last = second + MAX_COUNTED_SECONDS
    return Window(tuple(entry for entry in window.taken if second < entry[0] <= last))


def used(window: Window) -> int:
    return sum(count for _, count in window.taken)


def take(window: Window, count: int, until: int) -> Window:
    """Return the window with `count` more uses until `until`. A negative count returns uses.

    >>> take(Window(((60, 1), (61, 2))), -2, 61)
    Window(taken=((60, 1),))
    """
    by_second = dict(window.taken)
    by_second[until] = max(0, by_second.get(until, 0) + count)
    return Window(tuple(sorted(entry for entry in by_second.items() if entry[1])))


def seconds_until_free(window: Window, limit: int, second: int, asked: int = 1) -> int:
    """Return the seconds until `asked` uses are free, or 0 if they are free now.

    >>> window = Window(((60, 1), (62, 2)))
    >>> seconds_until_free(window, 3, 50), seconds_until_free(window, 3, 50, 2)
    (10, 12)
    """
    excess = used(window) + asked - limit
    for until, count in window.taken:
        if excess <= 0:
            break
        excess -= count
        if excess <= 0:
            return max(0, until - second)
    return 0


class WindowRule(NamedTuple):
    """At most `limit` uses in any `span` seconds.

    A leased use counts for `span` seconds after the last moment at which it may be used. So no span
    exceeds the limit, also if an instance crashes. A lease lasts longer while over half of the
    limit is free. Its spare uses are at most a quarter of the rest.
    """

    limit: int
    span: int

    def lease(self, state: Window, request: LeaseRequest, now: int, /) -> tuple[Window, Lease]:
        """
        >>> WindowRule(10, 60).lease(Window(), LeaseRequest(2, 9.0), 0)
        (Window(taken=((70, 4),)), Lease(number=2, spare=2, ends_at=10000000, counted=4, \
counted_until=70, wait=0))
        >>> WindowRule(10, 60).lease(Window(((70, 9),)), LeaseRequest(2, 9.0, whole=True), 0)
        (Window(taken=((70, 9),)), Lease(number=0, spare=0, ends_at=0, counted=0, counted_until=0, \
wait=70))
        """
        second, window, previous = now // SECOND, current(state, now // SECOND), request.previous
        if previous and request.unused and previous.counted_until > second:
            window = take(window, -request.unused, previous.counted_until)
        number = min(request.need, max(0, self.limit - used(window)))
        if not number or (request.whole and number < request.need):
            asked = request.need if request.whole else 1
            return state, Lease(0, wait=seconds_until_free(window, self.limit, second, asked))
        left = self.limit - used(window) - number
        spare = min(ceil(LEASED_DEMAND_SECONDS * request.per_second), left // 4)
        is_ample = left > self.limit // 2
        seconds = AMPLE_LEASE_SECONDS if is_ample else SCARCE_LEASE_SECONDS
        end = second + (seconds if spare else 1)
        until = end + self.span
        window = take(window, number + spare, until)
        free_in = seconds_until_free(window, self.limit, second)
        return window, Lease(number, spare, end * SECOND, number + spare, until, free_in)


class CallRow(Struct, frozen=True, omit_defaults=True, gc=False):
    """The call tokens of a tenant, and the long leases by the second of their end."""

    bucket: Bucket | None = None
    leased: Window = Window()


class CallRule(NamedTuple):
    """At most `rate` calls a second, and `burst` calls at once.

    Leased tokens leave the bucket. A short lease lasts until the instance may ask again. A long
    lease saves writes. All long leases together hold at most three seconds of the rate. So 60 s
    have at most 64.5 seconds of the rate and the capacity of the bucket.
    """

    rate: int
    burst: int

    @property
    def capacity(self) -> int:
        return max(self.burst, CAPACITY_SECONDS * self.rate)

    def lease(self, state: CallRow, request: LeaseRequest, now: int, /) -> tuple[CallRow, Lease]:
        """
        >>> rule = CallRule(10, 10)
        >>> rule.lease(CallRow(), LeaseRequest(1, 2.0), 0)
        (CallRow(bucket=Bucket(parts=22000000, at=0), leased=Window(taken=((70, 7),))), \
Lease(number=1, spare=7, ends_at=70000000, counted=7, counted_until=70, wait=0.0))
        >>> rule.lease(CallRow(Bucket(0, 0)), LeaseRequest(1, 2.0), 0)[1].wait
        0.1
        """
        bucket, window = self._settled(state, request, now)
        if bucket.parts < TOKEN and not request.owed:
            refused = Lease(0, wait=wait(bucket, self.rate))
            if state.bucket and state.bucket.at > bucket.at:
                # A wrong clock wrote the row. The bucket would not refill until that time.
                return CallRow(bucket, state.leased), refused
            return state, refused
        number = min(request.need, max(0, tokens(bucket)))
        left = max(0, tokens(bucket) - number)
        wanted = max(1, round(LEASED_DEMAND_SECONDS * request.per_second))
        if 4 * left > 3 * self.capacity:
            idle = max(MIN_IDLE_SPARE, self.rate // IDLE_SPARES_PER_SECOND)
            wanted = max(wanted, min(idle, left // 4))
        short = min(wanted, ceil(left / 2))
        long = min(short, max(0, ceil((LONG_LEASES_WORTH_SECONDS * self.rate - used(window)) / 2)))
        if long and long >= ceil(request.per_second):
            steps = (now // SECOND + LONG_LEASE_SECONDS) // LONG_LEASE_STEP_SECONDS + 1
            until = steps * LONG_LEASE_STEP_SECONDS
            lease = Lease(number, long, until * SECOND, long, until)
            window = take(window, long, until)
        else:
            lease = Lease(number, short, now + SHORT_LEASE)
        bucket = without(bucket, number + lease.spare)
        return CallRow(bucket, window), lease._replace(wait=wait(bucket, self.rate))

    def _settled(self, state: CallRow, request: LeaseRequest, now: int) -> tuple[Bucket, Window]:
        """Return the row at `now`, without the previous lease and the debt of the instance."""
        bucket = state.bucket or full(self.capacity, now)
        bucket = refilled(bucket, self.rate, self.capacity, now)
        window, previous = current(state.leased, now // SECOND), request.previous
        if previous and previous.counted_until > now // SECOND:
            window = take(window, -previous.counted, previous.counted_until)
        # At most one capacity below zero: the bucket cannot have refilled more in the meantime.
        owed = min(request.owed, max(0, tokens(bucket) + self.capacity))
        return without(bucket, owed), window


class Places(Struct, frozen=True, omit_defaults=True, gc=False):
    """The number of places that each instance holds, and until which second."""

    holders: dict[str, tuple[int, int]] = {}


def current_places(places: Places, second: int) -> Places:
    """
    >>> current_places(Places({"a": (1, 60), "b": (2, 70)}), 60)
    Places(holders={'b': (2, 70)})
    """
    last = second + MAX_COUNTED_SECONDS
    return Places({n: held for n, held in places.holders.items() if second < held[1] <= last})


def held(places: Places, but: str = "") -> int:
    """Return the number of places that all instances except `but` hold."""
    return sum(count for name, (count, _) in places.holders.items() if name != but)


def busy(places: Places, mark: str, but: str = "") -> int:
    """Return how many instances except `but` hold places of the queue with this mark.

    >>> busy(Places({"0a": (2, 60), "0b": (1, 60), "1c": (5, 60)}), "0", but="0a")
    1
    """
    return sum(name.startswith(mark) and name != but for name in places.holders)


def hold(places: Places, name: str, count: int, until: int) -> Places:
    """Return the places with `count` held by `name` until `until`. A count of 0 removes the entry.

    >>> hold(hold(Places(), "a", 2, 60), "a", 0, 70)
    Places(holders={})
    """
    holders = {**places.holders, name: (count, until)}
    return replace(places, holders={n: held for n, held in holders.items() if held[0]})
