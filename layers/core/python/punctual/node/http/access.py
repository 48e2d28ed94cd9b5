"""What identifies the callers of a node: its keys, its tokens, or the user of a process."""

import os
import sys
from pathlib import Path
from typing import NamedTuple

from punctual.auth.authenticator import TokenAuthenticator, TokenSecrets
from punctual.auth.issuer_config import IssuerConfig
from punctual.engine.commands.tokens import Tokens
from punctual.identity import new_id
from punctual.node import clock
from punctual.node.files.durable import write_durably
from punctual.node.files.token_key import TokenKey
from punctual.node.files.webhook_keys import WebhookKeys
from punctual.node.http.authentication import IssuerThread, NodeAuthenticator
from punctual.node.http.own_user import OwnUser, Peers, load_local_token, own_uid
from punctual.node.logs import EventLog
from punctual.node.sqlite.store import Store
from punctual.tasks.script.sandbox import LOCAL_TENANT

FIRST_TOKEN_FILE = "admin-token"


class Keys(NamedTuple):
    """The keys in the data folder that calls need."""

    webhooks: WebhookKeys
    token: TokenKey
    had_token: bool  # before this start


def check_keys(store: Store, folder: Path, auth: bool) -> Keys:
    """Return the keys. Refuse to start if one is damaged; create a token key if tokens are on."""
    webhooks, token = WebhookKeys(folder), TokenKey(folder)
    webhooks.check()
    store.secrets.check_key()
    had_token = token.exists
    if auth or had_token:
        token.read()
    return Keys(webhooks, token, had_token)


class Access(NamedTuple):
    """What identifies callers: their tokens, or the user that their process belongs to."""

    authenticator: NodeAuthenticator | None = None
    own_user: OwnUser | None = None


def own_user_access(folder: Path) -> Access:
    return Access(own_user=OwnUser(Peers().find_owner, load_local_token(folder), own_uid()))


def token_access(
    store: Store,
    folder: Path,
    keys: Keys,
    tokens: Tokens,
    issuer_config: IssuerConfig | None,
    issuer_thread: IssuerThread,
    log: EventLog,
) -> Access:
    """Return the check of tokens. Make sure that an admin token exists."""
    authenticator = build_authenticator(store, keys.token, issuer_config, issuer_thread, log)
    show_first_token(tokens, keys.had_token, folder)
    return Access(authenticator)


def token_commands(store: Store, token_key: TokenKey) -> Tokens:
    return Tokens(
        store.tokens,
        token_key.read,
        clock.wall,
        new_id(clock.wall),
        os.urandom,
        LOCAL_TENANT,
        store.audit,
    )


def build_authenticator(
    store: Store,
    token_key: TokenKey,
    issuer_config: IssuerConfig | None,
    issuer_thread: IssuerThread,
    log: EventLog,
) -> NodeAuthenticator:
    """Return the authenticator of the node.

    It caches no token, because the rows are local, so a revoked token fails at once.
    """
    tokens = TokenAuthenticator(
        lambda: TokenSecrets(token_key.read()),
        store.tokens,
        clock.wall,
        clock.monotonic,
        lambda error: log("token_use_not_noted", error=error),
        cache_seconds=0,
    )
    if issuer_config is None:
        return NodeAuthenticator(tokens, None, issuer_thread, log)
    # Import here: the cryptography costs 60 ms and 20 MB, and only an issuer needs it.
    from punctual.auth.https_fetch import fetch_document
    from punctual.auth.issuer import JwtVerifier

    return NodeAuthenticator(
        tokens,
        JwtVerifier(issuer_config, fetch_document, clock.wall, clock.monotonic),
        issuer_thread,
        log,
    )


def show_first_token(tokens: Tokens, had_token_key: bool, folder: Path) -> None:
    """Create an admin token if the tenant has none.

    Its owner creates the other tokens with it.

    A terminal shows the token. Elsewhere the output may be a log that other users read, so the
    token goes into a file that only the node's user can read.
    """
    if had_token_key and tokens.has_admin(LOCAL_TENANT):
        return
    _, secret = tokens.create_first(LOCAL_TENANT, "first")
    if sys.stdout.isatty():
        print(
            f"The admin token of the tenant {LOCAL_TENANT}, shown this once: {secret}", flush=True
        )
        return
    path = folder / FIRST_TOKEN_FILE
    write_durably(path, secret.encode() + b"\n")
    print(
        f"The admin token of the tenant {LOCAL_TENANT} is in {path}: remove the file.", flush=True
    )
