"""Outputs and logs of several runs in one blob, and in it what their history rows will say.

The blob is written before the swap that ends the runs, under a name that each run's own claim
gives. So whoever has to write the history row of a run whose holder died finds all of it here.
"""

from collections.abc import Sequence

import msgspec

from punctual.domain.errors import LaterVersion
from punctual.domain.run import Run
from punctual.engine.ports.blobs import Blobs
from punctual.engine.ports.rows import Detail, Key, RunKey

MOST = 20  # packs of one claim that are looked through
SPOILT = Detail(error="What the run left behind cannot be read.")
LAYOUT = 0
_NUMBER = 8  # digits that end a pack: the first is its layout, the others the length of its index


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
    return b"%b%b%d%0*d" % (data, listed, LAYOUT, _NUMBER - 1, len(listed))


def find(blobs: Blobs, key: Key, run: Run) -> Detail | None:
    """What the holder of a run's last token had packed, if it came so far.

    A pack that is no good keeps nobody from finding what stands in another.
    """
    if not run.nonce:
        return None
    spoilt = None
    for number in range(MOST):
        data = blobs.get(pack_name(key.tenant, run.nonce, number))
        if data is None:
            break
        packed = _index(data)
        if packed is None:
            spoilt = SPOILT
            continue
        detail = found(packed, RunKey(*key, run.run_id), run)
        if detail is not None:
            return detail
    return spoilt


def found(packed: Sequence[Packed], key: RunKey, run: Run) -> Detail | None:
    """Claims may bear the same name: what counts is whose it is, and under which token."""
    wanted = (key.job_id, key.run_id, run.token)
    for one in packed:
        if (one.job_id, one.run_id, one.token) == wanted:
            return one.detail
    return None


def _index(data: bytes) -> Sequence[Packed] | None:
    """None where nobody can read it; what a later version packed waits until that is back."""
    digits = data[-_NUMBER:]
    if len(digits) < _NUMBER or not digits.isdigit():
        return None
    layout, length = int(digits[:1]), int(digits[1:])
    if layout > LAYOUT:
        raise LaterVersion(f"A pack was written by a later version of Punctual (layout {layout}).")
    try:
        return _decode(data[-_NUMBER - length : -_NUMBER])
    except msgspec.MsgspecError:
        return None
