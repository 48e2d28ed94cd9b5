"""Admission of callers while `PUNCTUAL_AUTH` is off.

The node admits its own user, and callers with the token of the data folder.
"""

import hmac
import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path

from punctual.domain.tenants.roles import Role
from punctual.node.files.data_folder import StoreError
from punctual.node.files.durable import read_or_create
from punctual.node.http.authentication import PUBLIC_CALLER, PUBLIC_RAW_PATHS, sent_token
from punctual.node.http.peers import Address
from punctual.tasks.script.sandbox import LOCAL_TENANT
from punctual.web.http.problems import CHALLENGE_HEADER, RequestRejected
from punctual.web.http.request import Caller

LOCAL_TOKEN_FILE = "local-token"  # in the data folder
_LOCAL_TOKEN_BYTES = 32


class OwnUser:
    """Admits the node's own user by its socket, and each other caller by the token of a file.

    Root counts as another user, because it can read the file.
    """

    def __init__(
        self, socket_owner: Callable[[Address, Address], int | None], token: str, uid: int
    ) -> None:
        self.socket_owner = socket_owner
        self._token = token.encode()
        self._uid = uid

    def authenticate(
        self, path: bytes, headers: Iterable[tuple[bytes, bytes]], address: str, uid: int | None
    ) -> Caller:
        """Return the caller, or raise the error that rejects it. `uid` owns the client's socket."""
        if path.rstrip(b"/") in PUBLIC_RAW_PATHS:
            return PUBLIC_CALLER._replace(address=address)
        if uid == self._uid or self._has_token(headers):
            return Caller(LOCAL_TENANT, LOCAL_TENANT, Role.ADMIN, "", address)
        raise RequestRejected(
            "UNAUTHENTICATED",
            "Without a token this node takes calls only from the user that runs it. Call as that "
            f"user, or send the token in the file {LOCAL_TOKEN_FILE} of its data folder: "
            "Authorization: Bearer <token>.",
            CHALLENGE_HEADER,
        )

    def _has_token(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        token = sent_token(headers)
        return token is not None and hmac.compare_digest(token.encode("latin-1"), self._token)


def load_local_token(folder: Path) -> str:
    """Return the token that only the node's own user can read. The first start creates it."""
    path = folder / LOCAL_TOKEN_FILE
    data = read_or_create(
        path, lambda: secrets.token_urlsafe(_LOCAL_TOKEN_BYTES).encode(), "The token"
    )
    token = data.decode("ascii", "replace").strip()
    if len(token) < _LOCAL_TOKEN_BYTES:
        raise StoreError(f"The token {path} is too short: remove it, and the node makes another.")
    return token


def own_uid() -> int:
    return os.geteuid()
