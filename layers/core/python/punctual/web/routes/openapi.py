"""/openapi.json: the document as it was made from the models, which serving it does without."""

from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from punctual.web.http.request import Reply, Request
from punctual.web.routing import Table

FILE = Path(__file__).parents[1] / "openapi" / "openapi.json"


class Served(NamedTuple):
    data: bytes
    tag: str


class OpenApiReading:
    def declare(self, table: Table) -> None:
        table.get("/openapi.json")(self.read)

    def read(self, _request: Request) -> Reply:
        served = packaged()
        return Reply(200, served.data, (("etag", served.tag),))


@cache
def packaged() -> Served:
    data = FILE.read_bytes()
    return Served(data, f'"{blake2b(data, digest_size=12).hexdigest()}"')
