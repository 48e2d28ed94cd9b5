"""What is said to who brings no token that is good here."""

from punctual.domain.errors import Unavailable
from punctual.web.http.problems import RequestRejected

CHALLENGE = ("www-authenticate", 'Bearer realm="punctual"')


def unauthenticated() -> RequestRejected:
    text = "Send a token that is valid here: Authorization: Bearer <token>."
    return RequestRejected("UNAUTHENTICATED", text, CHALLENGE)


def tokens_unavailable() -> Unavailable:
    """A good token is not called a bad one."""
    return Unavailable("Tokens cannot be checked at the moment: try again.")
