"""The body of POST /failures/{failure_id}/acknowledge, and its checks."""

from typing import Annotated

from pydantic import Field

from punctual.web.http.json_body import CONTROL_CHARACTER, JsonBody
from punctual.web.models.bodies import BodyReader
from punctual.web.models.schedule import StrictModel

MAX_FAILURE_NOTE_CHARACTERS = 256


class AcknowledgeFields(StrictModel):
    note: Annotated[str, Field(max_length=MAX_FAILURE_NOTE_CHARACTERS)] | None = None


def parse_acknowledgement(body: JsonBody) -> str:
    """Return the note, or an empty text."""
    reader = BodyReader()
    note: str = reader.validated(AcknowledgeFields, body).get("note") or ""
    if CONTROL_CHARACTER.search(note):
        reader.add_error("note", "must not hold control characters")
    reader.finish()
    return note
