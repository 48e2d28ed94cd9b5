"""The session that a command receives, with the client, the output and the clock."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from punctual_cli import profiles
from punctual_cli.errors import CommandError
from punctual_cli.input import clock, moments
from punctual_cli.output.screen import Screen
from punctual_cli.profiles import ApiTarget, TargetOptions

if TYPE_CHECKING:
    import httpx

    from punctual.client import Punctual

# How long a command that follows a run goes on without an answer, such as 10m.
RECONNECT_VARIABLE = "PUNCTUAL_RECONNECT"


@dataclass
class Session:
    target_options: TargetOptions = field(default_factory=TargetOptions)
    as_json: bool = False
    no_color: bool = False
    clock: Callable[[], datetime] = clock.utc_now

    @cached_property
    def target(self) -> ApiTarget:
        return profiles.resolve_target(
            self.target_options, os.environ, profiles.config_path(os.environ)
        )

    @cached_property
    def client(self) -> "Punctual":
        from punctual.client import Retries

        text = os.environ.get(RECONNECT_VARIABLE)
        if not text:
            return make_client(self.target)
        try:
            reconnect = moments.parse_duration(text)
        except ValueError as error:
            raise CommandError(f"{RECONNECT_VARIABLE}: {error}") from error
        retries = Retries(reconnect_seconds=reconnect.total_seconds())
        return make_client(self.target, retries=retries)

    @cached_property
    def screen(self) -> Screen:
        return Screen(self.clock, self.no_color)

    @property
    def shown_target(self) -> ApiTarget:
        """Return the address of the API and its source, for error messages."""
        try:
            return self.target
        except CommandError:
            return ApiTarget(profiles.DEFAULT_API_URL, None, "the default")


def make_client(target: ApiTarget, **options: Any) -> "Punctual":
    from punctual.client import Punctual

    if target.token is None:
        # The client would read this variable. Its token may belong to another address.
        os.environ.pop(profiles.TOKEN_VARIABLE, None)
    return Punctual(target.url, target.token, transport=_transport(target.url), **options)


def _transport(url: str) -> "httpx.HTTPTransport | None":
    """Return a transport without certificates for a local node. Loading them takes 25 ms."""
    import ssl

    import httpx

    from punctual.client.calls.transport import is_loopback_url

    if not is_loopback_url(url) or not url.startswith("http:"):
        return None

    # An SSL context without certificates trusts no server.
    return httpx.HTTPTransport(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
