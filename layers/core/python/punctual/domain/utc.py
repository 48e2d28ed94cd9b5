"""A moment knows its zone: one without would fail wherever it is compared with another."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

Moment = Annotated[datetime, Meta(tz=True)]  # refused where it is read, and nowhere later
