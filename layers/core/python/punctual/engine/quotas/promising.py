"""What one instance is given of its tenant's calls, as a pure function of the row and its wish."""

from typing import NamedTuple

from punctual.domain.tenants.quota_ledger import TOKEN
from punctual.domain.tenants.streams import (
    FINE,
    SECOND,
    Stream,
    brimful,
    filled_in,
    flowed,
    poured,
    promise,
    set_aside,
    unpromise,
    unpromised,
    untouched,
    used_up,
    whole,
)

WORTH = 25  # calls that a promise should be good for: a write is made for that many
LONGEST = 8  # seconds of a promise; a crash takes it along
LEAST = LONGEST  # tokens that a promise must bring: of less than one a second none is worth a write
SHUT = 0.5  # seconds at least until an instance that got nothing asks again
NOTHING = Stream(0, -1)  # nobody has called yet


class Wish(NamedTuple):
    """`tokens` now, a `flow` for `turn` seconds at most, in place of the one promised before, and
    up to `store` tokens to have at hand, in place of those set `aside` before, which are used up.

    `spare` parts come back. What is `owed` was used while the row did not answer.
    """

    tokens: int
    flow: int
    turn: int
    spare: int = 0
    owed: int = 0
    promised: tuple[int, int] = (0, 0)
    store: int = 0
    aside: tuple[int, int] = (0, 0)


class Grant(NamedTuple):
    """`gathers` seconds until it is worth asking for more; nothing was `changed` for nothing."""

    tokens: int
    gathers: float
    changed: bool = False
    flow: int = 0
    until: int = 0
    seconds: float = 0.0
    aside: tuple[int, int] = (0, 0)


def granted(stream: Stream, rate: int, holds: int, now: int, wish: Wish) -> tuple[Stream, Grant]:
    there = brimful(holds, now) if stream.at < 0 else flowed(stream, rate, holds, now)
    gather = max(1, rate // WORTH)
    new = _settled(there, holds, wish)
    flow, until = _promised(new, rate, wish)
    # Who owes takes one: the others have not paid yet, and what is there is theirs.
    count = min(1 if wish.owed else wish.tokens, whole(new))
    if not count and flow <= wish.promised[0] and not wish.owed:
        gathers = max(SHUT, filled_in(there, rate, gather))
        # Written only where it fills from another moment on.
        return there if there.at < stream.at else stream, Grant(0, gathers)
    new = poured(new, -count * TOKEN)
    if flow:
        new = promise(new, flow, until)
    # Half of what is free: who comes later finds something, and it comes to be shared evenly.
    store = 0 if wish.owed else min(wish.store, untouched(new, rate) // 2, whole(new) // 2)
    new, store_until = set_aside(new, store) if store else (new, 0)
    seconds = (until * SECOND - new.at) / SECOND if flow else 0.0
    gathers = filled_in(new, rate, gather)
    return new, Grant(count, gathers, True, flow, until, seconds, (store, store_until))


def _settled(there: Stream, holds: int, wish: Wish) -> Stream:
    """With what comes back, without the old promise, nor what is owed: down to one bucket below
    nothing, for more than one bucket has not been refilled in the meantime."""
    back = min(wish.spare, max(0, holds * TOKEN - there.parts))
    most = max(0, there.parts + holds * TOKEN)
    new = poured(there, back - min(wish.owed * TOKEN, most))
    return used_up(unpromise(new, *wish.promised), *wish.aside)


def _promised(there: Stream, rate: int, wish: Wish) -> tuple[int, int]:
    """Three quarters of what is free at most: so what many want comes to be shared evenly."""
    flow = min(wish.flow, unpromised(there, rate) * 3 // 4)
    turn = min(wish.turn, LONGEST, -(-WORTH * FINE // max(1, flow)))
    if flow * turn < LEAST * FINE:
        return 0, 0
    return flow, -(-there.at // SECOND) + turn
