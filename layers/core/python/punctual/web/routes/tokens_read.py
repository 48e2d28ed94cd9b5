"""GET /whoami and /tokens: show the caller and the tokens of a tenant."""

from punctual.domain.tenants.limits import effective_limits
from punctual.domain.tenants.tokens import Token
from punctual.domain.timestamps import format_optional_time, format_time
from punctual.web.http.paging import Paging
from punctual.web.http.query import PAGING_PARAMETERS, Query
from punctual.web.http.request import Reply, Request, json_reply
from punctual.web.routing import RouteTable, takes_query
from punctual.web.services import ReadServices, Services, parse_id


class TokenReadRoutes:
    def __init__(self, services: ReadServices | Services) -> None:
        self._tokens = services.tokens
        self._limits_of = services.limits_of

    def declare(self, table: RouteTable) -> None:
        table.get("/whoami")(self.whoami)
        table.get("/tokens")(self.list)
        table.get("/tokens/<token_id>")(self.read)

    def whoami(self, request: Request) -> Reply:
        caller = request.caller
        value = {
            "tenant": caller.tenant,
            "name": caller.name,
            "role": caller.role.label,
            "token_id": caller.token_id or None,
            "expires_at": format_optional_time(caller.expires_at),
            "limits": effective_limits(self._limits_of(caller.tenant)),
        }
        return json_reply(200, value)

    @takes_query
    def list(self, request: Request) -> Reply:
        query = Query(request.query, PAGING_PARAMETERS)
        paging = Paging.of(request, query, "tokens")
        query.finish()
        page = self._tokens.page(paging.tenant, paging.limit, paging.cursor(1))
        tokens = [token_json(token) for token in page.items]
        return json_reply(
            200, {"tokens": tokens, "next_token": paging.next_token(page.next_cursor)}
        )

    def read(self, request: Request, token_id: str) -> Reply:
        token = self._tokens.load(request.caller.tenant, parse_id(token_id, "token"))
        return json_reply(200, token_json(token))


def token_json(token: Token) -> dict[str, str | None]:
    return {
        "token_id": token.token_id,
        "tenant": token.tenant,
        "name": token.name,
        "role": token.role.label,
        "created_at": format_time(token.created_at),
        "created_by": token.created_by,
        "expires_at": format_optional_time(token.expires_at),
        "last_used_at": format_optional_time(token.last_used_at),
        "revoked_at": format_optional_time(token.revoked_at),
    }
