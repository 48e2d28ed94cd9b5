"""What a command is given: where to ask, how to answer, and the clock."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from punctual_cli import profiles
from punctual_cli.errors import Trouble
from punctual_cli.input import clock
from punctual_cli.output.screen import Screen
from punctual_cli.profiles import Asked, Place

if TYPE_CHECKING:
    import httpx

    from punctual.client import Punctual


@dataclass
class Session:
    asked: Asked = field(default_factory=Asked)
    as_json: bool = False
    no_color: bool = False
    clock: Callable[[], datetime] = clock.now

    @cached_property
    def place(self) -> Place:
        return profiles.place(self.asked, os.environ, profiles.config_path(os.environ))

    @cached_property
    def client(self) -> "Punctual":
        return connect(self.place)

    @cached_property
    def screen(self) -> Screen:
        return Screen(self.clock, self.no_color)

    @property
    def address(self) -> str:
        """Where it asks, or would: for what goes wrong."""
        try:
            return self.place.url
        except Trouble:
            return profiles.HERE


def connect(place: Place, **options: Any) -> "Punctual":
    from punctual.client import Punctual

    if place.token is None:
        # The client would take it from there, and it may be meant for another address.
        os.environ.pop(profiles.TOKEN_VARIABLE, None)
    return Punctual(place.url, place.token, transport=_transport(place.url), **options)


def _transport(url: str) -> "httpx.HTTPTransport | None":
    """A node on this machine speaks no TLS: the certificates, which take 25 ms, stay unread."""
    if not profiles.is_loopback(url) or not url.startswith("http:"):
        return None
    import ssl

    import httpx

    # Without certificates it trusts nobody.
    return httpx.HTTPTransport(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
