"""Who calls, and the tokens of a tenant as far as they are known."""

from punctual.domain.tenants.limits import shown as limits_json
from punctual.domain.tenants.tokens import Token
from punctual.web.http.query import LISTING, Query, filters_only, listing
from punctual.web.http.request import Reply, Request, json_reply
from punctual.web.http.timestamps import shown, shown_or_none
from punctual.web.routing import Table, queried
from punctual.web.services import Reads, Services, checked_id

_LISTED = "tokens"


class TokenReading:
    def __init__(self, api: Reads | Services) -> None:
        self._tokens = api.tokens
        self._pager = api.pager
        self._limits_of = api.limits_of

    def declare(self, table: Table) -> None:
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
            "expires_at": shown_or_none(caller.expires_at),
            "limits": limits_json(self._limits_of(caller.tenant)),
        }
        return json_reply(200, value)

    @queried
    def list(self, request: Request) -> Reply:
        query = Query(request.query, LISTING)
        limit, token = listing(query)
        query.finish()
        tenant, bound = request.caller.tenant, filters_only(request.query)
        after = self._pager.after(tenant, _LISTED, bound, token, 1)
        page = self._tokens.page(tenant, limit, after)
        value = {
            "tokens": [token_json(one) for one in page.items],
            "next_token": self._pager.token(tenant, _LISTED, bound, page.after),
        }
        return json_reply(200, value)

    def read(self, request: Request, token_id: str) -> Reply:
        token = self._tokens.one(request.caller.tenant, checked_id(token_id, "token"))
        return json_reply(200, token_json(token))


def token_json(token: Token) -> dict[str, str | None]:
    return {
        "token_id": token.token_id,
        "tenant": token.tenant,
        "name": token.name,
        "role": token.role.word,
        "created_at": shown(token.created_at),
        "created_by": token.created_by,
        "expires_at": shown_or_none(token.expires_at),
        "last_used_at": shown_or_none(token.last_used_at),
        "revoked_at": shown_or_none(token.revoked_at),
    }
