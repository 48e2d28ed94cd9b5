"""The entries of `notify`, which name webhooks, and their checks."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from punctual.domain.task_limits import MAX_URL_CHARACTERS
from punctual.web.features import Features
from punctual.web.models.schedule import AddError, StrictModel

Outcome = Literal["SUCCESS", "FAILED", "TIMED_OUT", "CANCELLED", "SKIPPED", "MISSED"]
MAX_NOTIFY_ENTRIES = 5


class Notify(StrictModel):
    on: Annotated[list[Outcome], Field(min_length=1, max_length=6)]
    url: Annotated[str, Field(min_length=1, max_length=MAX_URL_CHARACTERS)]


def check_notify(
    entries: Sequence[Mapping[str, Any] | None], features: Features, add_error: AddError
) -> None:
    """Check the entries. An entry of a wrong type is None."""
    for index, entry in enumerate(entries):
        statuses, url = (entry or {}).get("on"), (entry or {}).get("url")
        if statuses and len(set(statuses)) < len(statuses):
            add_error(f"notify.{index}.on", "must not name a status twice")
        if url is None:
            continue
        message = features.check_url(url)
        if "{{" in url:
            message = "must not hold placeholders: a webhook carries no payload"
        if message:
            add_error(f"notify.{index}.url", message)
