"""Idempotency keys. The same key and body mean the same job or run for a day."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from punctual.domain.durations import RECEIPT
from punctual.domain.errors import FieldError, Invalid
from punctual.engine.ports.receipts import Receipts
from punctual.engine.ports.rows import Receipt


class Submission(NamedTuple):
    """A validated job document, with the idempotency key and fingerprint of its request."""

    document: dict[str, Any]
    idempotency_key: str | None = None
    fingerprint: str = ""


class IdempotencyKeys:
    def __init__(self, receipts: Receipts) -> None:
        self._receipts = receipts

    def ids(
        self, tenant: str, asked: Sequence[tuple[str | None, str, str]], now: datetime
    ) -> list[str | Invalid]:
        """Return the id for each (key, fingerprint, fresh id), or the error of a reused key."""
        wanted = [
            (key, Receipt(fingerprint, fresh, now, now + RECEIPT))
            for key, fingerprint, fresh in asked
            if key is not None
        ]
        standing = iter(self._receipts.claim(tenant, wanted, now)) if wanted else iter(())
        answers: list[str | Invalid] = []
        for key, fingerprint, fresh in asked:
            if key is None:
                answers.append(fresh)
                continue
            receipt = next(standing)
            same = receipt.fingerprint == fingerprint
            answers.append(receipt.made_id if same else _other_body())
        return answers

    def made(self, tenant: str, key: str, fingerprint: str, now: datetime) -> str | None:
        """Return the id that an earlier request with this key and body got, or None."""
        receipt = self._receipts.find(tenant, [key], now).get(key)
        return receipt.made_id if receipt and receipt.fingerprint == fingerprint else None

    def one(self, tenant: str, key: str | None, fingerprint: str, fresh: str, now: datetime) -> str:
        (answer,) = self.ids(tenant, [(key, fingerprint, fresh)], now)
        if isinstance(answer, Invalid):
            raise answer
        return answer


def _other_body() -> Invalid:
    return Invalid.of(
        FieldError(
            "Idempotency-Key",
            "was used for another request within the last day: send a new key, or the same body",
        )
    )
