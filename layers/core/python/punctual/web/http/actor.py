"""Who asks, as the audit notes it: whatever a request brought is bounded here."""

from punctual.engine.commands.audit import Actor
from punctual.web.http.request import Request

MAX_ACTOR_CHARACTERS = 256  # characters


def actor(request: Request) -> Actor:
    caller = request.caller
    said = (caller.name, caller.token_id, caller.address, request.request_id)
    return Actor(*(text[:MAX_ACTOR_CHARACTERS].encode(errors="replace").decode() for text in said))
