"""The type of aware datetimes. A naive datetime would fail in a later comparison."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

Moment = Annotated[datetime, Meta(tz=True)]  # decoding rejects a naive datetime
