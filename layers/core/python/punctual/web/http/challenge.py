"""Errors for a call without a valid token."""

from punctual.domain.errors import Unavailable
from punctual.web.http.problems import RequestRejected

CHALLENGE_HEADER = ("www-authenticate", 'Bearer realm="punctual"')


def unauthenticated() -> RequestRejected:
    text = "Send a valid token: Authorization: Bearer <token>."
    return RequestRejected("UNAUTHENTICATED", text, CHALLENGE_HEADER)


def tokens_unavailable() -> Unavailable:
    """Return the error for a token that cannot be checked now. It may be a valid one."""
    return Unavailable("Tokens cannot be checked at the moment: try again.")
