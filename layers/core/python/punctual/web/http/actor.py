"""Return the actor of a request for the audit, with bounded text."""

from punctual.engine.ports.audit_log import Actor
from punctual.web.http.request import Request

MAX_ACTOR_CHARACTERS = 256


def actor(request: Request) -> Actor:
    caller = request.caller
    texts = (caller.name, caller.token_id, caller.address, request.request_id)
    return Actor(*(text[:MAX_ACTOR_CHARACTERS].encode(errors="replace").decode() for text in texts))
