"""Create and revoke tokens. Show the webhook secret, which writes an audit entry."""

from punctual.web.http.json_body import parse_object, parse_optional
from punctual.web.http.problems import RequestRejected
from punctual.web.http.query import Query
from punctual.web.http.request import Reply, Request, actor_of, json_reply
from punctual.web.models import bodies
from punctual.web.models.token import parse_new_token
from punctual.web.routes.tokens_read import token_json
from punctual.web.routing import RouteTable
from punctual.web.services import Services, parse_id


class TokenWriteRoutes:
    def __init__(self, services: Services) -> None:
        self._tokens = services.tokens
        self._clock = services.clock
        self._webhook_secret = services.webhook_secret

    def declare(self, table: RouteTable) -> None:
        table.post("/tokens", status_code=201)(self.create)
        table.delete("/tokens/<token_id>")(self.revoke)
        table.get("/webhook-secret")(self.webhook_secret)

    def create(self, request: Request) -> Reply:
        """Create a token. The answer holds its secret, so no Idempotency-Key can repeat it."""
        fields = parse_new_token(parse_object(request.body), self._clock())
        caller = request.caller
        tenant = fields.tenant or caller.tenant
        home_tenant = self._tokens.home_tenant
        if tenant != caller.tenant and caller.tenant != home_tenant:
            text = f"Only admins of the tenant {home_tenant} may create tokens of other tenants."
            raise RequestRejected("FORBIDDEN", text)
        token, secret = self._tokens.create(
            tenant,
            fields.name,
            fields.role,
            fields.expires_at,
            caller.name,
            actor_of(request),
            caller.tenant,
        )
        location = ("location", f"{request.root}/tokens/{token.token_id}")
        return json_reply(201, {**token_json(token), "token": secret}, location)

    def revoke(self, request: Request, token_id: str) -> Reply:
        token_id = parse_id(token_id, "token")
        bodies.parse_no_fields(parse_optional(request.body))
        token = self._tokens.revoke(request.caller.tenant, token_id, actor_of(request))
        return json_reply(200, token_json(token))

    def webhook_secret(self, request: Request) -> Reply:
        """Return the secret that signs webhooks. The audit names the caller."""
        Query(request.query, ()).finish()
        secret = self._webhook_secret(request.caller.tenant, actor_of(request), self._clock())
        return json_reply(200, {"secret": secret})
