"""Who calls, and the tokens of a tenant as far as they are known."""

from punctual.domain.tenants.limits import shown as limits_json
from punctual.domain.tenants.tokens import Token
from punctual.web.http.query import PAGING_PARAMETERS, Query, filter_parameters, page_request
from punctual.web.http.request import Reply, Request, json_reply
from punctual.web.http.timestamps import format_optional_time, format_time
from punctual.web.routing import RouteTable, takes_query
from punctual.web.services import ReadServices, Services, parse_id

_PAGING_SCOPE = "tokens"


class TokenReadRoutes:
    def __init__(self, api: ReadServices | Services) -> None:
        self._tokens = api.tokens
        self._pager = api.pager
        self._limits_of = api.limits_of

    def declare(self, table: RouteTable) -> None:
        table.get("/whoami")(self.whoami)
        table.get("/tokens")(self.list)
        table.get("/tokens/<token_id>")(self.read)

    def whoami(self, request: Request) -> Reply:
        caller = request.caller
        value = {
            "tenant": caller.tenant,
            "name": caller.name,
            "role": caller.role.word,
            "token_id": caller.token_id or None,
            "expires_at": format_optional_time(caller.expires_at),
            "limits": limits_json(self._limits_of(caller.tenant)),
        }
        return json_reply(200, value)

    @takes_query
    def list(self, request: Request) -> Reply:
        query = Query(request.query, PAGING_PARAMETERS)
        limit, token = page_request(query)
        query.finish()
        tenant, bound = request.caller.tenant, filter_parameters(request.query)
        after = self._pager.after(tenant, _PAGING_SCOPE, bound, token, 1)
        page = self._tokens.page(tenant, limit, after)
        value = {
            "tokens": [token_json(one) for one in page.items],
            "next_token": self._pager.token(tenant, _PAGING_SCOPE, bound, page.after),
        }
        return json_reply(200, value)

    def read(self, request: Request, token_id: str) -> Reply:
        token = self._tokens.one(request.caller.tenant, parse_id(token_id, "token"))
        return json_reply(200, token_json(token))


def token_json(token: Token) -> dict[str, str | None]:
    return {
        "token_id": token.token_id,
        "tenant": token.tenant,
        "name": token.name,
        "role": token.role.word,
        "created_at": format_time(token.created_at),
        "created_by": token.created_by,
        "expires_at": format_optional_time(token.expires_at),
        "last_used_at": format_optional_time(token.last_used_at),
        "revoked_at": format_optional_time(token.revoked_at),
    }
