"""Small outputs and logs of several runs in one blob, and in it what their history rows will say.

The blob is written before the swap that ends the runs, under a name that each run's own claim
gives. So whoever has to write the history row of a run whose holder died finds all of it here.
"""

from collections.abc import Iterator, Sequence

import msgspec

from punctual.domain.run import Run
from punctual.engine.ports import Blobs, Detail, Key

MOST = 20  # packs of one claim that are looked through
_LENGTH = 8


class Packed(msgspec.Struct, frozen=True, array_like=True):
    job_id: str
    run_id: str
    token: int
    detail: Detail


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[Packed, ...]).decode


def pack_name(tenant: str, nonce: str, number: int) -> str:
    """Of one tenant's runs that were claimed together, the pack of that number.

    >>> pack_name("acme", "0123456789ab.4", 0)
    'outputs/acme/packed/0123456789ab/0'
    """
    return f"outputs/{tenant}/packed/{nonce.partition('.')[0]}/{number}"


def sealed(data: bytes, index: Sequence[Packed]) -> bytes:
    listed = _encode(index)
    return b"%b%b%0*d" % (data, listed, _LENGTH, len(listed))


def find(blobs: Blobs, key: Key, run: Run) -> Detail | None:
    """What the holder of a run's last token had packed, if it came so far."""
    if not run.nonce:
        return None
    for number in range(MOST):
        data = blobs.get(pack_name(key.tenant, run.nonce, number))
        if data is None:
            return None
        for one in _index(data):
            if (one.job_id, one.run_id, one.token) == (key.job_id, run.run_id, run.token):
                return one.detail
    return None


def _index(data: bytes) -> Iterator[Packed]:
    length = int(data[-_LENGTH:])
    yield from _decode(data[-_LENGTH - length : -_LENGTH])
