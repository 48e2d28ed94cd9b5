"""Set, list and delete the secrets that tasks name. No answer holds a value."""

from punctual.domain.errors import NotFound, Unavailable
from punctual.domain.timestamps import format_time
from punctual.engine.commands.secrets import Secrets
from punctual.engine.ports.tenants.secret_store import SecretInfo
from punctual.web.http.json_body import parse_object, parse_optional
from punctual.web.http.request import Reply, Request, actor_of, json_reply
from punctual.web.models import bodies
from punctual.web.models.secret import check_secret_name, is_secret_name, parse_secret_value
from punctual.web.routing import RouteTable
from punctual.web.services import Services


class SecretRoutes:
    def __init__(self, services: Services) -> None:
        self._stored_secrets = services.secrets
        self._clock = services.clock

    def declare(self, table: RouteTable) -> None:
        table.get("/secrets")(self.list)
        table.put("/secrets/<name>")(self.set)
        table.delete("/secrets/<name>")(self.delete)

    def list(self, request: Request) -> Reply:
        secrets = self._secrets.list(request.caller.tenant)
        return json_reply(200, {"secrets": [secret_json(secret) for secret in secrets]})

    def set(self, request: Request, name: str) -> Reply:
        check_secret_name(name)
        value = parse_secret_value(parse_object(request.body))
        self._secrets.set(request.caller.tenant, name, value, actor_of(request), self._clock())
        return _NO_CONTENT

    def delete(self, request: Request, name: str) -> Reply:
        bodies.parse_no_fields(parse_optional(request.body))
        if not is_secret_name(name):
            raise NotFound("There is no such secret.")
        self._secrets.delete(request.caller.tenant, name, actor_of(request), self._clock())
        return _NO_CONTENT

    @property
    def _secrets(self) -> Secrets:
        if self._stored_secrets is None:
            raise Unavailable("This server keeps no secrets.")
        return self._stored_secrets


_NO_CONTENT = Reply(204, b"", (), "")


def secret_json(secret: SecretInfo) -> dict[str, str]:
    return {
        "name": secret.name,
        "created_at": format_time(secret.created_at),
        "updated_at": format_time(secret.updated_at),
        "updated_by": secret.updated_by,
    }
