"""GET /openapi.json: serve the generated document without building it from the models."""

from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from punctual.web.http.request import Reply, Request
from punctual.web.routing import RouteTable

OPENAPI_FILE = Path(__file__).parents[1] / "openapi" / "openapi.json"


class OpenApiFile(NamedTuple):
    data: bytes
    tag: str


class OpenApiRoutes:
    def declare(self, table: RouteTable) -> None:
        table.get("/openapi.json")(self.read)

    def read(self, _request: Request) -> Reply:
        file = read_openapi_file()
        return Reply(200, file.data, (("etag", file.tag),))


@cache
def read_openapi_file() -> OpenApiFile:
    data = OPENAPI_FILE.read_bytes()
    return OpenApiFile(data, f'"{blake2b(data, digest_size=12).hexdigest()}"')
