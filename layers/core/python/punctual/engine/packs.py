"""Outputs and logs of several runs in one blob, and in it what their history rows will say.

The blob is written before the swap that ends the runs, under a name that each run's own claim
gives. So whoever has to write the history row of a run whose holder died finds all of it here.
"""

from collections.abc import Sequence

import msgspec

from punctual.domain.run import Run
from punctual.engine.ports import Blobs, Detail, Key, RunKey

MOST = 20  # packs of one claim that are looked through
_LENGTH = 8


class Packed(msgspec.Struct, frozen=True, array_like=True):
    job_id: str
    run_id: str
    token: int
    detail: Detail


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[Packed, ...]).decode


def claim_of(nonce: str) -> str:
    """What the nonces have in common of runs that were claimed together.

    >>> claim_of("0123456789ab.4")
    '0123456789ab'
    """
    return nonce.partition(".")[0]


def pack_name(tenant: str, nonce: str, number: int) -> str:
    """Of one tenant's runs that were claimed together, the pack of that number.

    >>> pack_name("acme", "0123456789ab.4", 0)
    'outputs/acme/packed/0123456789ab/0'
    """
    return f"outputs/{tenant}/packed/{claim_of(nonce)}/{number}"


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
        detail = found(_index(data), RunKey(*key, run.run_id), run)
        if detail is not None:
            return detail
    return None


def found(packed: Sequence[Packed], key: RunKey, run: Run) -> Detail | None:
    """Claims may bear the same name: what counts is whose it is, and under which token."""
    wanted = (key.job_id, key.run_id, run.token)
    for one in packed:
        if (one.job_id, one.run_id, one.token) == wanted:
            return one.detail
    return None


def _index(data: bytes) -> Sequence[Packed]:
    length = int(data[-_LENGTH:])
    return _decode(data[-_LENGTH - length : -_LENGTH])
