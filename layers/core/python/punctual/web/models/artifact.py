"""The body of POST /artifacts, and its checks."""

from typing import Annotated, NamedTuple

from pydantic import Field

from punctual.domain.artifacts import MAX_ARTIFACT_BYTES, MAX_ARTIFACT_NAME_CHARACTERS, is_digest
from punctual.web.http.json_body import CONTROL_CHARACTER, JsonBody
from punctual.web.models.bodies import BodyReader
from punctual.web.models.schedule import StrictModel


class ArtifactFields(StrictModel):
    sha256: Annotated[str, Field(min_length=64, max_length=64, pattern="^[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=1, le=MAX_ARTIFACT_BYTES)]
    name: Annotated[str, Field(min_length=1, max_length=MAX_ARTIFACT_NAME_CHARACTERS)]


class NewArtifact(NamedTuple):
    sha256: str
    size: int
    name: str


def parse_new_artifact(body: JsonBody) -> NewArtifact:
    reader = BodyReader()
    fields = reader.validated(ArtifactFields, body)
    name, digest = fields.get("name") or "", fields.get("sha256")
    if CONTROL_CHARACTER.search(name) or "/" in name:
        reader.add_error("name", "must be the name of a file, without slashes")
    if digest is not None and not is_digest(digest):
        reader.add_error("sha256", "must be 64 hexadecimal digits in lower case")
    reader.finish()
    return NewArtifact(fields["sha256"], fields["size"], name)
