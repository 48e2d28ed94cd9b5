"""Bounds the memory of bodies that arrive without a token.

A call by claim needs no token, and its body may have 5 MiB. Without a bound, 1,000 connections
could take 5 GB before any claim is checked.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from punctual.web.http.guards import CLOSE_HEADER
from punctual.web.http.problems import DEFAULT_RETRY_AFTER, RequestRejected

MAX_PUBLIC_BODY_BYTES = 64 * 1024 * 1024  # of all bodies without a token that are read at a time
# A shorter body is always read, so that long ones cannot keep out the renewals of executors.
SHORT_PUBLIC_BODY_BYTES = 32 * 1024


class PublicBodies:
    """Counts the bytes of the bodies without a token that are read now."""

    def __init__(self, max_bytes: int = MAX_PUBLIC_BODY_BYTES) -> None:
        self._free_bytes = max_bytes

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Reserve the memory of a body while it is read and answered. Reject it without room."""
        if size <= SHORT_PUBLIC_BODY_BYTES:
            yield
            return
        if size > self._free_bytes:
            text = (
                "Too many long bodies without a token are under way: try again, or send fewer "
                "claims at a time."
            )
            retry_header = ("retry-after", DEFAULT_RETRY_AFTER)
            raise RequestRejected("UNAVAILABLE", text, CLOSE_HEADER, retry_header)
        self._free_bytes -= size
        try:
            yield
        finally:
            self._free_bytes += size
