"""Idempotency keys. The same key and body mean the same job or run for a day."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from punctual.domain.durations import RECEIPT_RETENTION
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

    def resolve_ids(
        self, tenant: str, requests: Sequence[tuple[str | None, str, str]], now: datetime
    ) -> list[str | Invalid]:
        """Return the id for each (key, fingerprint, fresh id), or the error of a reused key."""
        new_receipts = [
            (key, Receipt(fingerprint, new_id, now, now + RECEIPT_RETENTION))
            for key, fingerprint, new_id in requests
            if key is not None
        ]
        receipts = (
            iter(self._receipts.claim(tenant, new_receipts, now)) if new_receipts else iter(())
        )
        answers: list[str | Invalid] = []
        for key, fingerprint, new_id in requests:
            if key is None:
                answers.append(new_id)
                continue
            receipt = next(receipts)
            is_same = receipt.fingerprint == fingerprint
            answers.append(receipt.created_id if is_same else _reused_key_error())
        return answers

    def find_id(self, tenant: str, key: str, fingerprint: str, now: datetime) -> str | None:
        """Return the id that an earlier request with this key and body got, or None."""
        receipt = self._receipts.find(tenant, [key], now).get(key)
        return receipt.created_id if receipt and receipt.fingerprint == fingerprint else None

    def resolve_id(
        self, tenant: str, key: str | None, fingerprint: str, new_id: str, now: datetime
    ) -> str:
        (answer,) = self.resolve_ids(tenant, [(key, fingerprint, new_id)], now)
        if isinstance(answer, Invalid):
            raise answer
        return answer


def _reused_key_error() -> Invalid:
    return Invalid.of(
        FieldError(
            "Idempotency-Key",
            "was used for another request within the last day: send a new key, or the same body",
        )
    )
