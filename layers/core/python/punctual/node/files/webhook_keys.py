"""The keys of the node's webhooks: a file beside the token key, created on first use.

It holds one key. After a rotation it holds two, the newest first, and both sign.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from punctual.domain.tenants.webhooks import (
    WEBHOOK_KEY_BYTES,
    format_keys,
    format_secret,
    parse_keys,
    rotate_keys,
    tenant_secret,
)
from punctual.node.files.data_folder import StoreError
from punctual.node.files.durable import read_or_create, write_durably

WEBHOOK_KEY_FILE = "webhook.key"


class WebhookKeys:
    """The keys of the file, read on each use.

    Another process may rotate the keys, and webhooks are rare.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / WEBHOOK_KEY_FILE

    def secrets(self, tenant: str) -> tuple[bytes, ...]:
        return tuple(tenant_secret(key, tenant) for key in self._read())

    def display_secret(self, tenant: str) -> str:
        return format_secret(self.secrets(tenant)[0])

    def rotate(self) -> None:
        """Add a new key before the former one."""
        former_keys = self._read() if self.path.exists() else ()
        write_durably(self.path, _to_file(rotate_keys(former_keys, os.urandom(WEBHOOK_KEY_BYTES))))

    def check(self) -> None:
        """Raise `StoreError` if the file exists and cannot be used. This stops a start."""
        if self.path.exists():
            self._read()

    def _read(self) -> tuple[bytes, ...]:
        data = read_or_create(self.path, _new_key_file, "The key of webhooks")
        keys = parse_keys(data.decode("ascii", "replace"))
        if not keys:
            raise StoreError(
                f"The key of webhooks {self.path} holds no key: put the right file back, or "
                "remove it, and every receiver needs a new secret."
            )
        return keys


def _new_key_file() -> bytes:
    return _to_file((os.urandom(WEBHOOK_KEY_BYTES),))


def _to_file(keys: tuple[bytes, ...]) -> bytes:
    return format_keys(keys).encode() + b"\n"


def main(env: Mapping[str, str]) -> int:
    """Rotate the keys for `make webhook-key`.

    A running node signs with the new key from its next webhook on.
    """
    folder = Path(env.get("PUNCTUAL_DATA") or ".punctual")
    try:
        if not folder.is_dir():
            raise StoreError(f"There is no node's data in {folder}.")
        WebhookKeys(folder).rotate()
    except StoreError as error:
        print(f"punctual: {error.message}", file=sys.stderr)
        return 1
    print(
        "Webhooks are signed with a new secret, and with the former one until the next rotation: "
        "give your receivers the new one (GET /webhook-secret)."
    )
    return 0
