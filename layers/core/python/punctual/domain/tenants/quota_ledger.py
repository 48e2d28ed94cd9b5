"""The unused part of a tenant's limits, as pure values: a bucket, a window, and places.

All counts are whole numbers, so rounding neither loses nor adds uses. `now` is in microseconds.
"""

from base64 import urlsafe_b64encode
from collections.abc import Collection
from hashlib import blake2b
from math import ceil
from typing import NamedTuple, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

MICROSECONDS_PER_SECOND = 1_000_000
PARTS_PER_TOKEN = 1_000_000  # a rate of n a second refills n of these parts in a microsecond
MAX_COUNTED_SECONDS = 120  # no entry counts longer; a wrong clock wrote a later end
MAX_CLOCK_ERROR_MICROSECONDS = 10 * MICROSECONDS_PER_SECOND

AMPLE_LEASE_SECONDS = 10  # lease of a window with over half of its limit free
SCARCE_LEASE_SECONDS = 2  # lease of any other window

MIN_CAPACITY_SECONDS = 3  # seconds of the rate that the call bucket holds at least
LONG_LEASES_WORTH_SECONDS = 3  # seconds of the rate in all long call leases
LEASED_DEMAND_SECONDS = 2  # seconds of its demand that an instance leases
MIN_IDLE_SPARE = 50  # calls that an instance leases without demand while the bucket is nearly full
IDLE_SPARES_PER_SECOND = 20  # a larger limit leases its rate divided by this instead
LONG_LEASE_SECONDS = 60
LONG_LEASE_STEP_SECONDS = 10  # long leases end together, so the row stays under 1 KB
MARK_CHARACTERS = 5  # of the mark of a claim in a row of places
SECONDS_PER_MINUTE = 60
SHORT_LEASE_MICROSECONDS = 3 * MICROSECONDS_PER_SECOND // 2

S = TypeVar("S")


class LeaseRequest(NamedTuple):
    """An instance's request to a row: `needed` uses at once, and spare uses by its demand.

    `unused` uses of its `previous` lease return to a window, but tokens of calls do not. `debt`
    uses were admitted without the row.
    """

    needed: int
    per_second: float
    all_or_none: bool = False
    previous: "QuotaLease | None" = None
    unused: int = 0
    debt: int = 0


class QuotaLease(NamedTuple):
    """A grant of `number` uses at once, and of `spare` uses until `ends_at`, in microseconds.

    The row counts `counted` of them until the second `counted_until`. After
    `retry_after_seconds` the row may have more.
    """

    number: int
    spare: int = 0
    ends_at: int = 0
    counted: int = 0
    counted_until: int = 0
    retry_after_seconds: float = 0.0


class QuotaRule(Protocol[S]):
    """A limit, and the way in which instances lease from its row."""

    def lease(self, row: S, request: LeaseRequest, now: int, /) -> tuple[S, QuotaLease]:
        """Return the new row and the lease. The row is the same if nothing was leased."""


class TokenBucket(Struct, frozen=True, array_like=True, gc=False):
    """Tokens that refill at a rate, up to a capacity."""

    parts: int
    at: int  # microseconds


def full_bucket(capacity: int, now: int) -> TokenBucket:
    return TokenBucket(capacity * PARTS_PER_TOKEN, now)


def refill(bucket: TokenBucket, rate: int, capacity: int, now: int) -> TokenBucket:
    """Return the bucket at `now`.

    If a clock went back a little, nothing refills until it catches up. A bucket far in the future
    comes from a wrong clock, and refills from `now`.

    >>> refill(TokenBucket(0, 0), 10, 5, 250_000)
    TokenBucket(parts=2500000, at=250000)
    >>> refill(TokenBucket(7, 3_600_000_000), 10, 5, 0)
    TokenBucket(parts=7, at=0)
    """
    at = now if bucket.at > now + MAX_CLOCK_ERROR_MICROSECONDS else bucket.at
    passed = max(0, now - at)
    return TokenBucket(min(capacity * PARTS_PER_TOKEN, bucket.parts + passed * rate), max(now, at))


def tokens(bucket: TokenBucket) -> int:
    return bucket.parts // PARTS_PER_TOKEN


def remove_tokens(bucket: TokenBucket, count: int) -> TokenBucket:
    return TokenBucket(bucket.parts - count * PARTS_PER_TOKEN, bucket.at)


def seconds_until_token(bucket: TokenBucket, rate: int) -> float:
    """Return the seconds until the bucket holds a token.

    >>> [seconds_until_token(TokenBucket(parts, 0), 10) for parts in (2_500_000, 500_000)]
    [0.0, 0.05]
    """
    missing = max(0, PARTS_PER_TOKEN - bucket.parts)
    return -(-missing // rate) / MICROSECONDS_PER_SECOND


class UseWindow(Struct, frozen=True, omit_defaults=True, gc=False, rename={"uses": "taken"}):
    """The uses, by the second until which they count."""

    uses: tuple[tuple[int, int], ...] = ()


def drop_expired_uses(window: UseWindow, second: int) -> UseWindow:
    """Return the window without ended entries and without entries of a wrong clock.

    >>> drop_expired_uses(UseWindow(((60, 1), (61, 2), (999, 3))), 60)
    UseWindow(uses=((61, 2),))
    """
    last_second = second + MAX_COUNTED_SECONDS
    return UseWindow(tuple(entry for entry in window.uses if second < entry[0] <= last_second))


def count_uses(window: UseWindow) -> int:
    return sum(count for _, count in window.uses)


def add_uses(window: UseWindow, count: int, until: int) -> UseWindow:
    """Return the window with `count` more uses until `until`. A negative count returns uses.

    >>> add_uses(UseWindow(((60, 1), (61, 2))), -2, 61)
    UseWindow(uses=((60, 1),))
    """
    by_second = dict(window.uses)
    by_second[until] = max(0, by_second.get(until, 0) + count)
    return UseWindow(tuple(sorted(entry for entry in by_second.items() if entry[1])))


def seconds_until_free(window: UseWindow, limit: int, second: int, requested: int = 1) -> int:
    """Return the seconds until `requested` uses are free, or 0 if they are free now.

    >>> window = UseWindow(((60, 1), (62, 2)))
    >>> seconds_until_free(window, 3, 50), seconds_until_free(window, 3, 50, 2)
    (10, 12)
    """
    excess = count_uses(window) + requested - limit
    for until, count in window.uses:
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
    limit is free. Its spare uses are at most a quarter of the free ones.
    """

    limit: int
    span: int

    def lease(
        self, state: UseWindow, request: LeaseRequest, now: int, /
    ) -> tuple[UseWindow, QuotaLease]:
        """Return the new row and the lease.

        >>> rule = WindowRule(10, 60)
        >>> rule.lease(UseWindow(), LeaseRequest(2, 9.0), 0)
        (UseWindow(uses=((70, 4),)), QuotaLease(number=2, spare=2, ends_at=10000000, counted=4, \
counted_until=70, retry_after_seconds=0))
        >>> rule.lease(UseWindow(((70, 9),)), LeaseRequest(2, 9.0, all_or_none=True), 0)
        (UseWindow(uses=((70, 9),)), QuotaLease(number=0, spare=0, ends_at=0, counted=0, \
counted_until=0, retry_after_seconds=70))
        """
        second, previous = now // MICROSECONDS_PER_SECOND, request.previous
        window = drop_expired_uses(state, second)
        if previous and request.unused and previous.counted_until > second:
            window = add_uses(window, -request.unused, previous.counted_until)
        number = min(request.needed, max(0, self.limit - count_uses(window)))
        if not number or (request.all_or_none and number < request.needed):
            requested = request.needed if request.all_or_none else 1
            return state, QuotaLease(
                0, retry_after_seconds=seconds_until_free(window, self.limit, second, requested)
            )
        remaining = self.limit - count_uses(window) - number
        spare = min(ceil(LEASED_DEMAND_SECONDS * request.per_second), remaining // 4)
        is_ample = remaining > self.limit // 2
        seconds = AMPLE_LEASE_SECONDS if is_ample else SCARCE_LEASE_SECONDS
        end_second = second + (seconds if spare else 1)
        counted_until = end_second + self.span
        window = add_uses(window, number + spare, counted_until)
        retry_after_seconds = seconds_until_free(window, self.limit, second)
        return window, QuotaLease(
            number,
            spare,
            end_second * MICROSECONDS_PER_SECOND,
            number + spare,
            counted_until,
            retry_after_seconds,
        )


class CallRow(Struct, frozen=True, omit_defaults=True, gc=False, rename={"long_leases": "leased"}):
    """The call tokens of a tenant, and the long leases by the second of their end."""

    bucket: TokenBucket | None = None
    long_leases: UseWindow = UseWindow()


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
        return max(self.burst, MIN_CAPACITY_SECONDS * self.rate)

    def lease(
        self, state: CallRow, request: LeaseRequest, now: int, /
    ) -> tuple[CallRow, QuotaLease]:
        """Return the new row and the lease.

        >>> rule = CallRule(10, 10)
        >>> row, lease = rule.lease(CallRow(), LeaseRequest(1, 2.0), 0)
        >>> row
        CallRow(bucket=TokenBucket(parts=22000000, at=0), long_leases=UseWindow(uses=((70, 7),)))
        >>> lease.number, lease.spare, lease.counted_until, lease.retry_after_seconds
        (1, 7, 70, 0.0)
        >>> rule.lease(CallRow(TokenBucket(0, 0)), LeaseRequest(1, 2.0), 0)[1].retry_after_seconds
        0.1
        """
        bucket, window = self._settle_previous(state, request, now)
        if bucket.parts < PARTS_PER_TOKEN and not request.debt:
            refused = QuotaLease(0, retry_after_seconds=seconds_until_token(bucket, self.rate))
            if state.bucket and state.bucket.at > bucket.at:
                # A wrong clock wrote the row. The bucket would not refill until that time.
                return CallRow(bucket, state.long_leases), refused
            return state, refused
        number = min(request.needed, max(0, tokens(bucket)))
        remaining = max(0, tokens(bucket) - number)
        wanted_spare = max(1, round(LEASED_DEMAND_SECONDS * request.per_second))
        if 4 * remaining > 3 * self.capacity:
            idle_spare = max(MIN_IDLE_SPARE, self.rate // IDLE_SPARES_PER_SECOND)
            wanted_spare = max(wanted_spare, min(idle_spare, remaining // 4))
        short_spare = min(wanted_spare, ceil(remaining / 2))
        long_spare = min(
            short_spare,
            max(0, ceil((LONG_LEASES_WORTH_SECONDS * self.rate - count_uses(window)) / 2)),
        )
        if long_spare and long_spare >= ceil(request.per_second):
            step_number = (
                now // MICROSECONDS_PER_SECOND + LONG_LEASE_SECONDS
            ) // LONG_LEASE_STEP_SECONDS + 1
            until = step_number * LONG_LEASE_STEP_SECONDS
            lease = QuotaLease(
                number, long_spare, until * MICROSECONDS_PER_SECOND, long_spare, until
            )
            window = add_uses(window, long_spare, until)
        else:
            lease = QuotaLease(number, short_spare, now + SHORT_LEASE_MICROSECONDS)
        bucket = remove_tokens(bucket, number + lease.spare)
        return CallRow(bucket, window), lease._replace(
            retry_after_seconds=seconds_until_token(bucket, self.rate)
        )

    def _settle_previous(
        self, row: CallRow, request: LeaseRequest, now: int
    ) -> tuple[TokenBucket, UseWindow]:
        """Return the row at `now`, without the previous lease and the debt of the instance."""
        bucket = row.bucket or full_bucket(self.capacity, now)
        bucket = refill(bucket, self.rate, self.capacity, now)
        second, previous = now // MICROSECONDS_PER_SECOND, request.previous
        window = drop_expired_uses(row.long_leases, second)
        if previous and previous.counted_until > second:
            window = add_uses(window, -previous.counted, previous.counted_until)
        # At most one capacity below zero: the bucket cannot have refilled more in the meantime.
        debt = min(request.debt, max(0, tokens(bucket) + self.capacity))
        return remove_tokens(bucket, debt), window


class Places(
    Struct,
    frozen=True,
    omit_defaults=True,
    gc=False,
    rename={"places_by_holder": "holders", "claims_by_minute": "claims"},
):
    """The number of places that each instance holds, and until which second.

    A claim that was handed over holds one place by itself. `claims_by_minute` has the marks of such
    claims without a separator, by the minute of the Unix time at which the place ends at the
    latest. A thousand claims take 5 KB.
    """

    places_by_holder: dict[str, tuple[int, int]] = {}
    claims_by_minute: dict[str, str] = {}


def claim_mark(nonce: str) -> str:
    """Return the mark of the claim with this nonce: five characters of 64 each.

    >>> claim_mark("0199aaaa.0"), len(claim_mark(""))
    ('8f9A8', 5)
    """
    digest = blake2b(nonce.encode(), digest_size=MARK_CHARACTERS).digest()
    return urlsafe_b64encode(digest).decode()[:MARK_CHARACTERS]


def marks_in(text: str) -> list[str]:
    """Return the marks of one minute.

    >>> marks_in("aaaaabbbbb")
    ['aaaaa', 'bbbbb']
    """
    return [text[at : at + MARK_CHARACTERS] for at in range(0, len(text), MARK_CHARACTERS)]


def hold_claim(places: Places, mark: str, until: int) -> Places:
    """Return the places with one for this claim, until the minute of the second `until` has ended.

    >>> hold_claim(hold_claim(Places(), "aaaaa", 100), "aaaaa", 100).claims_by_minute
    {'2': 'aaaaa'}
    """
    minute = str(until // SECONDS_PER_MINUTE + 1)
    without = free_claims(places, [mark]).claims_by_minute
    return replace(places, claims_by_minute={**without, minute: without.get(minute, "") + mark})


def free_claims(places: Places, marks: Collection[str]) -> Places:
    """Return the places without those of these claims.

    >>> free_claims(Places(claims_by_minute={"2": "aaaaabbbbb", "3": "ccccc"}), ["aaaaa", "ccccc"])
    Places(places_by_holder={}, claims_by_minute={'2': 'bbbbb'})
    """
    left = {
        minute: "".join(mark for mark in marks_in(text) if mark not in marks)
        for minute, text in places.claims_by_minute.items()
    }
    return replace(places, claims_by_minute={minute: text for minute, text in left.items() if text})


def drop_expired_places(places: Places, second: int) -> Places:
    """Return the places without ended entries and without entries of a wrong clock.

    >>> drop_expired_places(Places({"a": (1, 60), "b": (2, 70)}, {"1": "aaaaa", "2": "bbbbb"}), 60)
    Places(places_by_holder={'b': (2, 70)}, claims_by_minute={'2': 'bbbbb'})
    """
    last_second = second + MAX_COUNTED_SECONDS
    return Places(
        {
            name: entry
            for name, entry in places.places_by_holder.items()
            if second < entry[1] <= last_second
        },
        {
            minute: text
            for minute, text in places.claims_by_minute.items()
            if second < int(minute) * SECONDS_PER_MINUTE
        },
    )


def count_places(places: Places, except_name: str = "") -> int:
    """Return the number of places that claims and all instances except `except_name` hold.

    >>> count_places(Places({"a": (1, 60), "b": (2, 70)}, {"2": "aaaaabbbbb"}), except_name="a")
    4
    """
    held = sum(len(text) for text in places.claims_by_minute.values()) // MARK_CHARACTERS
    return held + sum(
        count for name, (count, _) in places.places_by_holder.items() if name != except_name
    )


def count_holders(places: Places, prefix: str, except_name: str = "") -> int:
    """Return how many instances except `except_name` hold places of the queue with this prefix.

    >>> count_holders(Places({"0a": (2, 60), "0b": (1, 60), "1c": (5, 60)}), "0", except_name="0a")
    1
    """
    return sum(name.startswith(prefix) and name != except_name for name in places.places_by_holder)


def set_places(places: Places, name: str, count: int, until: int) -> Places:
    """Return the places with `count` held by `name` until `until`. A count of 0 removes the entry.

    >>> set_places(set_places(Places(), "a", 2, 60), "a", 0, 70)
    Places(places_by_holder={}, claims_by_minute={})
    """
    holders = {**places.places_by_holder, name: (count, until)}
    return replace(
        places, places_by_holder={holder: entry for holder, entry in holders.items() if entry[0]}
    )
